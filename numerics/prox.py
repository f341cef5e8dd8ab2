"""The proximal operator of the softmax loss, vectorised over samples (float64).

min over v of V loss(K v; y) + |v - omega|^2/2, not convex: damped Newton from several starts, the lowest
minimum wins. Gradient and Hessian of a row are generated from `derive.softmax`; K is its reduced basis.
"""

from collections.abc import Iterable
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

Array = NDArray[np.floating[Any]]

_BLOCK = 8192  # samples at a time: what fits a core's cache
_STEPS = 60
_QUADRATIC, _LINEAR = 1e-8, 1e-14  # relative steps after which nothing is left to gain
_ROUNDING, _TINY = 1e-10, 1e-30
_SAME = 1e-4  # minimisers closer than this are one


@dataclass(frozen=True)
class Minima:
    """Global minima found for N samples, and the runners-up for K of them.

    Attributes
    ----------
    shift : array, shape (L_eff, N)
        u* - omega in the reduced coordinates.
    twofold : array of int, shape (K,)
        Samples for which a second minimum was found.
    rival : array, shape (L_eff, K)
        Its shift.
    gap : array, shape (K,)
        By how much V times the objective is higher there.
    """

    shift: Array
    twofold: NDArray[np.intp]
    rival: Array
    gap: Array


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

    def trace(self, upper: Array) -> Array:
        """Trace of matrices given by their upper triangles."""
        return np.asarray(upper[[i for i, (p, r) in enumerate(self._upper) if p == r]].sum(0))

    def pull_back(self, P: Array, cotangent: Array) -> Array:
        """Derivative in v of sum(cotangent * P), shape (L_eff, N): the softmax's Jacobian transposed."""
        t, n = self.tokens, P.shape[-1]
        in_h = self.beta * P * (cotangent - (P * cotangent).sum(0))
        return np.asarray(self.basis.T @ in_h.transpose(1, 0, 2).reshape(t * t, n))

    def preimage(self, y: Array) -> Array:
        """Reduced v whose attention matrix comes near the labels y (clipped into (0, 1))."""
        logs = np.log(np.clip(y, 1e-3, None)) / self.beta
        rows = logs.transpose(1, 0, 2).reshape(self.tokens**2, -1)
        return np.asarray(self._back @ rows)

    def response(self, v: Array, y: Array, V: float) -> Array:
        """Derivatives of f = (u* - omega)/V in omega at u* = v, shape (N, L_eff, L_eff).

        -H (1 + V H)^-1, with H the Hessian of the loss: u* moves by (1 + V H)^-1 where it does not jump.
        """
        _, full, _ = self.slopes(self.probabilities(v), y)
        H = _square(full, self._upper, self.size)
        inverse = np.linalg.inv(np.eye(self.size) + V * H)
        return np.asarray(-H @ inverse)

    # --- minimisation -------------------------------------------------------------------------

    def minimise(self, omega: Array, y: Array, V: float, label: Array, near: Minima | None) -> Minima:
        """Global minima of V loss + |v - omega|^2/2.

        Parameters
        ----------
        omega : array, shape (L_eff, N)
            Student's mean field.
        y : array, shape (T, T, N)
            Labels, as `probabilities` orders them.
        label : array, shape (L_eff, N)
            A point near which the loss is small: the second start besides omega.
        near : Minima or None
            Minima of a neighbouring problem on the same samples to start from instead; no minima but
            those that continue them are then looked for.
        """
        if near is not None:
            return self._follow(omega, y, V, near)
        return self._join(
            self._block(omega[:, part], y[..., part], V, label[:, part]) for part in _blocks(omega)
        )

    def _follow(self, omega: Array, y: Array, V: float, near: Minima) -> Minima:
        shift, value = self._descend_all(near.shift, omega, y, V)
        at = near.twofold
        rival, other = self._descend_all(near.rival, omega[:, at], y[..., at], V)
        swap = other < value[at]
        shift[:, at], rival = np.where(swap, rival, shift[:, at]), np.where(swap, shift[:, at], rival)
        gap = np.abs(other - value[at])
        apart = np.abs(rival - shift[:, at]).max(0) > _SAME
        return Minima(shift, at[apart], rival[:, apart], gap[apart])

    def _descend_all(self, start: Array, omega: Array, y: Array, V: float) -> tuple[Array, Array]:
        shift, value = np.empty_like(omega), np.empty(omega.shape[1])
        for part in _blocks(omega):
            shift[:, part], value[part] = self.descend(start[:, part], omega[:, part], y[..., part], V)
        return shift, value

    @staticmethod
    def _join(parts: Iterable[Minima]) -> Minima:
        found = list(parts)
        offsets = np.cumsum([0, *(part.shift.shape[1] for part in found)])
        twofold = [part.twofold + start for part, start in zip(found, offsets, strict=False)]
        return Minima(
            np.concatenate([part.shift for part in found], axis=1),
            np.concatenate(twofold),
            np.concatenate([part.rival for part in found], axis=1),
            np.concatenate([part.gap for part in found]),
        )

    def _block(self, omega: Array, y: Array, V: float, label: Array) -> Minima:
        near, value = self.descend(np.zeros_like(omega), omega, y, V)
        far, other = self.descend(label - omega, omega, y, V)
        at = np.flatnonzero(np.abs(near - far).max(0) > _SAME)
        candidates, values = [near[:, at], far[:, at]], [value[at], other[at]]
        centre, labels = omega[:, at], y[..., at]
        if at.size:
            for start in self._mixed(centre + near[:, at], centre + far[:, at]):
                shift, found = self.descend(start - centre, centre, labels, V)
                candidates.append(shift)
                values.append(found)
        best, rival, gap = _lowest_two(np.stack(candidates), np.stack(values))
        near[:, at] = best
        return Minima(near, at, rival, gap)

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

    def descend(self, start: Array, omega: Array, y: Array, V: float) -> tuple[Array, Array]:
        """Damped Newton from omega + start; returns local minimisers (shifts) and their values.

        A step uses the full Hessian where that descends, else the Gauss-Newton one, and Levenberg
        damping that grows as long as a step fails.
        """
        shift, result = start.copy(), np.empty(start.shape[1])
        active, damping = np.arange(start.shape[1]), np.zeros(start.shape[1])
        P = self.probabilities(omega + shift)
        result[:] = V * self.loss(P, y) + (shift**2).sum(0) / 2
        for _ in range(_STEPS):
            here, labels, centre = shift[:, active], y[..., active], omega[:, active]
            step, newton = self._step(here, P, labels, V, damping)
            trial = here + step
            Q = self.probabilities(centre + trial)
            value = V * self.loss(Q, labels) + (trial**2).sum(0) / 2
            good = value <= result[active] * (1 + _ROUNDING)
            shift[:, active[good]] = trial[:, good]
            result[active[good]] = value[good]
            size = np.abs(step).max(0) / (np.abs(trial).max(0) + _TINY)
            # The error after an undamped Newton step is of the order of its square.
            done = good & (size < np.where(newton & (damping == 0), _QUADRATIC, _LINEAR))
            shrunk = np.where(damping > 1e-3, damping / 8, 0)
            damping = np.where(good, shrunk, np.maximum(8 * damping, 0.1))
            keep = ~done & (damping < 1e12)
            if not keep.any():
                break
            P = np.where(good, Q, P)[..., keep]
            active, damping = active[keep], damping[keep]
        return shift, result

    def _step(
        self, shift: Array, P: Array, y: Array, V: float, damping: Array
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Step, and where it is a Newton step."""
        gradient, full, gauss = self.slopes(P, y)
        g = V * gradient + shift
        step = _solve(V * full, g, damping, self._upper)
        newton = (step * g).sum(0) < 0
        if self.size == 2:
            # The stationary point of an indefinite quadratic form is not wanted even downhill.
            a, d = 1 + V * full[0], 1 + V * full[2]
            newton &= (a > 0) & (a * d > (V * full[1]) ** 2)
        other = ~newton
        if other.any():
            step[:, other] = _solve(V * gauss[:, other], g[:, other], damping[other], self._upper)
        return step, newton


def _blocks(omega: Array) -> list[slice]:
    return [slice(i, i + _BLOCK) for i in range(0, omega.shape[1], _BLOCK)]


def _lowest_two(shifts: Array, values: Array) -> tuple[Array, Array, Array]:
    """Lowest candidate, the lowest that is another minimum, and their gap; shifts (candidates, L, K)."""
    samples = np.arange(values.shape[1])
    first = values.argmin(0)
    best = shifts[first, :, samples].T
    apart = np.abs(shifts - best).max(1) > _SAME
    others = np.where(apart, values, np.inf)
    second = others.argmin(0)
    return best, shifts[second, :, samples].T, others[second, samples] - values[first, samples]


def _solve(upper: Array, g: Array, damping: Array, indices: list[tuple[int, int]]) -> Array:
    """-(1 + damping + H)^{-1} g for every sample; H by its upper triangle."""
    size = g.shape[0]
    if size == 2:
        a, b, d = upper[0] + 1 + damping, upper[1], upper[2] + 1 + damping
        determinant = a * d - b * b
        determinant = np.where(determinant == 0, 1e-300, determinant)
        return np.stack([b * g[1] - d * g[0], b * g[0] - a * g[1]]) / determinant
    H = _square(upper, indices, size)
    H[:, np.arange(size), np.arange(size)] += 1 + damping[:, None]
    return -np.asarray(np.linalg.solve(H, g.T[..., None])[..., 0]).T


def _square(upper: Array, indices: list[tuple[int, int]], size: int) -> Array:
    """Symmetric matrices, shape (N, size, size), from their upper triangles."""
    H = np.empty((upper.shape[1], size, size))
    for (i, j), entry in zip(indices, upper, strict=True):
        H[:, i, j] = H[:, j, i] = entry
    return H
