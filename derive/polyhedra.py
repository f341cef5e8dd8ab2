"""Exact geometry of regions that are stated by linear inequalities, in rational arithmetic."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import sympy as sp

__all__ = ["Form", "evaluate_form", "interior_point", "rational_form"]

# Coefficients of the variables, then the constant.
Form = tuple[Fraction, ...]


def rational_form(expression: sp.Expr, variables: Sequence[sp.Symbol]) -> Form:
    """Coefficients of a linear form with rational entries.

    Raises
    ------
    ValueError
        Not linear in the variables, or a symbol is left.
    """
    rest = sp.expand(expression)
    found = []
    for variable in variables:
        coefficient = rest.coeff(variable)
        rest = sp.expand(rest - coefficient * variable)
        found.append(coefficient)
    if not all(c.is_Rational for c in (*found, rest)):
        raise ValueError(f"not a rational linear form: {expression}")
    return tuple(Fraction(int(c.p), int(c.q)) for c in (*found, rest))


def evaluate_form(form: Form, point: Sequence[Any]) -> Fraction:
    """Value of a form at a point."""
    return sum((c * x for c, x in zip(form[:-1], point, strict=True)), form[-1])


def interior_point(forms: Sequence[Form]) -> tuple[Fraction, ...] | None:
    """A point where all forms are positive, or None if there is none (Fourier-Motzkin)."""
    if not forms:
        return None
    size = len(forms[0]) - 1
    if not size:
        return () if all(form[0] > 0 for form in forms) else None
    # Scaled to +1, -1 or 0 in the last variable.
    scaled = {tuple(x / abs(f[-2]) for x in f) if f[-2] else f for f in forms}
    lower, upper = ([f for f in scaled if f[-2] * sign > 0] for sign in (1, -1))
    rest = [(*f[:-2], f[-1]) for f in scaled if not f[-2]]
    rest += [
        tuple(x + y for x, y in zip((*f[:-2], f[-1]), (*g[:-2], g[-1]), strict=True))
        for f in lower
        for g in upper
    ]
    # No condition left on the other variables: any value does.
    before = interior_point(rest) if rest else (Fraction(0),) * (size - 1)
    if before is None:
        return None
    lows = [-evaluate_form((*f[:-2], f[-1]), before) for f in lower]
    highs = [evaluate_form((*f[:-2], f[-1]), before) for f in upper]
    return (*before, _between(lows, highs))


def _between(lows: list[Fraction], highs: list[Fraction]) -> Fraction:
    if lows and highs:
        return (max(lows) + min(highs)) / 2
    if lows:
        return max(lows) + 1
    return min(highs) - 1 if highs else Fraction(0)
