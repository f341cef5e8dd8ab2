"""Edges of the law of S0 + tau G, and where two of them meet (THEORY.md section 4).

z(w) = w + tau2 G0(w) maps a gap of the target onto a gap of the spectrum while it increases there. An
edge is therefore the image of a critical point, dz/dw = 0, and two bands touch where two critical points
meet, d^2z/dw^2 = 0.
"""

from functools import cache

import sympy as sp

from derive import symbols as s
from derive.modes import strength
from derive.spectra import g, marchenko_pastur_inverse, w

__all__ = [
    "atom_curvature",
    "edge_polynomial",
    "edge_slope",
    "marchenko_pastur_curvature",
    "marchenko_pastur_splitting",
    "splitting_width",
    "subordination",
]

_G0 = sp.Function("G0")
_SLOPE = sp.Symbol("G0_slope", real=True)


def subordination() -> sp.Expr:
    """z(w), with G0(w) the Stieltjes transform of the target."""
    return w + s.tau2 * _G0(w)


def edge_slope() -> sp.Expr:
    """dz/dw; its zeros are the preimages of the edges."""
    return sp.diff(subordination(), w)


@cache
def splitting_width() -> sp.Expr:
    """The tau2 at which two bands touch, in the slope of G0 where its curvature vanishes.

    d^2z/dw^2 = tau2 G0'' does so whatever tau2 is; dz/dw = 0 there gives tau2.
    """
    slope = edge_slope().subs(sp.diff(_G0(w), w), _SLOPE)
    return sp.solve(slope, s.tau2)[0]


def atom_curvature() -> sp.Expr:
    """Share of one atom in G0'', per unit of its weight."""
    return sp.diff(1 / (w - strength), w, 2)


@cache
def marchenko_pastur_curvature(kappa0: sp.Expr) -> sp.Expr:
    """G0'' of the Marchenko-Pastur target as a function of g = G0, by differentiating w(g) twice."""
    inverse = marchenko_pastur_inverse(kappa0)
    slope = 1 / sp.diff(inverse, g)
    return sp.diff(slope, g) * slope


@cache
def marchenko_pastur_splitting(kappa0: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """(tau2, g) at which the signal band of a Marchenko-Pastur target leaves the noise, kappa0 < 1.

    G0'' = 0 is one cubic in g, w''(g) = 0; with kappa0 = t^6 = c^3 its real root is rational in t.
    """
    t, c = sp.symbols("t c", positive=True)
    inverse = marchenko_pastur_inverse(t**6)
    cubic = sp.factor(sp.numer(sp.together(sp.diff(inverse, g, 2))))
    root = next(root for root in sp.roots(sp.Poly(cubic, g)) if not root.has(sp.I))
    tau2 = sp.factor(splitting_width().subs(_SLOPE, 1 / sp.diff(inverse, g)).subs(g, root))
    in_c = (sp.factor(sp.expand(sp.cancel(e).subs(t, sp.sqrt(c)))) for e in (tau2, root))
    return tuple(e.subs(c, sp.cbrt(kappa0)) for e in in_c)


@cache
def edge_polynomial(kappa0: sp.Expr) -> sp.Expr:
    """Discriminant in g of the cubic z = w(g) + tau2 g; the edges in z are among its real roots."""
    z = s.x
    cubic = sp.numer(sp.together(z - s.tau2 * g - marchenko_pastur_inverse(kappa0)))
    found = sp.Poly(sp.expand(sp.discriminant(sp.Poly(cubic, g))), z)
    return sp.Add(*(sp.factor(c) * z**power for (power,), c in found.terms()))
