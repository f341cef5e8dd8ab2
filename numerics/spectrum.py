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

__all__ = ["Band", "Spectrum", "learned_spectrum", "without_outliers"]


@dataclass(frozen=True)
class Band:
    """An interval of eigenvalues of S.

    Attributes
    ----------
    low, high : float, or mpf after `numerics.sharpen`
        Its edges.
    x, density : array, shape (N,)
        Points, dense at the edges, and the density there (per unit of eigenvalue, total mass one).
    mass : float
        Share of the eigenvalues in it, by the sum rule.
    error : float
        By how much the density misses that mass when it is integrated.
    """

    low: Any
    high: Any
    x: NDArray[np.float64]
    density: NDArray[np.float64]
    mass: float
    error: float


@dataclass(frozen=True)
class Spectrum:
    """Law of the eigenvalues of S, or of the singular values that `numerics.views` makes of it."""

    atom: float
    bands: tuple[Band, ...]
    outliers: tuple[Outlier, ...]

    def to_dict(self, digits: int = 15) -> dict[str, Any]:
        """Plain numbers, for JSON; edges and outliers as strings beyond 15 digits."""
        bands = [
            {
                "low": _printed(b.low, digits),
                "high": _printed(b.high, digits),
                "mass": b.mass,
                "error": b.error,
                "x": b.x.tolist(),
                "density": b.density.tolist(),
            }
            for b in self.bands
        ]
        outliers = [{k: _printed(v, digits) for k, v in vars(o).items()} for o in self.outliers]
        return {"atom": self.atom, "bands": bands, "outliers": outliers}


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
    if here.rho == 0:
        return Spectrum(1.0, (), ())
    if here.tau == 0:
        return _without_noise(here, points)
    nu, outliers = without_outliers(solution, here)
    cut = here.cut(nu, len(outliers) / (solution.problem.d or 1))
    bands = tuple(_band(nu, max(low, cut), high, here, points) for low, high in nu.bands() if high > cut)
    atom = 0.0 if cut == -np.inf else 1 - float(solution.values["rank_fraction"])
    return Spectrum(atom, bands, outliers)


def _without_noise(here: Learned, points: int) -> Spectrum:
    """The law of rho S0; its atoms are bands of no width."""
    law, bands = here.law, []
    if isinstance(law, ClosedLaw):
        low, high = (float(edge) for edge in law.support[-1])
        x, weights = band_nodes(low, high, points)
        density = -law.stieltjes(x + 0j)[0].imag / np.pi
        atom = max(0.0, 1 - float(law.kappa0))
        error = abs(float(weights @ density) - (1 - atom))
        scaled = here.rho * x, density / here.rho
        return Spectrum(atom, (Band(here.rho * low, here.rho * high, *scaled, 1 - atom, error),), ())
    for value, weight in zip(here.rho * law.values, law.weights, strict=True):
        if value > 0:
            bands.append(Band(float(value), float(value), np.empty(0), np.empty(0), float(weight), 0.0))
    return Spectrum(1.0 - sum(band.mass for band in bands), tuple(bands), ())


def without_outliers(solution: Solution, here: Learned) -> tuple[FreeConvolution, tuple[Outlier, ...]]:
    """The law of the bands, and the modes that stand outside them."""
    outliers: tuple[Outlier, ...] = ()
    law: ClosedLaw | AtomicLaw = here.law
    if has_modes(solution):
        outliers, law = here.outliers(solution.problem.d or 1)
    return FreeConvolution(law, here.tau**2), outliers


def _printed(value: Any, digits: int) -> Any:
    """A number as it is, an mpf as a string of so many digits."""
    return str(value.context.nstr(value, digits)) if hasattr(value, "context") else value


def _band(nu: FreeConvolution, low: float, high: float, here: Learned, points: int) -> Band:
    x, weights = band_nodes(low, high, points)
    density = nu.density(x)
    mass = nu.mass_above(nu.preimage(low)) - nu.mass_above(nu.preimage(high))
    error = abs(float(weights @ density) - mass)
    bottom, top = (here.rho * (edge - here.theta) for edge in (low, high))
    return Band(bottom, top, here.rho * (x - here.theta), density / here.rho, mass, error)
