"""Reading user input as exact numbers: ``3/2``, ``0.1`` and ``1e-3`` are rationals."""

from fractions import Fraction

import sympy as sp

__all__ = ["ProblemError", "exact"]


class ProblemError(ValueError):
    """Input that does not state a problem of the theory; the message is one sentence."""


def exact(value: "sp.Expr | Fraction | int | float | str", name: str = "value") -> sp.Expr:
    """Read a number exactly.

    Parameters
    ----------
    value : sympy.Expr, Fraction, int, float or str
        ``"3/2"``, ``"0.1"`` and ``"1e-3"`` are read as rationals; a float is read by its shortest
        decimal form, so ``0.1`` is 1/10. SymPy expressions pass unless they hold a Float.
    name : str
        What the number is called in an error message.

    Raises
    ------
    ProblemError
        Not a finite number, or an expression that is contaminated by a Float.
    """
    if isinstance(value, sp.Basic):
        if value.has(sp.Float) or value.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
            raise ProblemError(f"{name} must be an exact finite expression, not {value}")
        return sp.sympify(value)
    text = str(value).strip()
    try:
        # 1e999999999 would be a number of a thousand million digits.
        exponent = text.lower().partition("e")[2]
        if len(text) > 10_000 or (exponent and abs(int(exponent)) > 5_000):
            raise ValueError
        fraction = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ProblemError(
            f"{name} must be a finite number such as 3/2, 0.1 or 1e-3, not {text[:40]!r}"
        ) from None
    return sp.Rational(fraction.numerator, fraction.denominator)
