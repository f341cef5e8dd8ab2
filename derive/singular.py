"""Singular values of the trained W from the eigenvalues of S (THEORY.md sections 1 and 4)."""

from functools import cache

import sympy as sp

from derive import symbols as s

__all__ = ["d", "eigenvalue_slope", "p", "singular", "weight_singular_value"]

p, d, singular = sp.symbols("p d sigma", positive=True)


def _eigenvalue() -> sp.Expr:
    """Of S = W W'/sqrt(p d) at the singular value sigma of W."""
    return singular**2 / sp.sqrt(p * d)


@cache
def weight_singular_value() -> sp.Expr:
    """The singular value of W in R^(d x p) that belongs to the eigenvalue x of S."""
    x = sp.Symbol("x", positive=True)
    return sp.solve(_eigenvalue() - x, singular)[0].subs(x, s.x)


def eigenvalue_slope() -> sp.Expr:
    """dx/dsigma, by which a density in x becomes one in sigma."""
    return sp.diff(_eigenvalue(), singular)
