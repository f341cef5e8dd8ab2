"""What the eigenvectors in a part of the spectrum learn and see, integrated (`derive.overlaps`)."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive.generate import compile_function
from derive.overlaps import seen_target
from derive.spectra import g, w
from numerics.convolution import FreeConvolution

__all__ = ["band_integrals", "band_nodes"]

Array = NDArray[np.float64]

_ORDERS = (32, 64, 128, 256, 512, 1024, 2048)
_SETTLED = 1e-13


@lru_cache(maxsize=8)
def _gauss(order: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(order)


def band_nodes(low: float, high: float, order: int) -> tuple[Array, Array]:
    """Gauss nodes and weights on an interval at whose ends a density may vanish like a square root.

    x = low + (high - low)(1 - cos(phi))/2 takes the square roots away.
    """
    nodes, weights = _gauss(order)
    phi, half = np.pi * (nodes + 1) / 2, (high - low) / 2
    return low + half * (1 - np.cos(phi)), weights * np.sin(phi) * half * np.pi / 2


@lru_cache(maxsize=1)
def _seen() -> Any:
    return compile_function("seen", (w, g), {"seen": seen_target()}, "numpy", np)


def band_integrals(nu: FreeConvolution, low: float, high: float, theta: float) -> tuple[Array, float]:
    """Integrals of 1, F^2, F y, y^2 over part of one band; how far half the nodes are off."""
    before, change = np.full(4, np.inf), np.inf
    for order in _ORDERS:
        x, weights = band_nodes(low, high, order)
        points = nu.preimages(x)
        G = nu.law.stieltjes(points)[0]
        density = -G.imag / np.pi
        seen = -_seen()(points, G)[0].imag / np.pi
        F = x - theta
        square = np.divide(seen**2, density, out=np.zeros_like(x), where=density > 0)
        found = np.array([density, F**2 * density, F * seen, square]) @ weights
        change, before = float(np.max(np.abs(found - before))), found
        if change < _SETTLED * max(1.0, float(np.max(np.abs(found)))):
            break
    return before, change
