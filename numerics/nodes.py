"""Nodes and weights for Gaussian averages of the softmax channel.

At T = 2 with noise inside the average has four dimensions: a lattice in a ball converges
exponentially, as the trapezoid rule does for analytic integrands. Otherwise scrambled Sobol points.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

__all__ = ["Geometry", "Nodes", "gauss_hermite", "lattice", "pooled", "sobol"]

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Geometry:
    """Second moments of the fields: u0 = sqrt(Q) z0, omega = (m/sqrt(Q)) z0 + b z, and V."""

    Q: float
    m: float
    b: float
    V: float


@dataclass(frozen=True)
class Nodes:
    """Standard normal nodes, weights summing to one.

    Attributes
    ----------
    z0, z : array, shape (L_eff, N)
        Directions of the target's field and of the student's own part.
    xi : array, shape (T^2, N) or (0, N)
        Label noise, where it enters outside the softmax.
    weights : array, shape (N,)
        Weights.
    """

    z0: Array
    z: Array
    xi: Array
    weights: Array


def lattice(step: float, radius: float) -> Nodes:
    """The lattice D4 of spacing ``step`` in a ball, for T = 2 with noise inside.

    D4 (integer points with an even sum) resolves what the cubic lattice of the same step does with
    half the points. Two symmetries fold it by four: exchanging the tokens flips (z0[0], z[0]), and
    with h -> -h, P -> 1 - P it flips (z0[1], z[1]).
    """
    most = int(radius / step)
    axis = np.arange(-most, most + 1)
    half = np.arange(most + 1)
    pairs = np.array([(i, j) for i, j in product(half, axis) if i > 0 or j >= 0])
    folds = np.where((pairs == 0).all(1), 1, 2)
    first, second = (m.ravel() for m in np.meshgrid(*2 * [np.arange(len(pairs))], indexing="ij"))
    points = np.stack([pairs[first, 0], pairs[second, 0], pairs[first, 1], pairs[second, 1]])
    squares = (points**2).sum(0) * step**2
    kept = (points.sum(0) % 2 == 0) & (squares <= radius**2)
    weights = (folds[first] * folds[second])[kept] * np.exp(-squares[kept] / 2)
    z = points[:, kept] * step
    return Nodes(z[:2], z[2:], np.empty((0, z.shape[1])), weights / weights.sum())


def sobol(exponent: int, directions: int, labels: int, seed: int) -> Nodes:
    """2^exponent scrambled Sobol points; another seed is another randomisation of the same rule."""
    size = 2 * directions + labels
    uniform = qmc.Sobol(size, seed=np.random.default_rng(seed)).random_base2(exponent)
    z = ndtri(np.clip(uniform, 1e-15, 1 - 1e-15)).T
    weights = np.full(z.shape[1], 2.0**-exponent)
    return Nodes(z[:directions], z[directions : 2 * directions], z[2 * directions :], weights)


def pooled(parts: list[Nodes]) -> Nodes:
    """Several rules as one, with equal shares."""
    z0, z, xi = (np.concatenate([getattr(p, n) for p in parts], axis=-1) for n in ("z0", "z", "xi"))
    return Nodes(z0, z, xi, np.concatenate([part.weights for part in parts]) / len(parts))


def gauss_hermite(order: int, directions: int) -> Nodes:
    """Product Gauss-Hermite rule without label noise; a check on the other two."""
    x, w = np.polynomial.hermite_e.hermegauss(order)
    grids = np.meshgrid(*2 * directions * [x], indexing="ij")
    weights = np.ones(grids[0].size)
    for grid in np.meshgrid(*2 * directions * [w], indexing="ij"):
        weights = weights * grid.ravel()
    z = np.stack([grid.ravel() for grid in grids])
    kept = weights > 1e-18 * weights.max()
    z, weights = z[:, kept], weights[kept]
    return Nodes(z[:directions], z[directions:], np.empty((0, z.shape[1])), weights / weights.sum())
