"""Target laws as numbers: the Stieltjes transform G0 and, at high precision, its primitives.

One class for each way in which G0 is known: in closed form (Marchenko-Pastur) or as a sum over atoms
(atoms, power law). All formulas are generated from `derive.spectra`.
"""

import cmath
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import sympy as sp
from mpmath.ctx_mp import MPContext
from numpy.typing import NDArray

from derive.edges import atom_curvature, marchenko_pastur_curvature
from derive.exact import ProblemError
from derive.generate import compile_function
from derive.modes import strength
from derive.spectra import (
    LAW_PRIMITIVES,
    atom_primitive,
    g,
    law_symbol,
    marchenko_pastur_inverse,
    marchenko_pastur_primitive,
    marchenko_pastur_stieltjes,
    w,
)
from derive.targets import Atoms, MarchenkoPastur, PowerLaw, Target
from numerics.precision import context, evaluate
from numerics.tail import MERGED_ABOVE, merged_indices

__all__ = ["AtomicLaw", "ClosedLaw", "Law", "float_law", "mp_law", "target_atoms"]

_KAPPA0 = sp.Symbol("kappa0", positive=True)
_MAX_MP_ATOMS = 4000
_BLOCK = 4_000_000  # complex numbers held at once


class Law(Protocol):
    """Law of the eigenvalues of S0, in an mpmath context.

    Attributes
    ----------
    mean, Q0 : number
        First two moments.
    support : array, shape (k, 2)
        Its intervals in increasing order; an atom is an interval of length zero.
    """

    ctx: MPContext
    mean: Any
    Q0: Any
    support: Any

    def stieltjes(self, point: Any) -> tuple[Any, Any]:
        """G0 and its derivative."""

    def curvature(self, point: Any) -> Any:
        """Second derivative of G0 at one point."""

    def primitives(self, point: Any, transform: Any) -> Any:
        """``Int w^a G0^b dw`` at one point, in the order of `derive.spectra.LAW_PRIMITIVES`."""


@lru_cache(maxsize=8)
def _atom_curvature(backend: str, namespace: Any) -> Any:
    return compile_function("curvature", (w, strength), {"share": atom_curvature()}, backend, namespace)


class ClosedLaw:
    """The Marchenko-Pastur target, whose G0 solves a quadratic.

    Parameters
    ----------
    kappa0 : number of the backend
    namespace : numpy module or MPContext
    backend : {"numpy", "mpmath"}
    """

    def __init__(self, kappa0: Any, namespace: Any, backend: str) -> None:
        self.kappa0 = kappa0
        root = namespace.sqrt(kappa0)
        self.mean, self.Q0 = root, 1 + kappa0
        low, high = (root - 1) ** 2 / root, (root + 1) ** 2 / root
        self.support = [(low, high)] if kappa0 >= 1 else [(0 * root, 0 * root), (low, high)]
        self.ctx = None if backend == "numpy" else namespace
        primitives = {
            str(law_symbol(*ab)): marchenko_pastur_primitive(*ab, _KAPPA0) for ab in LAW_PRIMITIVES
        }
        # One point at a time is ten times faster in the standard library than in NumPy.
        self._primitives = compile_function(
            "primitives", (g, _KAPPA0), primitives, backend, self.ctx or cmath
        )
        self._forms, self._slope = self._transforms(backend, namespace)
        self._scalar = self._transforms(backend, cmath) if backend == "numpy" else None
        curvature = {"curvature": marchenko_pastur_curvature(_KAPPA0)}
        self._curvature = compile_function(
            "curvature", (g, _KAPPA0), curvature, backend, self.ctx or cmath
        )

    @staticmethod
    def _transforms(backend: str, namespace: Any) -> tuple[Any, Any]:
        difference, quotient = marchenko_pastur_stieltjes(_KAPPA0)
        forms = {"difference": difference, "quotient": quotient, "denominator": 2 / quotient}
        slope = {"slope": 1 / sp.diff(marchenko_pastur_inverse(_KAPPA0), g)}
        return (
            compile_function("stieltjes", (w, _KAPPA0), forms, backend, namespace),
            compile_function("slope", (g, _KAPPA0), slope, backend, namespace),
        )

    def stieltjes(self, point: Any) -> tuple[Any, Any]:
        """G0 and its derivative, from the form that does not cancel."""
        if isinstance(point, np.ndarray):
            difference, quotient, plus = self._forms(point, self.kappa0)
            minus = 2 * point * difference / self.mean
            value = np.where(np.abs(plus) >= np.abs(minus), quotient, difference)
            return value, self._slope(value, self.kappa0)[0]
        forms, slope = self._scalar or (self._forms, self._slope)
        difference, quotient, plus = forms(point, self.kappa0)
        minus = 2 * point * difference / self.mean
        value = quotient if abs(plus) >= abs(minus) else difference
        return value, slope(value, self.kappa0)[0]

    def curvature(self, point: Any) -> Any:
        """Second derivative of G0 at one point."""
        return self._curvature(self.stieltjes(point)[0], self.kappa0)[0]

    def log_potential(self, point: complex, transform: complex) -> complex:
        """Int G0 dw in float64, real right of the support."""
        # The image of the upper half plane is the lower one, its boundary included.
        below = complex(transform.real, min(transform.imag, -1e-300))
        return complex(self._primitives(below, self.kappa0)[LAW_PRIMITIVES.index((0, 1))])

    def primitives(self, point: Any, transform: Any) -> Any:
        """See `Law.primitives`; functions of G0 alone."""
        return self._primitives(transform, self.kappa0)


class AtomicLaw:
    """Finitely many atoms, in float64."""

    def __init__(self, values: NDArray[np.float64], weights: NDArray[np.float64]) -> None:
        order = np.argsort(values)
        self.values, self.weights = values[order], weights[order]
        self.mean = float(self.weights @ self.values)
        self.Q0 = float(self.weights @ self.values**2)
        self.support = [(v, v) for v in self.values]

    def stieltjes(self, point: Any) -> tuple[Any, Any]:
        """G0 and its derivative."""
        points = np.asarray(point, dtype=complex)
        # Blocks bound the memory when there are many atoms.
        blocks = np.array_split(points.ravel(), 1 + points.size * self.values.size // _BLOCK)
        transforms, slopes = zip(*map(self._block, blocks), strict=True)
        return np.concatenate(transforms).reshape(points.shape), np.concatenate(slopes).reshape(
            points.shape
        )

    def _block(self, points: NDArray[np.complex128]) -> tuple[Any, Any]:
        inverse = 1 / (points[:, None] - self.values)
        return inverse @ self.weights, -(inverse**2) @ self.weights

    def excess(self, points: Any) -> tuple[Any, Any]:
        """G0 - 1/w, by which the law differs from one atom at zero, and its derivative."""
        blocks = np.array_split(points, 1 + points.size * self.values.size // _BLOCK)
        values, slopes = zip(*map(self._excess_block, blocks), strict=True)
        return np.concatenate(values), np.concatenate(slopes)

    def _excess_block(self, points: NDArray[np.complex128]) -> tuple[Any, Any]:
        inverse = 1 / (points[:, None] - self.values)
        first = self.weights * self.values
        value = inverse @ first / points
        # 1/(w - s) - 1/w = s/(w (w - s)); its derivative is -(value + s/(w - s)^2)/w.
        return value, -(value + inverse**2 @ first) / points

    def curvature(self, point: Any) -> Any:
        """Second derivative of G0 at one point."""
        return self.weights @ _atom_curvature("numpy", np)(point, self.values)[0]

    def log_potential(self, point: complex, transform: complex) -> complex:
        """Int G0 dw, real right of the support."""
        return complex(np.log(point - self.values) @ self.weights)


class MPAtomicLaw:
    """Finitely many atoms in an mpmath context."""

    def __init__(self, values: Sequence[Any], weights: Sequence[Any], ctx: MPContext) -> None:
        if len(values) > _MAX_MP_ATOMS:
            raise ProblemError(
                f"more than {_MAX_MP_ATOMS} distinct eigenvalues are solved in float64 only"
            )
        self.ctx = ctx
        self.pairs = sorted(zip(values, weights, strict=True))
        self.mean = ctx.fdot((weight, v) for v, weight in self.pairs)
        self.Q0 = ctx.fdot((weight, v**2) for v, weight in self.pairs)
        self.support = [(v, v) for v, _ in self.pairs]
        self._others = [self._regular_part(i) for i in range(len(self.pairs))]
        names = sp.symbols("s weight first second")
        self._share = compile_function(
            "atom",
            (w, *names),
            {str(law_symbol(*ab)): atom_primitive(*ab) for ab in LAW_PRIMITIVES},
            "mpmath",
            ctx,
        )

    def _regular_part(self, i: int) -> tuple[Any, Any]:
        """Value and slope at atom i of the transform of the other atoms."""
        here = self.pairs[i][0]
        shares = [(weight, 1 / (here - v)) for j, (v, weight) in enumerate(self.pairs) if j != i]
        first = self.ctx.fsum(weight * inverse for weight, inverse in shares)
        return first, -self.ctx.fsum(weight * inverse * inverse for weight, inverse in shares)

    def stieltjes(self, point: Any) -> tuple[Any, Any]:
        """G0 and its derivative."""
        shares = [(weight, 1 / (point - v)) for v, weight in self.pairs]
        value = self.ctx.fsum(weight * inverse for weight, inverse in shares)
        return value, -self.ctx.fsum(weight * inverse * inverse for weight, inverse in shares)

    def curvature(self, point: Any) -> Any:
        """Second derivative of G0 at one point."""
        share = _atom_curvature("mpmath", self.ctx)
        return self.ctx.fsum(weight * share(point, v)[0] for v, weight in self.pairs)

    def primitives(self, point: Any, transform: Any) -> Any:
        """See `Law.primitives`; sums over the atoms."""
        shares = [
            self._share(point, v, weight, *others)
            for (v, weight), others in zip(self.pairs, self._others, strict=True)
        ]
        return [self.ctx.fsum(column) for column in zip(*shares, strict=True)]


def target_atoms(target: Atoms | PowerLaw, ctx: MPContext) -> tuple[list[Any], list[Any]]:
    """Eigenvalues and weights of a discrete target at the precision of ``ctx``."""
    if isinstance(target, Atoms):
        return [evaluate(v, ctx) for v in target.values], [evaluate(p, ctx) for p in target.weights]
    index = sp.Symbol("i", positive=True)
    profile = compile_function("mode", (index,), {"mode": target.profile(index)}, "mpmath", ctx)
    raw = [profile(ctx.mpf(i))[0] for i in range(1, target.modes + 1)]
    scale = ctx.sqrt(target.d / ctx.fsum(v * v for v in raw))
    values = [scale * v for v in raw]
    weights = [ctx.mpf(1) / target.d] * len(values)
    if target.modes < target.d:
        values.append(ctx.mpf(0))
        weights.append(ctx.mpf(target.d - target.modes) / target.d)
    return values, weights


def _merged_law(target: PowerLaw, fine: bool) -> "AtomicLaw":
    """A long power law with the modes of its tail merged (`numerics.tail`)."""
    indices, counts = merged_indices(target.modes, fine)
    index = sp.Symbol("i", positive=True)
    raw = compile_function("mode", (index,), {"mode": target.profile(index)}, "numpy", np)(indices)[0]
    values = raw * float(np.sqrt(target.d / (counts @ raw**2)))
    weights = counts / target.d
    if target.modes < target.d:
        rest = (target.d - target.modes) / target.d
        values, weights = np.append(values, 0.0), np.append(weights, rest)
    return AtomicLaw(values, weights)


@lru_cache(maxsize=64)
def float_law(target: Target, fine: bool = False) -> ClosedLaw | AtomicLaw:
    """The target in float64.

    Parameters
    ----------
    fine : bool
        Merge the tail of a long power law less, as a check; other targets know no difference.
    """
    ctx = context(20)
    if isinstance(target, MarchenkoPastur):
        return ClosedLaw(float(evaluate(target.kappa0, ctx)), np, "numpy")
    if isinstance(target, PowerLaw) and target.modes > MERGED_ABOVE:
        return _merged_law(target, fine)
    values, weights = target_atoms(target, ctx)
    return AtomicLaw(np.array(values, dtype=float), np.array(weights, dtype=float))


def mp_law(target: Target, ctx: MPContext) -> ClosedLaw | MPAtomicLaw:
    """The target at the precision of ``ctx``."""
    if isinstance(target, MarchenkoPastur):
        return ClosedLaw(evaluate(target.kappa0, ctx), ctx, "mpmath")
    values, weights = target_atoms(target, ctx)
    return MPAtomicLaw(values, weights, ctx)
