"""State evolution of the LASSO with a power-law signal, in float64 (`derive.lasso`)."""

from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfc

from derive import symbols as s
from derive.balance import n as samples
from derive.generate import compile_function
from derive.lasso import lasso, selected, soft_mass, soft_risk, u, y
from numerics.tail import MERGED_ABOVE, merged_indices

__all__ = ["Lasso", "LassoPoint"]

_FAR = 40.0  # standard deviations after which nothing changes
_TOP = 1e9  # largest threshold in units of tau


@lru_cache(maxsize=1)
def _functions() -> tuple[Any, Any]:
    """Risk and selection probability of a coordinate; the equations for tau2 and lam/theta."""
    one = {"risk": _stable(soft_risk()), "mass": _stable(soft_mass())}
    namespace = SimpleNamespace(exp=np.exp, sqrt=np.sqrt, pi=np.pi, erfc=erfc)
    equations = lasso()
    both = {"tau2": equations.tau2, "slope": sp.cancel(s.lam / equations.theta)}
    return (
        compile_function("coordinate", (y, u), one, "numpy", namespace),
        compile_function("equations", (samples, s.R, s.Delta, selected), both, "numpy", np),
    )


def _stable(expression: sp.Expr) -> sp.Expr:
    """With erfc, which keeps the digits of a tail that 1 - erf loses, and squares as exponents."""
    tails = sp.expand(expression.replace(sp.erf, lambda x: 1 - sp.erfc(x)), power_exp=False)
    return tails.replace(sp.exp, lambda x: sp.exp(sp.factor(x)))


@dataclass(frozen=True)
class LassoPoint:
    """A solution: R = norm(x - x0)^2, tau, theta, the number of coordinates that are not zero."""

    risk: float
    tau: float
    theta: float
    selected: float
    lam: float


class Lasso:
    """x0_i = i^(-gamma) for i = 1..d, n samples, label noise Delta.

    Parameters
    ----------
    gamma : float
        Exponent, above 1/2.
    d : int
        Dimensions; above 4000 the tail is merged (`numerics.tail`).
    n, noise : float
        Samples and Delta.
    """

    def __init__(self, gamma: float, d: int, n: float, noise: float) -> None:
        self.n, self.noise = n, noise
        counts: NDArray[np.float64]
        indices, counts = merged_indices(d) if d > MERGED_ABOVE else (np.arange(1.0, d + 1), np.ones(d))
        self.counts = counts
        self.signal: NDArray[np.float64] = indices**-gamma
        self.norm = float(self.counts @ self.signal**2)
        self._coordinate, self._equations = _functions()

    def sums(self, tau: float, ratio: float) -> tuple[float, float]:
        """R and the number of selected coordinates at theta = ratio tau."""
        near = np.minimum(self.signal / tau, ratio + _FAR)
        risk, mass = self._coordinate(near, ratio)
        return float(tau**2 * (self.counts @ risk)), float(self.counts @ mass)

    def on_ray(self, ratio: float) -> LassoPoint | None:
        """The solution at fixed theta/tau; None where the noise never settles."""

        def excess(log_tau: float) -> float:
            tau = float(np.exp(log_tau))
            risk, count = self.sums(tau, ratio)
            return float(self._equations(self.n, risk, self.noise, count)[0]) / tau**2 - 1

        high = 0.5 * float(np.log((self.norm + self.noise) / self.n)) + 0.1
        for _ in range(80):
            if excess(high) < 0:
                break
            high += 1
        else:
            return None
        # tau2 >= Delta/n; without noise it may be as small as it likes.
        low = min(0.5 * float(np.log(self.noise / self.n)), high) - 1e-9 if self.noise else high - 1
        while excess(low) < 0:
            low -= 1
            if low < high - 200:
                return None
        tau = float(np.exp(brentq(excess, low, high, xtol=1e-14, rtol=1e-14)))
        risk, count = self.sums(tau, ratio)
        slope = float(self._equations(self.n, risk, self.noise, count)[1])
        return LassoPoint(risk, tau, ratio * tau, count, slope * ratio * tau)

    def solve(self, lam: float) -> LassoPoint:
        """The solution at a penalty lam.

        Raises
        ------
        ArithmeticError
            No threshold has that penalty.
        """

        def excess(log_ratio: float) -> float:
            point = self.on_ray(float(np.exp(log_ratio)))
            return -1.0 if point is None else point.lam / lam - 1

        low, high = -100.0, float(np.log(_TOP))
        if excess(high) < 0:
            raise ArithmeticError(f"LASSO with n = {self.n:g}: no threshold reaches lam = {lam:g}")
        point = self.on_ray(float(np.exp(brentq(excess, low, high, xtol=1e-13))))
        if point is None or abs(point.lam / lam - 1) > 1e-5:
            raise ArithmeticError(f"LASSO with n = {self.n:g}: lam = {lam:g} is lost to rounding")
        return point

    def best(self) -> LassoPoint:
        """The solution at the penalty of least R."""

        def risk(ratio: float) -> float:
            point = self.on_ray(ratio)
            return np.inf if point is None else point.risk

        found = minimize_scalar(risk, bounds=(0.1, 15.0), method="bounded", options={"xatol": 1e-8})
        point = self.on_ray(float(found.x))
        if point is None:
            raise ArithmeticError(f"LASSO with n = {self.n:g}: no threshold settles the noise")
        return point
