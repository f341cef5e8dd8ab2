"""Local mpmath contexts: precision is set on one object and never leaks into another."""

import sympy as sp
from mpmath.ctx_mp import MPContext

from derive.exact import ProblemError

__all__ = ["MAX_DIGITS", "check_digits", "context", "evaluate"]

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
