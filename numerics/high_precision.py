"""Newton on the generated equations in mpmath, from a float64 solution to any number of digits.

Cancellation in the closed primitives costs digits, so the solution is checked at a higher working
precision and the guard digits are raised until the check passes.
"""

from dataclasses import replace
from typing import Any

from mpmath.ctx_mp import MPContext

from derive.model import Problem
from numerics.equations import equations
from numerics.float_solver import MOMENTS, State
from numerics.laws import mp_law
from numerics.mp_convolution import MPConvolution
from numerics.precision import context, evaluate
from numerics.solution import NotConverged, magnitude

__all__ = ["refine"]

_GUARDS = (15, 40, 120, 400)


class _Point:
    """The equations at one working precision."""

    def __init__(self, problem: Problem, closing: str, seed: State, capped: bool, digits: int) -> None:
        self.ctx: MPContext = context(digits)
        self.closing, self.seed, self.capped = closing, seed, capped
        self.law = mp_law(problem.target, self.ctx)
        self.alpha, self.lam, self.noise, self.cap = (
            evaluate(v, self.ctx) for v in (problem.alpha, problem.lam, problem.noise, problem.rank_cap)
        )
        self.equations = equations("mpmath", self.ctx)
        self.preimage = seed.moments.point

    def arguments(self, tau2: Any, theta: Any) -> tuple[Any, ...]:
        """Arguments of the generated functions at (tau2, theta)."""
        nu = MPConvolution(self.law, tau2, self.ctx)
        if self.capped:
            point = nu.quantile(self.cap, self.preimage)
        else:
            point = nu.preimage(theta, self.preimage)
        self.preimage = point
        moments = nu.cut_at(point, theta)
        if not self.capped:
            moments = replace(moments, edge=self.ctx.mpf(0))
        values = [getattr(moments, name) for name in MOMENTS]
        return (tau2, theta, self.alpha, self.lam, self.noise, self.law.Q0, *values)

    def residuals(self, tau2: Any, theta: Any) -> Any:
        """Closing and width residual as a column."""
        return self.ctx.matrix(self.equations.residuals[self.closing](*self.arguments(tau2, theta)))

    def jacobian(self, tau2: Any, theta: Any) -> Any:
        """Generated where the hierarchy closes, else by central differences (optimal penalty)."""
        ctx = self.ctx
        if self.closing in self.equations.jacobians:
            a, b, c, d = self.equations.jacobians[self.closing](*self.arguments(tau2, theta))
            return ctx.matrix([[a, b], [c, d]])
        h = ctx.mpf(10) ** (-ctx.dps // 3) * ctx.sqrt(tau2)
        columns = [
            (self.residuals(tau2 + du, theta + dv) - self.residuals(tau2 - du, theta - dv)) / (2 * h)
            for du, dv in ((h, 0), (0, h))
        ]
        return ctx.matrix([[columns[0][i], columns[1][i]] for i in range(2)])

    def newton(self, tau2: Any, theta: Any) -> tuple[Any, Any]:
        """Iterate until the step is at rounding, or stops shrinking there."""
        ctx = self.ctx
        tau2, theta = ctx.mpf(tau2), ctx.mpf(theta)
        last = ctx.inf
        for _ in range(20 + ctx.prec.bit_length()):
            step = self.step(tau2, theta)
            size = self.relative(step, tau2)
            if size >= last and last < ctx.mpf(10) ** (-ctx.dps // 2):
                break
            tau2, theta, last = tau2 - step[0], theta - step[1], size
            if size < ctx.mpf(10) ** (3 - ctx.dps):
                break
        return tau2, theta

    def step(self, tau2: Any, theta: Any) -> Any:
        """Newton step, to be subtracted."""
        return self.ctx.lu_solve(self.jacobian(tau2, theta), self.residuals(tau2, theta))

    def relative(self, step: Any, tau2: Any) -> Any:
        """Size of a step in units of tau2 and tau."""
        return max(abs(step[0]) / tau2, abs(step[1]) / self.ctx.sqrt(tau2))

    def outputs(self, tau2: Any, theta: Any) -> dict[str, Any]:
        """Everything that is reported."""
        values = self.equations.outputs[self.closing](*self.arguments(tau2, theta))
        return dict(zip(self.equations.names, map(self.ctx.convert, values), strict=True))


def refine(
    problem: Problem, closing: str, seed: State, capped: bool, digits: int
) -> tuple[dict[str, Any], float, float]:
    """Solve to ``digits`` digits.

    Returns
    -------
    values : dict
        The outputs, in mpf.
    residual, error : float
        Largest residual at the higher precision, and the relative change of the outputs between the
        two precisions.

    Raises
    ------
    NotConverged
        The digits were not reached with the largest number of guard digits.
    """
    error = residual = float("inf")
    for guard in _GUARDS:
        try:
            low = _Point(problem, closing, seed, capped, digits + guard)
            tau2, theta = low.newton(seed.tau2, seed.theta)
            high = _Point(problem, closing, seed, capped, digits + 2 * guard)
            start = (high.ctx.mpf(tau2), high.ctx.mpf(theta))
            step = high.step(*start)
            better = (start[0] - step[0], start[1] - step[1])
            values, coarse = high.outputs(*better), low.outputs(tau2, theta)
        except (ArithmeticError, ValueError):
            continue
        finite = [k for k in values if values[k] != high.ctx.inf]
        changes = [abs(values[k] - coarse[k]) / magnitude(values, k) for k in finite]
        error = float(max(changes))
        residual = float(max(map(abs, high.residuals(*better))))
        if max(changes) < high.ctx.mpf(10) ** (-digits):
            return values, residual, error
    raise NotConverged(problem, residual, f"{digits} digits were not reached; ask for fewer")
