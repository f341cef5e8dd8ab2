"""IntInt of the squared divided difference of a positive part over a free convolution (`SquaredPair`).

(x - theta)_+ above a cut c and zero below: pairs above the cut count one each, pairs below it nothing,
and pairs across it ((x - theta)/(x - y))^2. Those are a double contour integral in the upper half plane,
from c to the right for x and to the left for y, where g is analytic.
"""

import numpy as np
from numpy.typing import NDArray

from numerics.convolution import FreeConvolution

__all__ = ["squared_differences"]

Complex = NDArray[np.complex128]

_NODES, _GROWTH = 16, 3.0
_LEAST = 1e-9  # of the way: what is nearer to the cut has the square of that weight


def squared_differences(
    nu: FreeConvolution, theta: float, cap: float = 1.0, order: int = _NODES
) -> float:
    """The double integral, for the function cut at theta or where a student of width cap d cuts it.

    Infinite where the width cuts inside a band: the squared differences of neighbours on either side of
    a step are not integrable.

    Parameters
    ----------
    order : int, optional
        Gauss nodes on each panel; 16 reach rounding.
    """
    w = nu.preimage(theta)
    mass = nu.mass_above(w)
    below = above = theta
    if mass > cap:
        mass, gap = cap, nu.gap(cap)
        if gap is None:
            return float("inf")
        low, high = gap
        below, above = low + (high - low) / 3, high - (high - low) / 3
    # Rounding of the mass at the ends is no mass.
    if not 1e-14 < mass < 1 - 1e-14:
        return float(round(mass))
    return mass**2 + 2 * _across(nu, theta, below, above, order)


def _across(nu: FreeConvolution, theta: float, below: float, above: float, order: int) -> float:
    """The double integral of ((x - theta)/(x - y))^2 over x above and y below the cut."""
    x, dx = _path(above, nu.top_edge() - above, order)
    y, dy = _path(below, nu.bottom_edge() - below, order)
    u, v = nu.transform_above(x) * dx, nu.transform_above(y) * dy
    # x is no point of the real axis, so that y takes both sides of it.
    inner = (v / (x[:, None] - y) ** 2).sum(1) - (v.conj() / (x[:, None] - y.conj()) ** 2).sum(1)
    inner = inner / (2j * np.pi)
    return float(-(u * (x - theta) ** 2 * inner).sum().imag / np.pi)


def _path(start: float, reach: float, order: int) -> tuple[Complex, Complex]:
    """Nodes and weights of a path from a real point over the spectrum to twice ``reach`` beyond it.

    It leaves and arrives at 45 degrees; its panels grow from the start and shrink to the end.
    """
    growing = _GROWTH ** np.arange(np.ceil(np.log(_LEAST) / np.log(_GROWTH)), 1)
    up = np.concatenate([[0], growing])
    down = np.array([1, 1 / 3, 0])
    corner = 1 + 1j
    breaks = np.concatenate([up * corner, 2 - down[1:] * corner.conjugate()])
    nodes, weights = np.polynomial.legendre.leggauss(order)
    steps = np.diff(breaks)[:, None]
    z: Complex = np.asarray(breaks[:-1, None] + steps * (nodes + 1) / 2, dtype=complex).ravel()
    dz: Complex = np.asarray(steps * weights / 2, dtype=complex).ravel()
    if reach < 0:
        z, dz = -z.conj(), -dz.conj()
    return start + abs(reach) * z, abs(reach) * dz
