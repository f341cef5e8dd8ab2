"""The spectrum of the learned S: atom at zero, bands with their density, outliers.

S = rho (S0 + tau G - theta)_+ with rho = M/A (nuclear penalty), rho (S0 + tau G) with rho = m/Q0
(Frobenius), eigenvalue by eigenvalue (THEORY.md sections 4 and 6).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive.targets import PowerLaw
from numerics.convolution import FreeConvolution
from numerics.laws import AtomicLaw, float_law
from numerics.modes import mode_values
from numerics.solution import Solution

__all__ = ["Band", "Outlier", "Spectrum", "learned_spectrum"]


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
class Outlier:
    """A target mode that has left the noise and passed the cut.

    ``overlap`` is the squared overlap of its eigenvector with the target's; ``minimum`` the eigenvalue
    s overlap at which its share of the error would be least.
    """

    k: int
    strength: float
    eigenvalue: float
    overlap: float
    minimum: float


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
    values = {k: float(solution.values[k]) for k in ("tau", "theta", "A", "M", "m", "rank_fraction")}
    if solution.phase == "collapsed" or values["tau"] == 0:
        return Spectrum(1 - values["rank_fraction"], (), ())
    law = float_law(solution.problem.target)
    nuclear = solution.problem.penalty == "nuclear"
    ratio = values["M"] / values["A"] if nuclear and values["A"] else 1.0
    rho = ratio if nuclear else values["m"] / law.Q0
    outliers: tuple[Outlier, ...] = ()
    if isinstance(solution.problem.target, PowerLaw) and isinstance(law, AtomicLaw):
        most = solution.problem.width or solution.problem.target.d
        cut_at = values["theta"] if nuclear else 0.0
        outliers, law = _outliers(law, values["tau"], cut_at, rho, most)
    nu = FreeConvolution(law, values["tau"] ** 2)
    theta, cut = 0.0, -np.inf
    if nuclear:
        spent = len(outliers) / (solution.problem.d or 1)
        theta = values["theta"]
        cut = _cut(nu, theta, float(solution.problem.rank_cap) - spent)
    bands = tuple(
        _band(nu, max(low, cut), high, theta, rho, points) for low, high in nu.bands() if high > cut
    )
    atom = 1 - values["rank_fraction"] if nuclear else 0.0
    return Spectrum(atom, bands, outliers)


def _cut(nu: FreeConvolution, theta: float, cap: float) -> float:
    """Where the band is cut: at theta, or higher where the width left for it is spent before."""
    if nu.mass_above(nu.preimage(theta)) <= cap:
        return theta
    return max(theta, nu.image(nu.quantile(cap))) if cap > 0 else np.inf


def _outliers(
    law: AtomicLaw, tau: float, theta: float, rho: float, most: int
) -> tuple[tuple[Outlier, ...], AtomicLaw]:
    """Recovered modes, and the law of the others; merged nodes of a tail stay with the band."""
    single = np.isclose(law.weights, law.weights.min())
    found: list[Outlier] = []
    kept = np.ones(law.values.size, dtype=bool)
    for k, index in enumerate(np.argsort(law.values)[::-1], 1):
        own = float(law.values[index])
        if own <= tau or not single[index]:
            break
        position, overlap = mode_values(own, tau)[:2]
        kept[index] = False
        if position > theta and len(found) < most:
            found.append(Outlier(k, own, rho * (position - theta), overlap, own * overlap))
    rest = AtomicLaw(law.values[kept], law.weights[kept])
    return tuple(found), rest


def _band(nu: FreeConvolution, low: float, high: float, theta: float, rho: float, points: int) -> Band:
    # x = low + half (1 - cos(phi)) takes the square roots at the edges away.
    nodes, weights = np.polynomial.legendre.leggauss(points)
    phi, half = np.pi * (nodes + 1) / 2, (high - low) / 2
    x = low + half * (1 - np.cos(phi))
    density = nu.density(x)
    integral = float((weights * density * np.sin(phi)).sum() * half * np.pi / 2)
    mass = nu.mass_above(nu.preimage(low)) - nu.mass_above(nu.preimage(high))
    own = (rho * (low - theta), rho * (high - theta), rho * (x - theta), density / rho)
    return Band(*own, mass, abs(integral - mass))
