"""Singular values of W and of the query-key map, from the eigenvalues of S (THEORY.md section 4)."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from mpmath.ctx_mp import MPContext

from derive import symbols as s
from derive.exact import ProblemError
from derive.generate import compile_function
from derive.singular import d, eigenvalue_slope, p, singular, weight_singular_value
from numerics.learned import learned
from numerics.overlaps import band_nodes
from numerics.solution import Solution
from numerics.spectrum import Band, Spectrum, without_outliers

__all__ = ["quantity", "view"]

_VIEWS = {
    "S": "eigenvalue of S",
    "weights": "singular value of W",
    "map": "singular value of the query-key map S",
}


def quantity(of: str, solution: Solution) -> str:
    """What is on the axis of a `view`."""
    return _VIEWS[of] + (" / sqrt(d)" if of == "weights" and solution.problem.d is None else "")


def view(found: Spectrum, solution: Solution, of: str) -> Spectrum:
    """The same spectrum as singular values.

    Parameters
    ----------
    found : Spectrum
        `numerics.spectrum.learned_spectrum` of the solution, sharpened or not.
    of : {"S", "weights", "map"}
        Eigenvalues of S; singular values of W, in units of sqrt(d) where the problem has no d (masses
        stay shares of d); those of S, the tied query-key map: its eigenvalues, folded at zero where
        direct training makes some negative.

    Raises
    ------
    ProblemError
        An unknown view, or W of direct training, which has none.
    """
    if of not in _VIEWS:
        raise ProblemError(f"unknown spectrum {of!r}: choose from {', '.join(_VIEWS)}")
    direct = solution.problem.penalty == "frobenius"
    if of == "weights":
        if direct:
            raise ProblemError("direct training (frobenius) learns S itself: there is no W")
        return _weights(found, solution)
    noisy = not learned(solution).nothing  # without noise no eigenvalue is negative
    return _folded(found, solution) if of == "map" and direct and noisy else found


def _singular_value(ctx: MPContext | None) -> Any:
    backend = "numpy" if ctx is None else "mpmath"
    value = {"singular": weight_singular_value()}
    return compile_function("singular", (s.x, p, d), value, backend, ctx or np)


def _weights(found: Spectrum, solution: Solution) -> Spectrum:
    size = solution.problem.d or 1
    width = solution.problem.width or size
    slope = compile_function("slope", (singular, p, d), {"slope": eigenvalue_slope()}, "numpy", np)

    def of(x: Any) -> Any:
        ctx = getattr(x, "context", None)  # an mpf keeps its digits
        return _singular_value(ctx)(x, *(ctx.mpf(n) if ctx else n for n in (width, size)))[0]

    def band(b: Band) -> Band:
        x = of(b.x)
        density = b.density * slope(x, width, size)[0]
        return replace(b, low=of(b.low), high=of(b.high), x=x, density=density)

    outliers = tuple(replace(o, eigenvalue=of(o.eigenvalue)) for o in found.outliers)
    return Spectrum(found.atom, tuple(map(band, found.bands)), outliers)


def _folded(found: Spectrum, solution: Solution) -> Spectrum:
    """Law of the absolute eigenvalue: one piece between any two folded edges."""
    if not found.bands:
        return found
    here = learned(solution)
    nu, _ = without_outliers(solution, here)
    edges = [edge for b in found.bands for edge in (b.low, b.high)]
    zero = {0 * edges[0]} if min(edges) < 0 < max(edges) else set()
    breaks = sorted({abs(edge) for edge in edges} | zero)
    points = max(b.x.size for b in found.bands)

    def above(y: float) -> float:
        return nu.mass_above(nu.preimage(y / here.rho))

    pieces = []
    for ends in pairwise(breaks):
        low, high = map(float, ends)
        x, weights = band_nodes(low, high, points)
        density = (nu.density(x / here.rho) + nu.density(-x / here.rho)) / here.rho
        mass = above(low) - above(high) + above(-high) - above(-low)
        if mass > _NO_MASS:
            pieces.append(Band(*ends, x, density, mass, abs(float(weights @ density) - mass)))
    return Spectrum(found.atom, tuple(pieces), found.outliers)


_NO_MASS = 1e-12
