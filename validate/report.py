"""Tables that the engine derives and solves: thresholds, exponents, a worked solve, direct training."""

from collections.abc import Iterator
from typing import Any

import sympy as sp

from derive.balance import monomial
from derive.exact import ProblemError
from derive.limit_laws import edge_exponents, limit_laws
from derive.linear import LinearChannel
from derive.model import Problem
from derive.saddle import reduced_system
from derive.scaling import regimes
from derive.softmax import SoftmaxChannel
from derive.targets import MarchenkoPastur, PowerLaw
from derive.thresholds import effective_samples
from numerics.edges import gaps
from numerics.softmax import softmax_collapse, softmax_splitting
from numerics.solution import KEYS
from numerics.state_evolution import solve, solve_optimal
from numerics.thresholds import Threshold, collapse, interpolation, perfect_recovery, splitting
from validate.tables import Table

__all__ = ["report", "threshold_row"]


def digits_of(threshold: Threshold, digits: int, over: sp.Expr = sp.S.One) -> str:
    """Print a threshold, divided by a whole number, with so many significant digits."""
    return _printed(threshold.value / int(over), digits)


def _printed(value: Any, digits: int) -> str:
    return str(value.context.nstr(value, digits, strip_zeros=False))


def threshold_row(
    problem: Problem,
    digits: int,
    *,
    noise: bool,
    collapse_too: bool = False,
    splitting_too: bool = False,
    on_bar: bool = False,
) -> dict[str, Any]:
    """Thresholds of a task: recovery, with noise interpolation, then collapse and splitting of S.

    ``perfect_recovery``, ``interpolation`` and ``splitting`` are values of alpha (of L_eff alpha if
    ``on_bar``), ``collapse`` is one of lam. Above ``splitting`` the spectrum is split at
    ``splitting_eigenvalue``; not to be seen where that is negative, since S is cut above it. A target
    with several gaps has one of each per gap, from the top. Where no student can interpolate,
    ``interpolation`` is None and ``statement`` says why.

    Parameters
    ----------
    problem : Problem
        Target, task and, where used, noise and alpha.
    noise, collapse_too, splitting_too : bool
        Whether noise was given, and the thresholds at given alpha and at given lam asked for.

    Raises
    ------
    ProblemError
        A collapse or a splitting was asked for without noise, a number of tokens is missing, or the
        target has no gap at which to split.
    """
    target, channel = problem.target, problem.channel
    if channel.directions.free_symbols:
        raise ProblemError("the thresholds of a softmax task need the number of tokens: state --tokens")
    found = {"perfect_recovery": perfect_recovery(target.rank_fraction, digits)}
    statement = {}
    if noise and channel.interpolates:
        found["interpolation"] = interpolation(target, problem.noise, digits)
    elif noise:
        statement = {"interpolation": None, "statement": _NO_INTERPOLATION}
    scale = 1 if on_bar else channel.directions
    values: dict[str, Any] = {name: digits_of(t, digits, scale) for name, t in found.items()}
    if (collapse_too or splitting_too) and not noise:
        raise ProblemError("collapse and splitting need the noise as well as alpha or lam")
    if splitting_too:
        for name, split in _splittings(problem, digits).items():
            found |= {name: split} if split else {}
            values[name] = digits_of(split, digits, scale) if split else None
            place = name.replace("splitting", "splitting_eigenvalue")
            values[place] = _printed(split.unknown["eigenvalue"], digits) if split else None
    if collapse_too:
        found["collapse"] = (
            collapse(target, problem.noise, problem.alpha, digits)
            if isinstance(channel, LinearChannel)
            else softmax_collapse(problem)
        )
        values["collapse"] = digits_of(found["collapse"], digits)
    row = values if digits > 15 else {k: v and float(v) for k, v in values.items()}
    errors = {"error_estimate": max(t.error_estimate for t in found.values())}
    return row | statement | {"L_eff": int(channel.directions)} | errors


def _splittings(problem: Problem, digits: int) -> dict[str, Threshold | None]:
    """By name: ``splitting``, or ``splitting 1``, ... where the target has several gaps."""
    found = gaps(problem.target)
    if not found or isinstance(problem.target, PowerLaw):
        raise ProblemError(
            f"{problem.target} has no gap at which the bulk splits (modes of a power law leave it one "
            "by one: onehead emergence)"
        )
    if len(found) > _MOST_GAPS:
        raise ProblemError(f"splitting is found for at most {_MOST_GAPS} gaps, not {len(found)}")
    names = [f"splitting {k}" for k in range(1, len(found) + 1)] if len(found) > 1 else ["splitting"]
    if isinstance(problem.channel, LinearChannel):
        at = [splitting(problem.target, gap, problem.noise, problem.lam, digits) for gap in found]
    else:
        at = [softmax_splitting(problem, gap) for gap in found]
    return dict(zip(names, at, strict=True))


_MOST_GAPS = 10
_NO_INTERPOLATION = (
    "noise outside the softmax takes the labels out of its range, so no student fits them at any alpha"
)


def report(digits: int = 30) -> Iterator[Table]:
    """Derive, solve and tabulate; yields each table as it is ready."""
    yield _equations()
    yield _thresholds(digits)
    yield _softmax_thresholds(digits)
    yield _exponents()
    yield _laws()
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


def _softmax_thresholds(digits: int) -> Table:
    rows = []
    for tokens in (2, 3, 4):
        channel = SoftmaxChannel(tokens=tokens)
        values = [digits_of(perfect_recovery(sp.Rational(1, 2), digits), digits, channel.directions)]
        for noise in (sp.Integer(0), sp.Rational(1, 2)):
            threshold = interpolation(MarchenkoPastur(sp.Rational(1, 2)), noise, digits)
            values.append(digits_of(threshold, digits, channel.directions))
        rows.append((tokens, int(channel.directions), str(effective_samples(channel)), *values))
    return Table(
        "Thresholds alpha = n/d^2 of softmax attention (kappa0 = 1/2, lam -> 0+, noise inside)",
        (
            "tokens T",
            "L_eff",
            "alpha of T = 1",
            "perfect recovery, Delta = 0",
            "interpolation, Delta -> 0",
            "interpolation, Delta = 1/2",
        ),
        rows,
        f"No interpolation otherwise: {_NO_INTERPOLATION}.",
    )


def _exponents() -> Table:
    edge = ", ".join(f"{name} ~ ({c}) eps^({p})" for name, (c, p) in edge_exponents().items())
    rows = [(r.name, monomial(r.exponent), str(r.f), r.dominant) for r in regimes()]
    return Table(
        "Exponents of a power-law target, s_i ~ sqrt(d) i^(-gamma): R ~ n^(-f) at fixed d, lam, Delta",
        ("regime", "R ~", "f(gamma)", "largest term"),
        rows,
        f"Under the bulk edge, theta = 2 tau (1 - eps): {edge}.\n"
        "`onehead exponents` says where each regime holds, and measures it with --check.",
    )


def _laws() -> Table:
    rows: list[tuple[Any, ...]] = [
        (law.regime, str(law.risk), str(law.f), law.conditions) for law in limit_laws()
    ]
    return Table(
        "Laws of the noise bulk with their constants, lam -> 0+",
        ("regime", "R", "f", "conditions"),
        rows,
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
