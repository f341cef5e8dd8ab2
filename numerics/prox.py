"""The proximal operator of the softmax loss, vectorised over samples (float64).

min over v of V loss(K v; y) + |v - omega|^2/2, not convex: damped Newton from several starts, the lowest
minimum wins. Gradient and Hessian of a row are generated from `derive.softmax`; K is its reduced basis.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive.generate import compile_function
from derive.softmax import beta as beta_symbol
from derive.softmax import explicit_row, reduced_basis

__all__ = ["Minima", "SoftmaxRows"]

Array = NDArray[np.float64]

_BLOCK = 8192  # samples at a time: what fits a core's cache
_STEPS = 60
_CONVERGED = 1e-11  # Newton step below which a sample is done
_SAME = 1e-4  # minimisers closer than this (in standard deviations of u) are one


@dataclass(frozen=True)
class Minima:
    """Global minima found for N samples.

    Attributes
    ----------
    shift : array, shape (L_eff, N)
        u* - omega in the reduced coordinates.
    loss : array, shape (N,)
        Loss at the minimum.
    jump_distance : array, shape (N,)
        First-order distance in omega to where another minimum that was found takes over; infinite
        where there is no other.
    """

    shift: Array
    loss: Array
    jump_distance: Array


@lru_cache(maxsize=8)
def _compiled(tokens: int) -> tuple[Any, Any, Any]:
    row = explicit_row(tokens)
    softmax = compile_function(
        "softmax",
        (*row.fields, beta_symbol),
        {f"P{i}": p for i, p in enumerate(row.probabilities, 1)},
        "numpy",
        np,
    )
    arguments = (*row.symbols, *row.labels, beta_symbol)
    upper = [(i, j) for i in range(tokens) for j in range(i, tokens)]
    gradient = {f"g{i}": g for i, g in enumerate(row.gradient)}
    curvature = {f"H{i}{j}": row.hessian[i][j] for i, j in upper}
    curvature |= {f"G{i}{j}": row.gauss_newton[i][j] for i, j in upper}
    loss = compile_function("loss", arguments, {"loss": row.loss}, "numpy", np)
    slopes = compile_function("slopes", arguments, gradient | curvature, "numpy", np)
    return softmax, loss, slopes


class SoftmaxRows:
    """All rows of the attention matrix in reduced coordinates v, h = K v."""

    def __init__(self, tokens: int, beta: float) -> None:
        self.tokens, self.beta = tokens, beta
        self.basis: Array = np.array(reduced_basis(tokens), dtype=float)
        self.size = self.basis.shape[1]
        self._softmax, self._loss, self._slopes = _compiled(tokens)
        self._upper = [(i, j) for i in range(self.size) for j in range(i, self.size)]
        self._square_map = self._curvature_map()
        centring = np.eye(tokens) - 1 / tokens
        self._centred = np.kron(np.eye(tokens), centring) @ self.basis
        self._back: Array = np.linalg.pinv(self._centred)

    def _curvature_map(self) -> Array:
        """Matrix from the rows' second derivatives in h (upper triangles) to those in v."""
        t = self.tokens
        columns = []
        for first in range(t):
            K = self.basis[first * t : (first + 1) * t]
            for i in range(t):
                for j in range(i, t):
                    outer = np.outer(K[i], K[j])
                    symmetric = outer if i == j else outer + outer.T
                    columns.append([symmetric[p, r] for p, r in self._upper])
        return np.array(columns).T

    def probabilities(self, v: Array, beta: float | None = None) -> Array:
        """Attention matrices, shape (T, T, N): [b, a] is the weight of token b in row a."""
        h = (self.basis @ v).reshape(self.tokens, self.tokens, -1).transpose(1, 0, 2)
        # A weight below 1e-308 is zero: exp of a large difference overflows to infinity on purpose.
        with np.errstate(over="ignore"):
            return np.stack(self._softmax(*h, self.beta if beta is None else beta))

    def loss(self, P: Array, y: Array) -> Array:
        """Sum over rows of sum_b (P_b - y_b)^2, shape (N,)."""
        return np.asarray(self._loss(*P, *y, self.beta)[0].sum(0))

    def slopes(self, P: Array, y: Array) -> tuple[Array, Array, Array]:
        """Gradient (L_eff, N), Hessian and its Gauss-Newton part (upper triangles) of the loss in v."""
        t, n = self.tokens, P.shape[-1]
        found = np.stack(np.broadcast_arrays(*self._slopes(*P, *y, self.beta)))
        gradient = self.basis.T @ found[:t].transpose(1, 0, 2).reshape(t * t, n)
        half = (found.shape[0] - t) // 2
        full, gauss = (
            self._square_map @ part.transpose(1, 0, 2).reshape(t * half, n)
            for part in (found[t : t + half], found[t + half :])
        )
        return gradient, full, gauss

    def preimage(self, y: Array) -> Array:
        """Reduced v whose attention matrix comes near the labels y (clipped into (0, 1))."""
        logs = np.log(np.clip(y, 1e-3, None)) / self.beta
        rows = logs.transpose(1, 0, 2).reshape(self.tokens**2, -1)
        return np.asarray(self._back @ rows)

    # --- minimisation -------------------------------------------------------------------------

    def minimise(self, omega: Array, y: Array, V: float, label: Array) -> Minima:
        """Global minima of V loss + |v - omega|^2/2.

        Parameters
        ----------
        omega : array, shape (L_eff, N)
            Student's mean field.
        y : array, shape (T, T, N)
            Labels, as `probabilities` orders them.
        label : array, shape (L_eff, N)
            A point near which the loss is small: the second start besides omega.
        """
        parts = [
            self._block(omega[:, i : i + _BLOCK], y[..., i : i + _BLOCK], V, label[:, i : i + _BLOCK])
            for i in range(0, omega.shape[1], _BLOCK)
        ]
        return Minima(*(np.concatenate(found, axis=-1) for found in zip(*parts, strict=True)))

    def _block(self, omega: Array, y: Array, V: float, label: Array) -> tuple[Array, Array, Array]:
        near, value = self.descend(np.zeros_like(omega), omega, y, V)
        far, other = self.descend(label - omega, omega, y, V)
        candidates, values = [near, far], [value, other]
        twofold = np.flatnonzero(np.abs(near - far).max(0) > _SAME)
        if twofold.size:
            at, labels = omega[:, twofold], y[..., twofold]
            for start in self._mixed(at + near[:, twofold], at + far[:, twofold]):
                shift, found = near.copy(), value.copy()
                shift[:, twofold], found[twofold] = self.descend(start - at, at, labels, V)
                candidates.append(shift)
                values.append(found)
        return self._lowest(np.stack(candidates), np.stack(values), omega, y, V)

    def _mixed(self, near: Array, far: Array) -> list[Array]:
        """Starts that take some rows from one minimum and the others from another."""
        t = self.tokens
        rows = [(self._centred @ v).reshape(t, t, -1) for v in (near, far)]
        starts = []
        for choice in product((0, 1), repeat=t):
            if 0 < sum(choice) < t:
                mixed = np.stack([rows[pick][a] for a, pick in enumerate(choice)])
                starts.append(self._back @ mixed.reshape(t * t, -1))
        return starts

    def _lowest(
        self, shifts: Array, values: Array, omega: Array, y: Array, V: float
    ) -> tuple[Array, Array, Array]:
        samples = np.arange(values.shape[1])
        best = values.argmin(0)
        shift = shifts[best, :, samples].T
        # Where two minima tie, one moves at the speed of the difference of their shifts.
        apart = np.sqrt(((shifts - shift) ** 2).sum(1))
        gap = values - values[best, samples]
        distance = np.where(apart > _SAME, gap / np.maximum(apart, _SAME), np.inf).min(0)
        loss = self.loss(self.probabilities(omega + shift), y)
        return shift, loss, distance

    def descend(self, shift: Array, omega: Array, y: Array, V: float) -> tuple[Array, Array]:
        """Damped Newton from omega + shift; returns local minimisers (shifts) and their values.

        A step uses the full Hessian where that descends, else the Gauss-Newton one, and Levenberg
        damping that grows as long as a step fails.
        """
        shift = shift.copy()
        result = np.empty(shift.shape[1])
        active = np.arange(shift.shape[1])
        damping = np.zeros(shift.shape[1])
        P = self.probabilities(omega + shift)
        result[:] = V * self.loss(P, y) + (shift**2).sum(0) / 2
        for _ in range(_STEPS):
            here, labels, centre = shift[:, active], y[..., active], omega[:, active]
            step = self._step(here, P, labels, V, damping)
            trial = here + step
            Q = self.probabilities(centre + trial)
            value = V * self.loss(Q, labels) + (trial**2).sum(0) / 2
            old = result[active]
            good = value <= old + 1e-15 * np.abs(old)
            shift[:, active[good]] = trial[:, good]
            result[active[good]] = value[good]
            size = np.abs(step).max(0)
            damping = np.where(good, np.where(damping > 1e-3, damping / 8, 0), np.maximum(8 * damping, 0.1))
            keep = (size > _CONVERGED * (1 + np.abs(trial).max(0))) & (damping < 1e12)
            if not keep.any():
                break
            P = np.where(good, Q, P)[..., keep]
            active, damping = active[keep], damping[keep]
        return shift, result

    def _step(self, shift: Array, P: Array, y: Array, V: float, damping: Array) -> Array:
        gradient, full, gauss = self.slopes(P, y)
        g = V * gradient + shift
        step = _solve(V * full, g, damping, self._upper)
        uphill = ~((step * g).sum(0) < 0)
        if self.size == 2:
            # The minimiser of an indefinite quadratic form is not wanted even where it descends.
            a, c, d = 1 + V * full
            uphill |= (a <= 0) | (a * d <= (V * full[1]) ** 2) | (c != c)
        if uphill.any():
            step[:, uphill] = _solve(V * gauss[:, uphill], g[:, uphill], damping[uphill], self._upper)
        return step


def _solve(upper: Array, g: Array, damping: Array, indices: list[tuple[int, int]]) -> Array:
    """-(1 + damping + H)^{-1} g for every sample; H by its upper triangle."""
    size = g.shape[0]
    if size == 2:
        a, b, d = upper[0] + 1 + damping, upper[1], upper[2] + 1 + damping
        determinant = a * d - b * b
        determinant = np.where(determinant == 0, 1e-300, determinant)
        return np.stack([b * g[1] - d * g[0], b * g[0] - a * g[1]]) / determinant
    H = np.empty((g.shape[1], size, size))
    for (i, j), entry in zip(indices, upper, strict=True):
        H[:, i, j] = H[:, j, i] = entry
    H[:, np.arange(size), np.arange(size)] += 1 + damping[:, None]
    return -np.asarray(np.linalg.solve(H, g.T[..., None])[..., 0]).T
