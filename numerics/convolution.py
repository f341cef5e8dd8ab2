"""The law nu of S0 + tau G in float64: density, edges and cut moments by subordination.

z(w) = w + tau2 G0(w) maps the region above the subordination curve one to one on the upper half
plane, and g(z(w)) = G0(w) (Biane 1997; DESIGN "subordination contour"). A functional above a cut c is
a contour integral in w that starts at the preimage of c and ends on the real axis right of the
support; the integrand is analytic, so Gauss panels graded towards the start converge exponentially.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from derive.spectra import CUT_MOMENTS
from numerics.closed_moments import closed_moments
from numerics.laws import AtomicLaw, ClosedLaw

__all__ = ["CutValues", "FreeConvolution"]

# Intervals in increasing order.
Support = list[tuple[float, float]]

_NODES = 16
_MAX_PANELS = 60
_NARROW = 0.1  # tau2/Q0 below which the moment below the cut keeps more digits than the one above


@dataclass(frozen=True)
class CutValues:
    """Cut moments [j, k] of `derive.spectra.CutMoment` at one cut.

    ``defect`` is Int_{x<c} x^2 dnu - tau2 = Q0 - Int_{x>c} x^2 dnu, computed on the side of the cut
    where it keeps its digits; ``edge`` is `derive.spectra.EdgeTerm`; ``point`` the preimage of the cut.
    """

    mass: float
    I1: float
    I2: float
    hilbert: float
    psi: float
    cube: float
    defect: float
    edge: float
    point: complex


@lru_cache(maxsize=4)
def _gauss(order: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return (nodes + 1) / 2, weights / 2


class FreeConvolution:
    """Free convolution of a target law with a semicircle of variance tau2 > 0.

    Parameters
    ----------
    law : ClosedLaw or AtomicLaw
        Law of S0, in float64.
    tau2 : float
        Variance of the semicircle (its support is [-2 tau, 2 tau]).
    order : int, optional
        Gauss nodes on each panel of the contour. Left out, closed primitives are used where they keep
        their digits, and else 16 nodes, which reach rounding.
    """

    def __init__(self, law: ClosedLaw | AtomicLaw, tau2: float, order: int | None = None) -> None:
        self.law, self.tau2, self.tau, self.order = law, tau2, tau2**0.5, order
        self.lowest, self.highest = float(law.support[0][0]), float(law.support[-1][1])

    # --- the subordination map ----------------------------------------------------------------

    def _map(self, w: complex) -> tuple[complex, complex, complex]:
        """z, dz/dw and G0 at w."""
        G, slope = self.law.stieltjes(complex(w))
        return complex(w + self.tau2 * G), complex(1 + self.tau2 * slope), complex(G)

    def preimage(self, x: float, guess: complex | None = None) -> complex:
        """The w above the curve with z(w) = x + i0; real when x lies outside the spectrum.

        Newton's iteration finds it almost always, and a root in the open upper half plane is the
        only one, as is a real one where dz/dw > 0 in a gap of the target; otherwise Biane's
        parametrisation of the curve is inverted by bracketing.
        """
        w = complex(x, self.tau) if guess is None else guess
        if guess is None:
            for _ in range(12):
                w = (w + x - self.tau2 * self._map(w)[2]) / 2
        scale = max(self.tau, abs(x) * 1e-3)
        for _ in range(40):
            z, slope, _ = self._map(w)
            if slope == 0 or not np.isfinite(abs(z)):
                break
            step = (z - x) / slope
            w -= step
            if w.imag < 0:
                w = w.conjugate()
            if abs(step) < 1e-14 * scale:
                if w.imag > 1e-7 * self.tau or self._is_gap(w):
                    return w if w.imag > 1e-12 * self.tau else complex(w.real, 0.0)
                break
        return self._bracketed(x)

    def _is_gap(self, w: complex) -> bool:
        if w.imag > 1e-12 * self.tau or any(a <= w.real <= b for a, b in self.law.support):
            return False
        return self._map(complex(w.real, 0.0))[1].real > 0

    def _height(self, u: float) -> float:
        """Height v(u) of the curve: tau2 Int dmu/((u - s)^2 + v^2) = 1, or 0 in a gap."""

        def excess(v: float) -> float:
            return float(self.tau2 * -self.law.stieltjes(complex(u, v))[0].imag / v) - 1

        low = 1e-13 * self.tau
        if excess(low) <= 0:
            return 0.0
        return float(
            brentq(excess, low, self.tau * 1.0000001, xtol=1e-16 * self.tau, rtol=1e-14, maxiter=300)
        )

    def _bracketed(self, x: float) -> complex:
        """Invert u -> Re z(u + i v(u)), which increases (Biane 1997, Lemma 5 and Theorem 3)."""

        def offset(u: float) -> float:
            w = complex(u, max(self._height(u), 1e-300))
            return (w + self.tau2 * complex(self.law.stieltjes(w)[0])).real - x

        reach = 2.1 * self.tau + 1e-300
        low, high = min(x, self.lowest) - reach, max(x, self.highest) + reach
        u = float(brentq(offset, low, high, xtol=1e-15 * max(self.tau, 1e-300), rtol=1e-14, maxiter=300))
        return complex(u, self._height(u))

    def image(self, w: complex) -> float:
        """The x with preimage w."""
        return self._map(w)[0].real

    def density(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Density of the continuous part at the points x (per unit of x)."""
        return np.maximum(-self.transform(x).imag / np.pi, 0.0)

    def transform(self, x: NDArray[np.float64]) -> NDArray[np.complex128]:
        """g(x + i0) = H(x) - i pi rho(x), with H the Hilbert transform Int dnu(y)/(x - y)."""
        return np.asarray(self.law.stieltjes(self.preimages(x))[0])

    def preimages(self, x: NDArray[np.float64]) -> NDArray[np.complex128]:
        """`preimage` of many points at once; those where Newton does not settle are done singly."""
        points = np.asarray(x, dtype=float)
        w, settled = self._newton(points + 0j)
        # Near the real axis the root may be the wrong one.
        for index in np.argwhere(~settled | (w.imag <= 1e-7 * self.tau)):
            w[tuple(index)] = self.preimage(float(points[tuple(index)]))
        return w

    def transform_above(self, z: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """g at points of the open upper half plane, where any root there is the only one.

        Raises
        ------
        ArithmeticError
            Newton's iteration did not find it somewhere.
        """
        w, _ = self._newton(z)
        G = self.law.stieltjes(w)[0]
        # Close to an edge w has fewer digits than its image: judge that.
        missed = np.abs(w + self.tau2 * G - z) / np.maximum(self.tau, np.abs(z))
        if not (np.all(missed < 1e-13) and np.all(w.imag > 0)):
            raise ArithmeticError(f"no transform above the real axis at tau2 = {self.tau2:.3g}")
        return np.asarray(G)

    def _newton(
        self, points: NDArray[np.complex128]
    ) -> tuple[NDArray[np.complex128], NDArray[np.bool_]]:
        """Roots w of z(w) = point, and where the iteration has settled."""
        w = points + 1j * self.tau
        for _ in range(12):
            w = (w + points - self.tau2 * self.law.stieltjes(w)[0]) / 2
        scale = np.maximum(self.tau, np.abs(points) * 1e-3)
        settled = np.zeros(points.shape, dtype=bool)
        for _ in range(40):
            G, slope = self.law.stieltjes(w)
            with np.errstate(all="ignore"):
                step = np.where(settled, 0, (w + self.tau2 * G - points) / (1 + self.tau2 * slope))
            settled |= np.abs(step) < 1e-14 * scale
            w = w - np.where(np.isfinite(step), step, 0)
            w = np.where(w.imag < 0, w.conj(), w)
            if settled.all():
                break
        return w, settled

    # --- edges --------------------------------------------------------------------------------

    def _critical(self, inner: float, outer: float) -> float:
        """The w between a support point ``inner`` and ``outer`` with dz/dw = 0."""

        def slope(w: float) -> float:
            return self._map(complex(w, 0.0))[1].real

        step = outer - inner
        low = inner + 1e-9 * step
        if low == inner:  # tau is below the rounding of the atom
            return inner
        while slope(low) > 0 and abs(low - inner) > 1e-280:  # dz/dw -> -oo at an atom
            low = inner + (low - inner) / 8
            if low == inner:
                return inner
        return float(brentq(slope, low, outer, xtol=1e-15 * self.tau, rtol=1e-14))

    def top_preimage(self) -> float:
        """The w of the upper edge, where dz/dw vanishes right of the target's support."""
        return self._critical(self.highest, self.highest + 1.01 * self.tau + 1e-300)

    def top_edge(self) -> float:
        """Upper edge of the spectrum of S0 + tau G."""
        return self._edge(self.top_preimage())

    def bottom_edge(self) -> float:
        """Lower edge of the spectrum of S0 + tau G."""
        return self._edge(self._bottom_preimage())

    def _bottom_preimage(self) -> float:
        return self._critical(self.lowest, self.lowest - 1.01 * self.tau - 1e-300)

    def _edge(self, w: float) -> float:
        """Image of a critical point; where tau is below the rounding of an atom that is the atom."""
        return w if any(w in ends for ends in self.law.support) else self.image(complex(w, 0.0))

    def bands(self) -> list[tuple[float, float]]:
        """Intervals of the spectrum in increasing order."""
        return [(self._edge(low), self._edge(high)) for low, high in self.band_preimages()]

    def gap(self, mass: float) -> tuple[float, float] | None:
        """Ends of the gap of the spectrum that has so much mass above it, if there is one."""
        near = bisect_left(self.law.support, (self.quantile(mass).real,))
        ends = self.law.support[max(near - 2, 0) : near + 2]
        for (_, left), (right, _) in pairwise(ends):
            peak = self._peak(float(left), float(right))
            if peak is not None and abs(self.mass_above(complex(peak)) - mass) < 1e-9:
                low, high = (self._critical(float(end), peak) for end in (left, right))
                return self._edge(low), self._edge(high)
        return None

    def band_preimages(self) -> list[tuple[float, float]]:
        """Preimages of the edges of each band.

        In each gap of the target dz/dw is concave; the gap survives where its maximum is positive.
        """
        edges = [self._bottom_preimage()]
        for (_, left), (right, _) in pairwise(self.law.support):
            peak = self._peak(float(left), float(right))
            if peak is not None:
                edges += [self._critical(float(left), peak), self._critical(float(right), peak)]
        edges.append(self.top_preimage())
        return [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2)]

    def _peak(self, left: float, right: float) -> float | None:
        """Where dz/dw is largest between two support points, if it is positive there."""
        ratio = (5**0.5 - 1) / 2
        a, b = left, right
        for _ in range(80):
            c, d = b - ratio * (b - a), a + ratio * (b - a)
            c_slope, d_slope = (self._map(complex(u, 0.0))[1].real for u in (c, d))
            if c_slope > 0 or d_slope > 0:
                return c if c_slope > 0 else d
            a, b = (a, d) if c_slope > d_slope else (c, b)
        return None

    # --- functionals above a cut --------------------------------------------------------------

    def mass_above(self, w: complex) -> float:
        """Mass above the cut whose preimage is w (`derive.spectra.cut_primitive` of [1, 0])."""
        if w.imag == 0 and not self.lowest <= w.real <= self.highest:
            return float(w.real < self.lowest)
        G = self._map(w)[2]
        primitive = self.law.log_potential(w, G) + self.tau2 * G**2 / 2
        return float(primitive.imag / np.pi)

    def quantile(self, mass: float) -> complex:
        """Preimage of the cut that has so much mass above it, 0 < mass < 1."""

        def excess(u: float) -> float:
            return self.mass_above(complex(u, self._height(u))) - mass

        reach = 1.001 * self.tau
        u = float(brentq(excess, self.lowest - reach, self.highest + reach, xtol=1e-15 * self.tau))
        return complex(u, self._height(u))

    def cut(self, c: float, theta: float | None = None, guess: complex | None = None) -> CutValues:
        """Cut moments at the cut c for the function (x - theta)_+; theta defaults to c."""
        return self.cut_at(self.preimage(c, guess), theta)

    def capped_cut(
        self, theta: float, cap: float, guess: complex | None = None
    ) -> tuple[CutValues, bool]:
        """Cut moments at theta, or at the quantile ``cap`` if a student of that width cuts higher.

        Returns them with whether the width sets the cut; if not, there is no boundary term.
        """
        w = self.preimage(theta, guess)
        if cap < 1 and self.mass_above(w) > cap:
            return self.cut_at(self.quantile(cap), theta), True
        return replace(self.cut_at(w, theta), edge=0.0), False

    def cut_at(self, w: complex, theta: float | None = None) -> CutValues:
        """The same, with the cut given by its preimage."""
        law = self.law
        z, _, G = self._map(w)
        c = z.real
        theta = c if theta is None else theta
        if w.imag == 0 and w.real > self.highest:
            return CutValues(0, 0, 0, 0, 0, 0, law.Q0, 0, w)
        if w.imag == 0 and w.real < self.lowest:
            I1, Q0 = law.mean - theta, law.Q0 + self.tau2
            return CutValues(1, I1, Q0 - 2 * theta * I1 - theta**2, 0, 1, 0, -self.tau2, 0, w)
        if self._is_easy(w):
            moments = closed_moments(law, w, G, self.tau2, theta)
        else:
            moments = self._contour_moments(w, theta)
        if self.tau2 < _NARROW * law.Q0:
            zs, gs, dz = self._contour(w, right=False)
            defect = float((dz / np.pi * gs * zs**2).sum().imag) - self.tau2
        else:
            above = moments["I2"] + 2 * theta * moments["I1"] + theta**2 * moments["mass"]
            defect = law.Q0 - above
        edge = (c - theta) * (-G.imag) ** 3 / np.pi
        return CutValues(**moments, defect=defect, edge=edge, point=w)

    def _is_easy(self, w: complex) -> bool:
        """Whether closed primitives keep their digits: tau of the target's size, no edge nearby."""
        if self.order is not None or not isinstance(self.law, ClosedLaw) or w.imag < 0.1 * self.tau:
            return False
        return bool(_NARROW * self.law.Q0 < self.tau2 < self.law.Q0 / _NARROW)

    def _contour_moments(self, w: complex, theta: float) -> dict[str, float]:
        if isinstance(self.law, AtomicLaw):
            return self._split_moments(self.law, w, theta)
        zs, gs, dz = self._contour(w, right=True)
        # Powers are built up factor by factor: [j, k] from [j, k-1] or [j-1, k].
        integrands: dict[tuple[int, int], NDArray[np.complex128]] = {(0, 0): -dz / np.pi}
        shifted = zs - theta
        for j, k in CUT_MOMENTS:
            integrands[j, k] = integrands[j, k - 1] * shifted if k else integrands[j - 1, 0] * gs
        return {name: float(integrands[jk].sum().imag) for jk, name in CUT_MOMENTS.items()}

    def _split_moments(self, law: AtomicLaw, w: complex, theta: float) -> dict[str, float]:
        """The moments of a pure noise bulk (all atoms at zero) plus what the atoms change.

        The contour must pass the largest atom, where the bulk's part of the integrand is real but large:
        what is left of it, z^2 eps, would drown the rest once the largest atom is far away. The bulk has
        a short way of its own to the real axis.
        """
        path, dw = self._arc(w, True, law.support)
        D, slope = law.excess(path)
        change = {(0, 0): -self.tau2 * slope * dw / np.pi}
        bulk = self._bulk(path, dw)
        shifted, g = self._shifted(path, theta), 1 / path
        for j, k in CUT_MOMENTS:
            if k:
                before = j, k - 1
                grown = (shifted + self.tau2 * D) * change[before] + self.tau2 * D * bulk[before]
                change[j, k], bulk[j, k] = grown, shifted * bulk[before]
            else:
                before = j - 1, 0
                change[j, k] = (g + D) * change[before] + D * bulk[before]
                bulk[j, k] = g * bulk[before]
        totals = {jk: float(change[jk].sum().imag) for jk in CUT_MOMENTS}
        if w.imag or w.real < 0:
            path, dw = self._arc(w, True, [(0.0, 0.0)])
            bulk, shifted = self._bulk(path, dw), self._shifted(path, theta)
            for j, k in CUT_MOMENTS:
                bulk[j, k] = bulk[j, k - 1] * shifted if k else bulk[j - 1, 0] / path
                totals[j, k] += float(bulk[j, k].sum().imag)
        return {name: totals[jk] for jk, name in CUT_MOMENTS.items()}

    def _shifted(self, path: NDArray[np.complex128], theta: float) -> NDArray[np.complex128]:
        """z - theta of the pure noise bulk."""
        return path + self.tau2 / path - theta

    def _bulk(
        self, path: NDArray[np.complex128], dw: NDArray[np.complex128]
    ) -> dict[tuple[int, int], NDArray[np.complex128]]:
        """Integrand [0, 0] of the pure noise bulk, -dz/pi."""
        return {(0, 0): -(1 - self.tau2 / path**2) * dw / np.pi}

    def _contour(
        self, w: complex, right: bool
    ) -> tuple[NDArray[np.complex128], NDArray[np.complex128], NDArray[np.complex128]]:
        """z, g and dz at the nodes of the contour from w."""
        path, dw = self._arc(w, right, self.law.support)
        G, slope = self.law.stieltjes(path)
        return path + self.tau2 * G, G, (1 + self.tau2 * slope) * dw

    def _arc(
        self, w: complex, right: bool, support: Support
    ) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
        """Nodes and weights of a circular arc from w to the real axis beyond the support.

        Panels grow by a factor two from the distance of w to the support.
        """
        distance = min(abs(w - min(max(w.real, a), b)) for a, b in _nearest(support, w.real))
        end, sign = (float(support[-1][1]), 1) if right else (float(support[0][0]), -1)
        if (w.real - end) * sign > 0:
            # The integrand is real from the support on: a short way keeps the digits near an edge.
            end = w.real + sign * w.imag
        else:
            end += sign * max(abs(w - end), distance)
        centre = (abs(w) ** 2 - end**2) / (2 * (w.real - end))
        spoke = w - centre
        total = abs(np.angle(sign * spoke)) if w.imag else np.pi
        breaks = [0.0]
        step = distance / abs(spoke) / 2
        while breaks[-1] + 1.5 * step < total and len(breaks) < _MAX_PANELS:
            breaks.append(breaks[-1] + step)
            step *= 2
        breaks.append(total)
        nodes, weights = _gauss(self.order or _NODES)
        lengths = np.diff(breaks)
        angle = -sign * (np.array(breaks[:-1])[:, None] + lengths[:, None] * nodes).ravel()
        # w + spoke (e^(i angle) - 1) without cancellation near the start.
        path = w + spoke * 2j * np.sin(angle / 2) * np.exp(0.5j * angle)
        dw = -sign * 1j * spoke * np.exp(1j * angle) * (lengths[:, None] * weights).ravel()
        return path, dw


def _nearest(support: Support, u: float) -> Support:
    """The support intervals next to u."""
    if len(support) <= 8:
        return support
    i = bisect_left(support, (u, u))
    return support[max(i - 1, 0) : i + 1]
