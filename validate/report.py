"""Tables that the engine derives and solves: thresholds, exponents, a worked solve, direct training."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from derive.exact import ProblemError
from derive.model import Problem
from derive.saddle import reduced_system
from derive.scaling import edge_exponents, limit_laws
from derive.targets import MarchenkoPastur, Target
from numerics.solution import KEYS
from numerics.state_evolution import solve, solve_optimal
from numerics.thresholds import Threshold, collapse, interpolation, perfect_recovery
from validate.tables import Table

__all__ = ["report", "threshold_row"]


def digits_of(threshold: Threshold, digits: int) -> str:
    """Print a threshold with so many significant digits."""
    value = threshold.value
    return str(value.context.nstr(value, digits, strip_zeros=False))


def threshold_row(
    target: Target, noise: sp.Expr | None, alpha: sp.Expr | None, digits: int
) -> dict[str, Any]:
    """Thresholds of the linear task: recovery, with noise interpolation, with alpha collapse.

    ``perfect_recovery`` and ``interpolation`` are values of alpha, ``collapse`` is one of lam.

    Raises
    ------
    ProblemError
        A collapse was asked for without noise.
    """
    found = {"perfect_recovery": perfect_recovery(target.rank_fraction, digits)}
    if noise is not None:
        found["interpolation"] = interpolation(target, noise, digits)
    if alpha is not None:
        if noise is None:
            raise ProblemError("the collapse threshold needs the noise as well as alpha")
        found["collapse"] = collapse(target, noise, alpha, digits)
    values = {name: digits_of(t, digits) for name, t in found.items()}
    row: dict[str, Any] = values if digits > 15 else {k: float(v) for k, v in values.items()}
    return row | {"error_estimate": max(t.error_estimate for t in found.values())}


def report(digits: int = 30) -> Iterator[Table]:
    """Derive, solve and tabulate; yields each table as it is ready."""
    yield _equations()
    yield _thresholds(digits)
    yield _exponents()
    yield _worked_solve(digits)
    yield _direct()


def _equations() -> Table:
    system = reduced_system()
    rows = [
        ("lam = theta M", f"{system.shrinkage} = 0"),
        ("C = tau2 M^2", f"{system.width} = 0"),
        ("A = M", str(system.A)),
        ("best lam", f"{sp.factor(system.best_shrinkage / 2)} = 0"),
    ]
    return Table(
        "State evolution of the linear task, derived from the potential",
        ("condition", "equation"),
        rows,
        "mass, I1, I2: integrals of (x - theta)_+^k over the law of S0 + tau G, k = 0, 1, 2; psi: the "
        "double integral of the divided difference of (x - theta)_+; hilbert: twice the integral of the "
        "Hilbert transform above theta. `onehead derive saddle` prints every step.",
    )


def _thresholds(digits: int) -> Table:
    rows = []
    for kappa0 in ("1/10", "1/4", "1/2", "3/4", "1"):
        target = MarchenkoPastur(sp.Rational(kappa0))
        values = [digits_of(perfect_recovery(target.rank_fraction, digits), digits)]
        for noise in (sp.Integer(0), sp.Rational(1, 2)):
            values.append(digits_of(interpolation(target, noise, digits), digits))
        rows.append((kappa0, *values))
    return Table(
        "Thresholds alpha = n/d^2 of the linear task (lam -> 0+)",
        (
            "kappa0",
            "perfect recovery, Delta = 0",
            "interpolation, Delta -> 0",
            "interpolation, Delta = 1/2",
        ),
        rows,
    )


def _exponents() -> Table:
    rows: list[tuple[Any, ...]] = [
        (law.regime, str(law.risk), str(law.f), law.conditions) for law in limit_laws()
    ]
    edge = ", ".join(f"{name} ~ ({c}) eps^({p})" for name, (c, p) in edge_exponents().items())
    return Table(
        "Exponents derived so far: R ~ n^(-f) at fixed d, Delta",
        ("regime", "R", "f", "conditions"),
        rows,
        f"Under the bulk edge, theta = 2 tau (1 - eps): {edge}.",
    )


def _worked_solve(digits: int) -> Table:
    problem = Problem(MarchenkoPastur(sp.Rational(1, 2)), alpha="3/10", lam="1/5", noise="1/10")
    fast, exact = solve(problem).to_dict(), solve(problem, digits).to_dict()
    rows = [(key, fast[key], exact[key]) for key in KEYS]
    return Table(
        f"Worked solve: {problem.describe()}", ("quantity", "float64", f"{digits} digits"), rows
    )


def _direct() -> Table:
    rows = []
    for kappa0 in ("1/10", "1/2", "1"):
        problem = Problem(MarchenkoPastur(sp.Rational(kappa0)), alpha="3/10", lam=0, noise="1/10")
        factorised = solve_optimal(problem)
        direct = solve_optimal(problem.at(penalty="frobenius"))
        rows.append((kappa0, factorised.excess_risk, direct.excess_risk, str(direct.problem.lam)))
    return Table(
        "Factorised against direct training at the best lam of each (alpha = 3/10, Delta = 1/10)",
        ("kappa0", "R factorised", "R direct", "best lam direct"),
        rows,
    )
