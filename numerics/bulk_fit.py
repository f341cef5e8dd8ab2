"""Fit of the single-head theory to measured eigenvalues: noise bulk and outliers (THEORY.md section 4).

S = rho (S0 + tau G - theta)_+ with few modes in S0: all but the outliers are the top of a semicircle,
a (x - t) with a = rho tau and t = theta/tau. A student of width p keeps the p largest. An outlier lies
above the edge by more than the edge of a matrix of that size fluctuates.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive import symbols as s
from derive.exact import ProblemError
from derive.generate import compile_function
from derive.modes import mode, recovered_strength, strength
from derive.thresholds import bulk_moment, phi
from numerics.convolution import FreeConvolution
from numerics.laws import AtomicLaw

__all__ = ["BulkFit", "FittedOutlier", "fit_bulk"]

Array = NDArray[np.float64]

_FINE = 20_001
_KOLMOGOROV = 1.36  # 5 % point of sqrt(N) D
# 1 % point of the Tracy-Widom law of the GOE (Tracy and Widom 1996): the largest eigenvalue of tau G is
# 2 tau + tau d^(-2/3) times a variable with that law.
_TRACY_WIDOM = 2.0234
_FEWEST = 8  # values that a bulk needs


@dataclass(frozen=True)
class FittedOutlier:
    """An eigenvalue above the bulk.

    ``strength`` is that of the mode s in units of tau, ``overlap`` the squared overlap of its
    eigenvector with the target's that theory gives it.
    """

    value: float
    strength: float
    overlap: float


@dataclass(frozen=True)
class BulkFit:
    """The fitted law.

    Attributes
    ----------
    scale, shift : float
        a and t; t < 0 means that the values are shifted up rather than shrunk.
    share : float
        Part of the semicircle's mass that is kept.
    outliers : tuple of FittedOutlier
    distance, accepted : float, bool
        Kolmogorov-Smirnov distance of the others from the bulk, and whether it is below its 5 % point
        1.36/sqrt(N): conservative, as a and t are fitted.
    """

    scale: float
    shift: float
    share: float
    outliers: tuple[FittedOutlier, ...]
    distance: float
    accepted: bool

    @property
    def edge(self) -> float:
        """Upper edge of the bulk."""
        return self.scale * (2 - self.shift)

    @property
    def floor(self) -> float:
        """Where the width cuts the bulk."""
        return float(self.scale * (_quantiles(np.array([self.share]))[0] - self.shift))

    def density(self, values: Array) -> Array:
        """Density of the bulk, of total mass one."""
        x = values / self.scale + self.shift
        return np.where(values >= self.floor, _unit_bulk().density(x), 0.0) / (self.share * self.scale)


def fit_bulk(values: Array, dimension: int) -> BulkFit:
    """Fit with the fewest outliers that leave no other value above the edge.

    Parameters
    ----------
    values : array, shape (N,)
        Nonzero eigenvalues (or singular values) of one matrix.
    dimension : int
        Its size d, N <= d.

    Returns
    -------
    BulkFit
        With at most N/2 outliers; where more would be needed, or the rest does not look like a bulk, it
        is not ``accepted``.

    Raises
    ------
    ProblemError
        Fewer than eight values, or all the same.
    """
    ordered = np.sort(np.asarray(values, dtype=float))[::-1]
    if ordered.size < _FEWEST or not ordered[0] > ordered[-1]:
        raise ProblemError(f"a bulk is fitted to at least {_FEWEST} values that differ")
    most = min(ordered.size // 2, ordered.size - _FEWEST)
    slack = _TRACY_WIDOM * dimension ** (-2 / 3)
    for k in range(most + 1):
        scale, shift = _line(ordered[k:], dimension)
        if ordered[k] <= scale * (2 - shift + slack):
            break
    rest = ordered[k:]
    share = rest.size / dimension
    above = _mass(np.clip(rest / scale + shift, -2, 2)) / share
    steps = np.arange(rest.size + 1) / rest.size
    distance = float(max(np.max(np.abs(steps[1:] - above)), np.max(np.abs(above - steps[:-1]))))
    outliers = tuple(_outlier(float(v), scale, shift) for v in ordered[:k] if v > scale * (2 - shift))
    settled = rest[0] <= scale * (2 - shift + slack)
    accepted = bool(settled and distance < _KOLMOGOROV / rest.size**0.5)
    return BulkFit(scale, shift, share, outliers, distance, accepted)


def _line(rest: Array, dimension: int) -> tuple[float, float]:
    """a and t by least squares of the values against the quantiles of the top of the semicircle."""
    expected = _quantiles((np.arange(rest.size) + 0.5) / dimension)
    scale, offset = np.polyfit(expected, rest, 1)
    return float(scale), float(-offset / scale)


def _outlier(value: float, scale: float, shift: float) -> FittedOutlier:
    found, overlap = _mode_of_position()(value / scale + shift, 1.0)
    return FittedOutlier(value, float(found), float(overlap))


# --- the unit semicircle --------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _mode_of_position() -> Any:
    own = recovered_strength()
    outputs = {"strength": own, "overlap": mode().overlap.subs(strength, own)}
    return compile_function("outlier", (s.x, s.tau2), outputs, "numpy", np)


@lru_cache(maxsize=1)
def _unit_bulk() -> FreeConvolution:
    return FreeConvolution(AtomicLaw(np.zeros(1), np.ones(1)), 1.0)


@lru_cache(maxsize=1)
def _table() -> tuple[Array, Array]:
    """Mass above 2 cos(phi) on a fine grid of phi."""
    grid = np.linspace(0, np.pi, _FINE)
    mass = compile_function("mass", (phi,), {"mass": bulk_moment(1, 0, 1)}, "numpy", np)
    return grid, mass(grid)[0]


def _mass(x: Array) -> Array:
    """Share of the semicircle above x in [-2, 2]."""
    return np.interp(np.arccos(x / 2), *_table())


def _quantiles(mass: Array) -> Array:
    """Points with so much of the semicircle above them."""
    grid, above = _table()
    return 2 * np.cos(np.interp(mass, above, grid))
