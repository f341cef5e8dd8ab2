"""Emergence: the sample size n_k at which mode k of a power-law target is recovered.

Mode k leaves the noise at its BBP transition, tau = s_k, and is kept once its eigenvalue passes the cut,
theta = s_k + tau^2/s_k (`derive.modes`); whichever comes later is its n_k. At given tau and theta the
width equation states alpha, so either condition is one equation in one unknown.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import sympy as sp
from scipy.optimize import brentq

from derive import symbols as s
from derive.balance import d as size
from derive.balance import gamma
from derive.balance import n as samples
from derive.exact import ProblemError
from derive.model import Problem
from derive.modes import mode
from derive.prefactors import c, laws, scale_constant
from derive.targets import PowerLaw
from numerics.convolution import FreeConvolution
from numerics.float_solver import FloatSolver
from numerics.modes import mode_values

__all__ = ["Event", "emergence", "staircase"]

_ABOVE_EDGE = 4.0  # times tau: above every noise bulk
_HEAD = 2000  # modes that `numerics.tail` keeps one by one


@dataclass(frozen=True)
class Event:
    """Mode ``k`` of eigenvalue ``strength`` appears at n samples.

    ``by`` says which condition came last, ``risk`` is R at n, ``envelope`` the power law of the regime
    there with its constant, and ``regime`` its name.
    """

    k: int
    strength: float
    n: float
    by: str
    risk: float
    envelope: float
    regime: str


class _Curve:
    """The state evolution along tau instead of n."""

    def __init__(self, target: PowerLaw, lam: sp.Expr, noise: sp.Expr) -> None:
        self.solver = FloatSolver(Problem(target, alpha=1, lam=lam, noise=noise))
        self.lam, self.noise, self.d = float(lam), float(noise), target.d

    def at(self, tau: float, theta: float) -> tuple[float, float, float]:
        """Alpha, R, and A - lam/theta, which vanishes at the solution."""
        state = self.solver.at(tau**2, theta, "shrinkage")
        risk = self.solver.outputs(state)["excess_risk"]
        alpha = (risk + self.noise / 2) / (2 * tau**2)
        return alpha, risk, 4 * alpha - 2 * state.moments.psi - self.lam / theta

    def theta(self, tau: float) -> float:
        """The largest threshold that solves the equations at given tau; zero if the noise needs no cut.

        Several n can have one tau, because R rises towards the interpolation peak; the largest threshold
        belongs to the first of them.
        """
        high = FreeConvolution(self.solver.law, tau**2).top_edge() * (1 - 1e-12)
        if self.at(tau, high)[2] <= 0:
            return high  # S = 0
        low = min(high, _ABOVE_EDGE * tau)
        while self.at(tau, low)[2] >= 0:
            high, low = low, 0.8 * low
            if low < 1e-7 * tau:
                return low
        return float(brentq(lambda theta: self.at(tau, theta)[2], low, high, xtol=1e-12 * tau))

    def point(self, tau: float, theta: float) -> tuple[float, float]:
        """N and R."""
        alpha, risk, _ = self.at(tau, theta)
        return alpha * self.d**2, risk


def emergence(target: PowerLaw, modes: int, lam: sp.Expr, noise: sp.Expr) -> Iterator[Event]:
    """The first modes in the order in which they appear.

    Parameters
    ----------
    lam, noise : sympy.Expr
        Penalty (0 is the limit 0+) and Delta, fixed while n grows.

    Raises
    ------
    ProblemError
        More modes than the target has, or than are kept one by one.
    """
    most = min(target.modes, _HEAD)
    if not 1 <= modes <= most:
        raise ProblemError(f"modes must lie in 1..{most}, not {modes}")
    curve = _Curve(target, lam, noise)
    strengths = [float(point) for point, _ in reversed(curve.solver.law.support)]
    with np.errstate(all="ignore"):
        for k in range(1, modes + 1):
            own = strengths[k - 1]
            tau, theta, by = _appearance(curve, own)
            n, risk = curve.point(tau, theta)
            name, law = _envelope(target, n, theta / tau, lam, noise)
            yield Event(k, own, n, by, risk, law, name)


def _appearance(curve: _Curve, own: float) -> tuple[float, float, str]:
    """Tau and theta at which a mode appears."""
    transition = float(mode().transition.subs(s.tau2, 1))  # in units of tau
    tau = own / transition
    theta = curve.theta(tau)
    if theta <= mode_values(own, tau).position:
        return tau, theta, "BBP transition"

    def excess(log_tau: float) -> float:
        width = float(np.exp(log_tau))
        return curve.at(width, mode_values(own, width).position)[2]

    high = float(np.log(tau))
    low = high - 1
    while excess(low) < 0:
        low -= 1
    tau = float(np.exp(brentq(excess, low, high, xtol=1e-13)))
    return tau, mode_values(own, tau).position, "penalty"


_MODE_LAWS = ("data-limited", "noise-limited", "over-regularised")


def _envelope(
    target: PowerLaw, n: float, theta_ratio: float, lam: sp.Expr, noise: sp.Expr
) -> tuple[str, float]:
    """The largest of the laws that hold at n, at most Q0, and its regime.

    R is the sum of what data, noise and penalty each leave undone and of the noise that passes the cut,
    so up to constants the maximum. Noise passes where theta is below the edge of its bulk.
    """
    names = list(_MODE_LAWS)
    if theta_ratio < 2:
        names.append("interpolating bulk" if 4 * n < target.d**2 else "half the bulk passes")
    numbers = {gamma: target.gamma, size: target.d, samples: sp.Float(n), s.lam: lam, s.Delta: noise}
    numbers[c] = scale_constant().subs(gamma, target.gamma)
    found = {name: float(laws()[name].subs(numbers)) for name in names}
    largest = max(found, key=lambda name: found[name])
    if found[largest] >= 1:
        return "nothing recovered", 1.0
    return largest, found[largest]


def staircase(
    target: PowerLaw, lam: sp.Expr, noise: sp.Expr, bounds: tuple[float, float], count: int = 240
) -> Iterator[tuple[float, float]]:
    """N and R at tau between ``bounds``, from the wide end down."""
    curve = _Curve(target, lam, noise)
    with np.errstate(all="ignore"):
        for tau in np.geomspace(max(bounds), min(bounds), count):
            yield curve.point(float(tau), curve.theta(float(tau)))
