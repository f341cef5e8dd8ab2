"""The spectrum of the learned S: atom at zero, bands, outliers (THEORY.md section 4)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numerics.convolution import FreeConvolution
from numerics.laws import AtomicLaw, ClosedLaw
from numerics.learned import Learned, Outlier, has_modes, learned
from numerics.overlaps import band_nodes
from numerics.solution import Solution

__all__ = ["Band", "Spectrum", "learned_spectrum"]


@dataclass(frozen=True)
class Band:
    """An interval of eigenvalues of S.

    Attributes
    ----------
    low, high : float
        Its edges.
    x, density : array, shape (N,)
        Points, dense at the edges, and the density there (per unit of eigenvalue, total mass one).
    mass : float
        Share of the eigenvalues in it, by the sum rule.
    error : float
        By how much the density misses that mass when it is integrated.
    """

    low: float
    high: float
    x: NDArray[np.float64]
    density: NDArray[np.float64]
    mass: float
    error: float


@dataclass(frozen=True)
class Spectrum:
    """Law of the eigenvalues of S."""

    atom: float
    bands: tuple[Band, ...]
    outliers: tuple[Outlier, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        bands = [
            {
                "low": b.low,
                "high": b.high,
                "mass": b.mass,
                "error": b.error,
                "x": b.x.tolist(),
                "density": b.density.tolist(),
            }
            for b in self.bands
        ]
        return {"atom": self.atom, "bands": bands, "outliers": [vars(o) for o in self.outliers]}


def learned_spectrum(solution: Solution, points: int = 200) -> Spectrum:
    """Spectrum of S at a solution.

    Parameters
    ----------
    points : int
        Points on each band.

    Notes
    -----
    Modes of a power law have the weight 1/d. Those above the BBP transition are reported one by one; the
    band is that of all others.
    """
    here = learned(solution)
    if here.nothing:
        return Spectrum(1 - float(solution.values["rank_fraction"]), (), ())
    outliers: tuple[Outlier, ...] = ()
    law: ClosedLaw | AtomicLaw = here.law
    d = solution.problem.d or 1
    if has_modes(solution):
        outliers, law = here.outliers(d)
    nu = FreeConvolution(law, here.tau**2)
    cut = here.cut(nu, len(outliers) / d)
    bands = tuple(_band(nu, max(low, cut), high, here, points) for low, high in nu.bands() if high > cut)
    atom = 0.0 if cut == -np.inf else 1 - float(solution.values["rank_fraction"])
    return Spectrum(atom, bands, outliers)


def _band(nu: FreeConvolution, low: float, high: float, here: Learned, points: int) -> Band:
    x, weights = band_nodes(low, high, points)
    density = nu.density(x)
    mass = nu.mass_above(nu.preimage(low)) - nu.mass_above(nu.preimage(high))
    error = abs(float(weights @ density) - mass)
    bottom, top = (here.rho * (edge - here.theta) for edge in (low, high))
    return Band(bottom, top, here.rho * (x - here.theta), density / here.rho, mass, error)
