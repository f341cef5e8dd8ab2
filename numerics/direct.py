"""Direct (Frobenius) training: the closed form of THEORY.md section 6, evaluated."""

from functools import lru_cache
from typing import Any

import sympy as sp
from mpmath.ctx_mp import MPContext

from derive import symbols as s
from derive.generate import compile_function
from derive.model import Problem
from derive.saddle import direct_solution
from numerics.laws import mp_law
from numerics.precision import context, evaluate
from numerics.solution import NotConverged, Solution, magnitude

__all__ = ["best_penalty", "solve_direct"]

_PARAMETERS = (s.alpha, s.lam, s.Delta, s.Q0, s.mean)
_AUXILIARY = sp.symbols("scale shrink", nonnegative=True)


@lru_cache(maxsize=16)
def _functions(ctx: MPContext) -> tuple[Any, Any, Any]:
    form = direct_solution()
    scale, shrink = _AUXILIARY
    return (
        compile_function("scale", _PARAMETERS, {"scale": form.scale}, "mpmath", ctx),
        compile_function("shrink", (*_PARAMETERS, scale), {"shrink": form.shrink}, "mpmath", ctx),
        compile_function("outputs", (*_PARAMETERS, scale, shrink), form.outputs, "mpmath", ctx),
    )


def best_penalty(problem: Problem) -> sp.Expr:
    """The penalty of least risk, exactly."""
    return direct_solution().best_lam.subs({s.Delta: problem.noise, s.Q0: problem.target.Q0})


def solve_direct(problem: Problem, digits: int) -> Solution:
    """Evaluate the closed form with guard digits; ``error_estimate`` is the change between two.

    Raises
    ------
    NotConverged
        At lam = 0 on the interpolation threshold alpha = 1/2, where the risk diverges.
    """
    coarse, fine = (_values(problem, digits + guard) for guard in (20, 35))
    finite = [k for k in fine if abs(fine[k]) != float("inf")]
    error = max(float(abs(fine[k] - coarse[k]) / magnitude(fine, k)) for k in finite)
    residual = float(abs(fine["A"] * (1 + 4 * fine["V"]) - 4 * evaluate(problem.alpha, context(30))))
    if fine["A"] == 0:
        residual = 0.0
    phase = "interpolating" if fine["A"] == 0 else "regular"
    if problem.lam == 0 and phase == "regular":
        phase = "unpenalised"
    values = fine if digits > 15 else {k: float(v) for k, v in fine.items()}
    return Solution(problem, values, residual, max(error, 0.0 if digits > 15 else 2e-16), digits, phase)


def _values(problem: Problem, digits: int) -> dict[str, Any]:
    ctx = context(digits)
    law = mp_law(problem.target, ctx)
    numbers = [evaluate(v, ctx) for v in (problem.alpha, problem.lam, problem.noise)]
    parameters = (*numbers, law.Q0, law.mean)
    scale_of, shrink_of, outputs_of = _functions(ctx)
    (scale,) = scale_of(*parameters)
    (shrink,) = shrink_of(*parameters, scale)
    if 2 * numbers[0] == shrink**2:
        raise NotConverged(
            problem, float("inf"), "the risk diverges at this alpha; move off alpha = 1/2"
        )
    interpolating = scale == 0
    names = direct_solution().outputs
    found = dict(
        zip(
            names,
            outputs_of(*parameters, scale if not interpolating else ctx.mpf(1), shrink),
            strict=True,
        )
    )
    if interpolating:
        found |= {"V": ctx.inf, "A": ctx.mpf(0), "M": ctx.mpf(0), "C": ctx.mpf(0)}
    # Nothing is cut: S = shrink (S0 + tau G).
    return found | {"theta": ctx.mpf(0), "psi": ctx.mpf(1), "rank_fraction": ctx.mpf(1)}
