"""Solve a problem: pick the phase, solve in float64, refine to any number of digits.

Phases of the nuclear penalty: S = 0 (collapsed), R = 0 (recovered), zero training loss at lam -> 0+
(interpolating), lam -> 0+ above that threshold (unpenalised), and the regular case.
"""

from typing import Any

import numpy as np
import sympy as sp

from derive.exact import ProblemError
from derive.linear import LinearChannel
from derive.model import Problem
from derive.targets import PowerLaw
from numerics.direct import best_penalty, solve_direct
from numerics.error_estimate import relative_error
from numerics.float_solver import FloatSolver, State
from numerics.high_precision import refine
from numerics.limits import collapsed, recovered, recovers
from numerics.optimal import best_state
from numerics.precision import check_digits
from numerics.softmax import solve_softmax, solve_softmax_optimal
from numerics.solution import NotConverged, Solution
from numerics.tail import MERGED_ABOVE

__all__ = ["solve", "solve_optimal"]

FLOAT_DIGITS = 15
_RANGE = (sp.Rational(1, 10**60), sp.Integer(10) ** 60)  # float64 squares stay finite
_WORTHLESS = 1e-3  # relative error above which a float64 solution is not returned


# Far from a solution values may overflow; their residuals are not finite and get rejected.
@np.errstate(all="ignore")
def solve(
    problem: Problem,
    digits: int = FLOAT_DIGITS,
    start: Solution | None = None,
    tolerance: float | None = None,
) -> Solution:
    """Solve the state evolution.

    Parameters
    ----------
    problem : Problem
        All parameters numbers. ``lam = 0`` is the limit lam -> 0+.
    digits : int
        Up to 15: float64. Beyond: mpmath, that many correct digits.
    start : Solution, optional
        A neighbouring solution to continue from.
    tolerance : float, optional
        Error estimate at which the quadrature of a softmax channel stops (`numerics.softmax`).

    Returns
    -------
    Solution
        Overlaps q, m and conjugates A, M, C as in THEORY.md section 2 (per d, per d^2), losses per
        sample, energy per d^2, trace Tr S/d.

    Raises
    ------
    NotConverged
        No point meets the equations to 1e-9, or the digits were not reached.
    ProblemError
        A parameter is still a symbol, or the number of digits makes no sense.
    """
    check_digits(digits)
    _check_numbers(problem)
    if not isinstance(problem.channel, LinearChannel):
        _check_float(digits)
        return solve_softmax(problem, start, tolerance)
    if problem.penalty == "frobenius":
        return solve_direct(problem, digits)
    solver = FloatSolver(problem)
    tau2, edge = solver.collapsed_end()
    if tau2 == 0 or float(problem.lam) >= 4 * float(problem.alpha) * edge:
        return collapsed(problem, digits)
    if recovers(problem):
        return recovered(problem, digits)
    guess, top = _as_state(solver, start), edge / tau2**0.5
    if problem.lam == 0:
        state, phase = _ridgeless(solver, guess, top)
    else:
        state, phase = solver.solve("shrinkage", guess, top), "regular"
    return _finish(solver, state, phase, digits)


@np.errstate(all="ignore")
def solve_optimal(
    problem: Problem, digits: int = FLOAT_DIGITS, tolerance: float | None = None
) -> Solution:
    """Solve at the penalty of least test loss (of least excess risk too for the linear task).

    The ``lam`` of ``problem`` is ignored; the one found stands in the solution's problem.
    """
    check_digits(digits)
    problem = problem.at(lam=0)
    _check_numbers(problem)
    if not isinstance(problem.channel, LinearChannel):
        _check_float(digits)
        return solve_softmax_optimal(problem, tolerance)
    if problem.penalty == "frobenius":
        return solve_direct(problem.at(lam=best_penalty(problem)), digits)
    if problem.noise == 0:
        # Noiseless labels are fitted exactly: any lam > 0 only adds bias.
        return solve(problem, digits)
    solver = FloatSolver(problem)
    tau2, edge = solver.collapsed_end()
    if problem.target.Q0 == 0:
        # Nothing to learn: the least penalty that returns S = 0.
        return collapsed(problem.at(lam=4 * problem.alpha * sp.Rational(repr(edge))), digits)
    top = edge / tau2**0.5
    limit, _ = _ridgeless(solver, None, top)
    state = best_state(solver, limit.theta / limit.tau2**0.5, top)
    if state is None:
        return solve(problem, digits)
    best = solver.outputs(state)
    if digits > FLOAT_DIGITS:
        best, _, _ = refine(problem, "optimal", state, state.capped, digits)
    return solve(problem.at(lam=_as_rational(best["theta"] * best["A"], digits)), digits)


def _check_float(digits: int) -> None:
    if digits > FLOAT_DIGITS:
        raise ProblemError(
            "softmax channels are averaged by quadrature in float64: ask for no more than 15 digits "
            "(their thresholds have any number)"
        )


def _as_rational(value: Any, digits: int) -> sp.Rational:
    if isinstance(value, float):
        return sp.Rational(repr(value))
    return sp.Rational(str(value.context.nstr(value, digits + 5)))


def _check_numbers(problem: Problem) -> None:
    for name in ("alpha", "lam", "noise"):
        value = getattr(problem, name)
        if value.free_symbols:
            raise ProblemError(f"{name} needs a number to be solved for, not {value}")
        if value != 0 and not _RANGE[0] < value < _RANGE[1]:
            raise ProblemError(f"{name} = {float(value):.3g} is out of the range 1e-60..1e60")
    if problem.target.Q0.free_symbols:
        raise ProblemError(f"the target needs numbers to be solved for, not {problem.target}")


def _advice(problem: Problem) -> str:
    target = problem.target
    if isinstance(target, PowerLaw) and target.modes > MERGED_ABOVE:
        return "the cut falls between modes of the tail that are merged; take a larger lam or a --cutoff"
    return "ask for more digits"


def _as_state(solver: FloatSolver, start: Solution | None) -> State | None:
    if start is None or not start.values["tau"] or start.phase == "collapsed":
        return None
    tau2, theta = float(start.values["tau"]) ** 2, float(start.values["theta"])
    return solver.at(tau2, theta, "shrinkage", start.seed)


def _ridgeless(solver: FloatSolver, guess: State | None, top: float) -> tuple[State, str]:
    """Lam -> 0+: nothing is shrunk above the interpolation threshold, A = 0 below it."""
    state = solver.on_ray(0.0, "unpenalised")
    if state is not None and 2 * solver.alpha - state.moments.psi > 1e-10 * solver.alpha:
        return solver.polish(state), "unpenalised"
    return solver.solve("interpolating", guess, top), "interpolating"


def _finish(solver: FloatSolver, state: State, phase: str, digits: int) -> Solution:
    problem, residual = solver.problem, state.residual
    try:
        values: dict[str, Any] = solver.outputs(state)
    except ZeroDivisionError:
        raise NotConverged(
            problem, residual, "lam is below what float64 resolves; take lam = 0, the limit"
        ) from None
    if digits > FLOAT_DIGITS:
        values, residual, error = refine(problem, state.closing, state, state.capped, digits)
    if digits <= FLOAT_DIGITS:
        error = relative_error(solver, state, values)
        if not error < _WORTHLESS:
            raise NotConverged(
                problem, residual, f"the relative error is {error:.0e}; {_advice(problem)}"
            )
    return Solution(problem, values, residual, error, digits, phase, state.moments.point)
