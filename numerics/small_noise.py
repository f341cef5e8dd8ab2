"""The limit tau -> 0 at fixed theta/tau (`derive.thresholds.small_noise`) as numbers."""

from dataclasses import fields
from typing import Any

import sympy as sp
from mpmath.ctx_mp import MPContext
from scipy.optimize import brentq

from derive import thresholds as th
from derive.generate import compile_function
from numerics.precision import evaluate, polish

__all__ = ["SmallNoiseLimit"]


class SmallNoiseLimit:
    """Risk R/tau2 and psi as functions of the shrinkage, inside and above the noise bulk.

    Parameters
    ----------
    rank_fraction : sympy.Expr
        Rank of S0 over d; one or more leaves no bulk.
    ctx : MPContext
        Where it is evaluated.
    """

    def __init__(self, rank_fraction: sp.Expr, ctx: MPContext) -> None:
        self.ctx = ctx
        self.kappa0 = min(evaluate(rank_fraction, ctx), ctx.mpf(1))
        self._names = tuple(f.name for f in fields(th.SmallNoise))
        self._inside = self._compile(th.small_noise(), th.phi)
        self._above = self._compile(th.small_noise_above_bulk(), th.t)

    def _compile(self, limit: th.SmallNoise, variable: sp.Symbol) -> Any:
        outputs = {name: getattr(limit, name) for name in self._names}
        return compile_function("small_noise", (variable, th.kappa0), outputs, "mpmath", self.ctx)

    def inside(self, phi: Any) -> dict[str, Any]:
        """cut, risk, psi, mass, stationarity with the cut at 2 sqrt(1 - kappa0) cos(phi)."""
        return dict(zip(self._names, self._inside(phi, self.kappa0), strict=True))

    def above(self, t: Any) -> dict[str, Any]:
        """The same with the cut at t, above the bulk."""
        return dict(zip(self._names, self._above(t, self.kappa0), strict=True))

    def unpenalised(self) -> dict[str, Any]:
        """Values at theta = 0."""
        return self.above(self.ctx.mpf(0)) if self.kappa0 == 1 else self.inside(self.ctx.pi / 2)

    def _least_angle(self) -> Any:
        """Phi of least risk: stationarity is positive at phi -> 0 and negative at pi/2."""
        ctx = self.ctx

        def slope(phi: Any) -> Any:
            return self.inside(phi)["stationarity"]

        rough = brentq(lambda p: float(slope(ctx.mpf(p))), 1e-12, float(ctx.pi / 2), xtol=1e-14)
        return polish(slope, rough, rough, ctx)

    def least_risk(self) -> dict[str, Any]:
        """Values where the risk is least; that risk is twice the perfect-recovery threshold."""
        ctx = self.ctx
        if self.kappa0 == 1:
            return self.above(ctx.mpf(0))
        if self.kappa0 == 0:
            return self.above(ctx.mpf(2))
        return self.inside(self._least_angle())

    def at_risk(self, level: Any) -> dict[str, Any]:
        """Values where the risk is ``level``, above the least one, on the side of strong shrinkage."""
        ctx, zero = self.ctx, self.ctx.mpf(0)
        edge = 2 * ctx.sqrt(1 - self.kappa0)
        if level >= self.above(edge)["risk"]:
            # Above the bulk the risk is linear in t^2.
            offset, slope = self.above(zero)["risk"], self.above(ctx.mpf(1))["risk"]
            return self.above(ctx.sqrt((level - offset) / (slope - offset)))
        tolerance = ctx.mpf(10) ** (-2 * ctx.dps + 10)
        phi = ctx.findroot(
            lambda p: self.inside(p)["risk"] - level,
            (zero, self._least_angle()),
            solver="anderson",
            tol=tolerance,
        )
        return self.inside(phi)
