"""Local mpmath contexts: precision is set on one object and never leaks into another."""

from collections.abc import Callable
from typing import Any

import sympy as sp
from mpmath.ctx_mp import MPContext

from derive.exact import ProblemError

__all__ = ["MAX_DIGITS", "check_digits", "context", "evaluate", "polish"]

MAX_DIGITS = 5000


def check_digits(digits: int) -> int:
    """Refuse a number of digits that makes no sense.

    Raises
    ------
    ProblemError
        Fewer than 1 digit or more than `MAX_DIGITS`.
    """
    if not 1 <= digits <= MAX_DIGITS:
        raise ProblemError(f"digits must lie in 1..{MAX_DIGITS}, not {digits}")
    return digits


def context(digits: int) -> MPContext:
    """A fresh context with so many decimal digits."""
    ctx = MPContext()
    ctx.dps = digits
    return ctx


def evaluate(expression: sp.Expr, ctx: MPContext) -> "MPContext.mpf":
    """An exact number at the precision of ``ctx``."""
    expression = sp.sympify(expression)
    if expression.is_Rational:
        return ctx.mpf(int(expression.p)) / int(expression.q)
    # A few guard digits absorb the rounding of the last conversion.
    return ctx.mpf(str(sp.N(expression, ctx.dps + 5)))


def polish(function: Callable[[Any], Any], near: float, unit: Any, ctx: MPContext) -> Any:
    """The root of a function next to a float64 one, by secants.

    Iterations end once a step is below half the digits: the last secant then has all of them, while one
    more would be drawn through two values that differ by rounding alone, and leap away.

    Parameters
    ----------
    unit : number
        Scale of the argument; ``near`` is good to far less than one.

    Raises
    ------
    ValueError
        The iteration did not settle.
    """
    start, scale = ctx.mpf(near), ctx.mpf(unit)
    steps = (ctx.mpf(0), ctx.mpf(10) ** -10)
    tolerance = ctx.mpf(10) ** (-ctx.dps / 2)
    return start + scale * ctx.findroot(lambda t: function(start + scale * t), steps, tol=tolerance)
