"""The exponents measured: local slopes of the solved state evolution, extrapolated in d.

In each regime a point (a, l, delta) far from the boundaries is kept while d grows, n = d^a and so on.
The local slope d log R/d log n then differs from f(gamma) by powers of 1/d; on a geometric sequence of d
these are geometric sequences, which Wynn's epsilon algorithm removes one after the other. Corrections in
1/log d (a Gaussian tail) are rational functions of log d, for which his rho algorithm is made.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import log

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy.optimize import linprog

from derive.balance import a, delta, gamma, l
from derive.model import Problem
from derive.polyhedra import rational_form
from derive.scaling import Regime
from derive.targets import PowerLaw
from numerics.float_solver import FloatSolver, State
from numerics.lasso import Lasso

__all__ = ["SIZES", "Confirmation", "confirm", "deep_point", "extrapolate", "limit_with_error"]

SIZES = tuple(int(10 ** (3 + 0.75 * j)) for j in range(9))
_SIZES = {
    "linear": SIZES,
    "lasso": tuple(int(10 ** (4.5 + 0.75 * j)) for j in range(11)),
}
_BOX = {a: (0.5, 7.0), l: (-6.0, 3.0), delta: (-4.0, 2.0)}
_MARGIN = 0.4  # in exponents; farther away float64 has nothing to gain
_FLOOR = 2.0  # times the margin is kept from the floor of the last mode, the slowest correction
_STEP = 0.1  # in log n
_FEWEST = 4  # terms that are not enough to extrapolate
_EXACT = 1e-13  # a sequence that has stopped to move
# Where a threshold at the edge of a Gaussian tail, tau sqrt(2 log d), brings logarithms in.
_LOGARITHMIC = ("data-limited", "noise-limited", "interpolating bulk")


@dataclass(frozen=True)
class Confirmation:
    """A measured exponent.

    Attributes
    ----------
    point : dict
        Exponents a, l, delta at which it was measured.
    slopes : tuple of float
        -d log R/d log n at each size d.
    measured, error : float
        Their extrapolation, and how far it is uncertain.
    """

    regime: str
    gamma: sp.Rational
    point: dict[str, sp.Rational]
    derived: float
    sizes: tuple[int, ...]
    slopes: tuple[float, ...]
    measured: float
    error: float


def deep_point(regime: Regime, value: sp.Rational) -> dict[sp.Symbol, sp.Rational] | None:
    """A point far from the boundaries of a regime but moderate otherwise; None if there is none.

    The margin is the largest possible one up to 0.4; among the points that have it, |l| + |delta| + a is
    the least.
    """
    variables = tuple(_BOX)
    best: tuple[float, list[float]] | None = None
    for cell in regime.cells:
        conditions = list(cell.conditions)
        if cell.modes == "some" and (cell.tau, cell.cut) != ("data", "edge"):
            # The modes end at d: a correction of the order of the floor of a student of that width. (The
            # data-limited law has k ~ n/d, so its own conditions keep it away.)
            conditions.append(cell.exponent - (1 - 2 * gamma))
        forms = [rational_form(c.subs(gamma, value), variables) for c in conditions]
        rows = np.array([[-float(c) for c in f[:-1]] for f in forms])
        norms = np.linalg.norm(rows, axis=1)
        norms[len(cell.conditions) :] *= _FLOOR
        rows = np.hstack([rows, norms[:, None]])
        limits = np.array([float(f[-1]) for f in forms])
        bounds = [*_BOX.values(), (0, _MARGIN)]
        deepest = linprog([0, 0, 0, -1], A_ub=rows, b_ub=limits, bounds=bounds)
        if deepest.status or deepest.x[3] < 1e-6 or (best and deepest.x[3] <= best[0]):
            continue
        best = deepest.x[3], _moderate(rows[:, :3], limits - 0.999 * deepest.x[3] * rows[:, 3])
    if best is None:
        return None
    return {
        v: sp.Rational(Fraction(x).limit_denominator(50))
        for v, x in zip(variables, best[1], strict=True)
    }


def _moderate(rows: NDArray[np.float64], limits: NDArray[np.float64]) -> list[float]:
    """Least a + |l| + |delta| with rows x <= limits; the last two are split into their signs."""
    split = np.hstack([rows, -rows[:, 1:]])
    bounds = [_BOX[a], *[(0, None)] * 4]
    x = linprog(np.ones(5), A_ub=split, b_ub=limits, bounds=bounds).x
    return [float(x[0]), float(x[1] - x[3]), float(x[2] - x[4])]


def _rational(exponent: sp.Rational, d: int, factor: float = 1.0) -> sp.Rational:
    return sp.Rational(repr(factor * 10 ** (float(exponent) * float(np.log10(d)))))


def _slope(risk: Callable[[float], float]) -> float:
    """-d log R/d log n from R at n exp(-h) and n exp(h)."""
    low, high = risk(float(np.exp(-_STEP))), risk(float(np.exp(_STEP)))
    return -log(high / low) / (2 * _STEP)


def matrix_slope(
    value: sp.Rational, point: dict[sp.Symbol, sp.Rational], d: int, at_edge: bool
) -> float:
    """Local slope of the linear task at n = d^a, lam = d^l, Delta = d^delta.

    Parameters
    ----------
    at_edge : bool
        Follow theta = 2 tau, the edge of the noise, instead of a fixed lam.
    """
    base = Problem(PowerLaw(value, d), alpha=1, lam=_rational(point[l], d), noise=1)
    base = base.at(noise=_rational(point[delta], d))
    state: State | None = None

    def risk(factor: float) -> float:
        nonlocal state
        solver = FloatSolver(base.at(alpha=_rational(point[a] - 2, d, factor)))
        state = solver.on_ray(2.0, "unpenalised") if at_edge else _regular(solver, state)
        return solver.Q0 if state is None else solver.outputs(state)["excess_risk"]

    return _slope(risk)


def lasso_slope(value: sp.Rational, point: dict[sp.Symbol, sp.Rational], d: int, at_edge: bool) -> float:
    """Local slope of the LASSO; ``at_edge`` takes the best threshold instead of a fixed lam."""
    n, lam, noise = (float(_rational(point[v], d)) for v in (a, l, delta))

    def risk(factor: float) -> float:
        model = Lasso(float(value), d, n * factor, noise)
        return (model.best() if at_edge else model.solve(lam)).risk

    return _slope(risk)


def _regular(solver: FloatSolver, guess: State | None) -> State | None:
    """The solution at the solver's lam; None where S = 0."""
    tau2, edge = solver.collapsed_end()
    if solver.lam >= 4 * solver.alpha * edge:
        return None
    return solver.solve("shrinkage", guess, edge / tau2**0.5)


_SLOPES = {"linear": matrix_slope, "lasso": lasso_slope}


def extrapolate(sequence: Sequence[float], abscissae: Sequence[float] | None = None) -> float:
    """Limit of a sequence by Wynn's epsilon algorithm, or with abscissae his rho algorithm."""
    before, last, limit, order = [0.0] * (len(sequence) + 1), list(sequence), sequence[-1], 0
    while len(last) > 1:
        gaps = np.diff(last)
        order += 1
        if np.any(np.abs(gaps) < _EXACT):
            break
        steps = (
            np.ones(len(gaps))
            if abscissae is None
            else np.array([abscissae[i + order] - abscissae[i] for i in range(len(gaps))])
        )
        before, last = last, [before[i + 1] + steps[i] / gaps[i] for i in range(len(gaps))]
        if order % 2 == 0:
            limit = last[-1]
    return limit


def limit_with_error(
    sequence: Sequence[float], abscissae: Sequence[float] | None = None
) -> tuple[float, float]:
    """The extrapolated limit, and the most it moves without the first or the last one or two terms.

    The first third or half of a sequence in powers is left out if that makes the limit steadier: a
    crossover among the small sizes is no correction that dies out. Logarithms need every term.
    """
    starts = {0, len(sequence) // 3, len(sequence) // 2} if abscissae is None else {0}
    found = [_spread(sequence, abscissae, i) for i in sorted(starts) if len(sequence) - i > _FEWEST]
    return min(found, key=lambda pair: pair[1])


def _spread(
    sequence: Sequence[float], abscissae: Sequence[float] | None, start: int
) -> tuple[float, float]:
    kept = slice(start, None)
    sequence = sequence[kept]
    abscissae = None if abscissae is None else abscissae[kept]
    whole, spread = extrapolate(sequence, abscissae), 0.0
    for first, last in ((1, 0), (0, 1), (1, 1), (2, 0)):
        part = slice(first, len(sequence) - last)
        xs = None if abscissae is None else abscissae[part]
        spread = max(spread, abs(extrapolate(sequence[part], xs) - whole))
    return whole, spread


def confirm(
    rows: Sequence[Regime], values: Sequence[sp.Rational], task: str = "linear"
) -> Iterator[Confirmation]:
    """Measure every regime at every gamma, one after the other.

    The noise-limited regime is measured at the edge of the noise, theta = 2 tau (for the LASSO at the
    best lam), where no E_over competes: at a fixed lam below it the two are never far apart. So its row
    should be the one of `derive.variants.best`. Sizes at which the solver fails are left out.
    """
    for value in values:
        for regime in rows:
            point = deep_point(regime, value)
            if point is not None:
                yield _measured(regime, value, point, task)


def _measured(
    regime: Regime, value: sp.Rational, point: dict[sp.Symbol, sp.Rational], task: str
) -> Confirmation:
    slope, lasso = _SLOPES[task], task == "lasso"
    kept, slopes = [], []
    with np.errstate(all="ignore"):
        for d in _SIZES[task]:
            try:
                slopes.append(slope(value, point, d, regime.name == "noise-limited"))
            except ArithmeticError:  # NotConverged is one
                continue
            kept.append(d)
    measured, error = float("nan"), float("nan")
    if len(slopes) > _FEWEST:
        logs = lasso and regime.name in _LOGARITHMIC
        measured, error = limit_with_error(slopes, list(np.log(kept)) if logs else None)
    named = {str(k): v for k, v in point.items()}
    f = float(regime.f.subs(gamma, value))
    return Confirmation(regime.name, value, named, f, tuple(kept), tuple(slopes), measured, error)
