"""The law nu of S0 + tau G at any precision: cut moments from closed primitives.

Each cut moment is Im/pi of a generated function at the preimage of the cut; no quadrature is needed.
"""

from typing import Any

from mpmath.ctx_mp import MPContext

from derive.spectra import CUT_MOMENTS
from numerics.closed_moments import closed_moments
from numerics.convolution import CutValues
from numerics.laws import Law

__all__ = ["MPConvolution"]


class MPConvolution:
    """Counterpart of `numerics.convolution.FreeConvolution` in an mpmath context."""

    def __init__(self, law: Law, tau2: Any, ctx: MPContext) -> None:
        self.law, self.tau2, self.ctx = law, tau2, ctx

    def map(self, point: Any) -> tuple[Any, Any, Any]:
        """z, dz/dw and G0 at w."""
        G, slope = self.law.stieltjes(point)
        return point + self.tau2 * G, 1 + self.tau2 * slope, G

    def preimage(self, x: Any, guess: Any) -> Any:
        """Newton for z(w) = x from a float64 solution, on the real axis if that is real."""
        ctx = self.ctx
        real = ctx.im(guess) == 0
        point, tolerance = ctx.mpc(guess), ctx.mpf(10) ** (5 - ctx.dps)
        for _ in range(20 + ctx.prec.bit_length()):
            z, slope, _ = self.map(point)
            step = (z - x) / slope
            point = ctx.mpc(point.real - step.real, 0) if real else point - step
            if abs(step) <= tolerance * (abs(point) + ctx.sqrt(self.tau2)):
                return point
        raise ArithmeticError("the preimage of the cut was not found")

    def quantile(self, mass: Any, guess: Any) -> Any:
        """Preimage of the cut with so much mass above it, from a float64 one.

        In a gap any cut has the right mass and the guess stands; in a band Newton runs on the cut,
        whose mass changes with it at the rate -rho.
        """
        ctx = self.ctx
        if ctx.im(guess) == 0:
            return ctx.mpc(guess)
        point, c = ctx.mpc(guess), self.map(ctx.mpc(guess))[0].real
        tolerance = ctx.mpf(10) ** (5 - ctx.dps)
        for _ in range(20 + ctx.prec.bit_length()):
            point = self.preimage(c, point)
            G = self.map(point)[2]
            step = (self.mass_above(point, G) - mass) * ctx.pi / -G.imag
            c += step
            if abs(step) <= tolerance * abs(c):
                return self.preimage(c, point)
        raise ArithmeticError("the quantile of the spectrum was not found")

    def mass_above(self, point: Any, G: Any) -> Any:
        """Mass above the cut."""
        return closed_moments(self.law, point, G, self.tau2, self.ctx.mpf(0))["mass"]

    def cut_at(self, point: Any, theta: Any) -> CutValues:
        """All cut moments at the cut with this preimage."""
        ctx, law = self.ctx, self.law
        z, _, G = self.map(point)
        if point.imag == 0 and point.real > law.support[-1][1]:
            nothing = dict.fromkeys(CUT_MOMENTS.values(), ctx.mpf(0))
            return CutValues(**nothing, defect=law.Q0, edge=ctx.mpf(0), point=point)
        if point.imag == 0 and point.real < law.support[0][0]:
            I1, one, zero = law.mean - theta, ctx.mpf(1), ctx.mpf(0)
            I2 = law.Q0 + self.tau2 - 2 * theta * I1 - theta**2
            return CutValues(one, I1, I2, zero, one, zero, -self.tau2, zero, point)
        at = closed_moments(law, point, G, self.tau2, theta)
        defect = law.Q0 - (at["I2"] + 2 * theta * at["I1"] + theta**2 * at["mass"])
        edge = (z.real - theta) * (-G.imag) ** 3 / ctx.pi
        return CutValues(**at, defect=defect, edge=edge, point=point)
