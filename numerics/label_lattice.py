"""Lattice over (label, omega) for T = 2 with noise outside: four dimensions in place of six.

The minimiser depends on the label y and on omega only. What is averaged over at fixed (y, omega), the
target's field u0, has Gaussian weights that factorise over its two components, but for the label's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numerics.nodes import Geometry
from numerics.prox import SoftmaxRows

__all__ = ["LabelLattice", "label_lattice"]

Array = NDArray[np.floating[Any]]

_REACH = 6.7  # standard deviations
_FIELD_STEP = 0.75  # of the narrowest Gaussian in u0: the trapezoid rule is exact to 1e-15
_NEGLIGIBLE = 1e-13
_MOST_CELLS, _MOST_NODES = 1e9, 1.5e6


@dataclass(frozen=True)
class LabelLattice:
    """Points (y, omega) kept fixed, while their weights follow the second moments of the fields.

    Attributes
    ----------
    first, second : array, shape (Y,)
        Coordinates of the labels: (r_1 + r_2)/sqrt(2) and (r_1 - r_2)/sqrt(2) with r_a the first entry
        of row a less 1/2.
    omega : array, shape (W,)
        Axis of both components of omega.
    kept : array of int, shape (N,)
        Places in (Y, W, W) of the points that carry weight.
    folds : array, shape (Y,)
        How many points one stands for: the symmetries that `numerics.nodes.lattice` uses flip (first,
        omega[0]) and (second, omega[1]).
    """

    first: Array
    second: Array
    omega: Array
    kept: NDArray[np.intp]
    folds: Array

    def labels(self) -> Array:
        """Labels at the points, shape (2, 2, N)."""
        place = self.kept // self.omega.size**2
        r = np.stack([self.first + self.second, self.first - self.second])[:, place] / 2**0.5
        return np.stack([0.5 + r, 0.5 - r])

    def fields(self) -> Array:
        """Omega at the points, shape (2, N)."""
        side = self.omega.size
        return np.stack([self.omega[self.kept // side % side], self.omega[self.kept % side]])

    def weights(
        self, rows: SoftmaxRows, at: Geometry, beta0: float, noise: float
    ) -> tuple[Array, Array]:
        """Weights (N,), summing to one, and the mean of u0/sqrt(Q) given (y, omega), shape (2, N)."""
        cells = _cells(rows, (self.first, self.second), self.omega, self.folds, at, beta0, noise)
        total, mean = np.empty(self.kept.size), np.empty((2, self.kept.size))
        size = self.omega.size**2
        ends = np.searchsorted(self.kept, size * np.arange(self.first.size + 1))
        for label, found in enumerate(cells):
            part = slice(ends[label], ends[label + 1])
            own = self.kept[part] - label * size
            total[part] = found[0].ravel()[own]
            for i in range(2):
                mean[i, part] = found[1 + i].ravel()[own]
        mean /= total
        return total / total.sum(), mean


def label_lattice(
    rows: SoftmaxRows, at: Geometry, beta0: float, noise: float, step: float
) -> LabelLattice | None:
    """The lattice of ``step`` standard deviations of what smooths the weights; None if it is too large.

    Points with an even sum of indices are kept, as in `numerics.nodes.lattice`.
    """
    spread, slope = (noise / 2) ** 0.5, _slope(rows, beta0)
    ratio = at.m / at.Q
    # Given omega the field u0 still moves the label; given the label it still moves omega.
    blurred_label = (spread**2 + slope**2 / (1 / at.Q + (ratio / at.b) ** 2)) ** 0.5
    blurred_omega = (at.b**2 + ratio**2 / (1 / at.Q + (slope / spread) ** 2)) ** 0.5
    label_step, omega_step = step * blurred_label, step * blurred_omega
    q = at.m * ratio + at.b**2
    halves = int((0.5**0.5 + _REACH * spread) / label_step), int(_REACH * q**0.5 / omega_step)
    axis, omega = np.arange(halves[0] + 1), np.arange(-halves[1], halves[1] + 1)
    i, j = (m.ravel() for m in np.meshgrid(axis, axis, indexing="ij"))
    if i.size * omega.size**2 > _MOST_CELLS:
        return None
    folds = np.where(i > 0, 2.0, 1.0) * np.where(j > 0, 2.0, 1.0)
    first, second, along = i * label_step, j * label_step, omega * omega_step
    even = (omega[:, None] + omega[None, :]) % 2 == 0
    kept, top = [], 0.0
    for label, found in enumerate(_cells(rows, (first, second), along, folds, at, beta0, noise)):
        top = max(top, found[0].max())
        odd = (i[label] + j[label]) % 2 == 1
        place = np.flatnonzero((even ^ odd) & (found[0] > _NEGLIGIBLE * top))
        kept.append(place + label * along.size**2)
        if sum(map(len, kept)) > _MOST_NODES:
            return None
    return LabelLattice(first, second, along, np.concatenate(kept), folds)


def _slope(rows: SoftmaxRows, beta0: float) -> float:
    """Largest derivative of a label's coordinate in u0, which is at u0 = 0."""
    flat = rows.probabilities(np.zeros((2, 1)), beta0)
    axes = np.array([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5
    slopes = [rows.pull_back(flat, np.stack([axis, 0 * axis])[..., None]) for axis in axes]
    return float(np.max(np.abs(slopes))) * beta0 / rows.beta


def _cells(
    rows: SoftmaxRows,
    labels: tuple[Array, Array],
    omega: Array,
    folds: Array,
    at: Geometry,
    beta0: float,
    noise: float,
) -> Iterator[Array]:
    """For each label, the weight on (omega, omega) and its first moments in u0/sqrt(Q)."""
    variance, ratio = noise / 2, at.m / at.Q
    narrow = (1 / at.Q + _slope(rows, beta0) ** 2 / variance + (ratio / at.b) ** 2) ** -0.5
    half = int(_REACH * at.Q**0.5 / (_FIELD_STEP * narrow)) + 1
    u = _FIELD_STEP * narrow * np.arange(-half, half + 1)
    density = np.exp(-(u**2) / (2 * at.Q))
    grid = np.stack([m.ravel() for m in np.meshgrid(u, u, indexing="ij")])
    r = rows.probabilities(grid, beta0)[0] - 0.5
    first, second = ((r[0] + r[1]) / 2**0.5, (r[0] - r[1]) / 2**0.5)
    plain = np.exp(-((omega - ratio * u[:, None]) ** 2) / (2 * at.b**2)) * density[:, None]
    tilted = plain * (u / at.Q**0.5)[:, None]
    side = u.size
    for one, two, fold in zip(*labels, folds, strict=True):
        kernel = np.exp(-((one - first) ** 2 + (two - second) ** 2) / (2 * variance)) * fold
        kernel = kernel.reshape(side, side)
        right = kernel @ plain
        yield np.stack([plain.T @ right, tilted.T @ right, plain.T @ (kernel @ tilted)])
