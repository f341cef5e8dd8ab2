"""Local stability of a solution: the replicon, and how far jumps of the minimiser drive two runs apart.

The formulas are those of `derive.stability`; here are their averages over the channel and the spectrum.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from derive import stability as ds
from derive import symbols as s
from derive.generate import compile_function
from derive.linear import LinearChannel
from numerics.channel import fields
from numerics.convolution import FreeConvolution
from numerics.laws import AtomicLaw, float_law
from numerics.nodes import Geometry, Nodes
from numerics.precision import context, evaluate
from numerics.small_noise import SmallNoiseLimit
from numerics.softmax import averaging_rule
from numerics.solution import Solution
from numerics.spread import squared_differences
from numerics.two_sided import TwoSidedSolver

__all__ = ["Stability", "record", "stability", "stability_record", "warning"]

Array = NDArray[np.floating[Any]]

_COARSE = 12  # nodes on a panel; the difference from the full order is an error estimate
_STEP = 1e-5  # relative step of the derivatives that carry the solution's own error
_KERNEL = 0.1  # width, in standard deviations of omega, of what counts as the surface of the jumps
_FAR = 1e-2  # share of q at which the distance between two runs is worth a warning


@dataclass(frozen=True)
class Stability:
    """How stable a replica-symmetric solution is.

    Attributes
    ----------
    replicon : float
        Lambda: what one iteration of message passing makes of the squared difference of two runs.
        Infinite where a student's width cuts inside a band.
    error : float
        Estimated absolute error of it.
    distance : float
        norm(S_1 - S_2)_F^2/(d q) at which two runs settle that the jumps of the minimiser drive apart;
        0 where nothing jumps, infinite at Lambda >= 1.
    """

    replicon: float
    error: float
    distance: float

    @property
    def margin(self) -> float:
        """1 - Lambda: positive where the solution is stable."""
        return 1 - self.replicon

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers; infinity is a string."""
        row = {"margin": self.margin, "margin_error": self.error, "separation": self.distance}
        return _plain(row)


def _plain(row: dict[str, float]) -> dict[str, Any]:
    return {k: v if np.isfinite(v) else str(v) for k, v in row.items()}


def record(solution: Solution) -> dict[str, Any]:
    """What is reported of a solution: its numbers and its stability."""
    return solution.to_dict() | stability(solution).to_dict()


def stability_record(solution: Solution) -> dict[str, Any]:
    """Its stability alone, and where it stands."""
    found = stability(solution)
    row = {k: v for k, v in solution.to_dict().items() if k in ("lam", "phase", "alpha_bar")}
    return _plain({"replicon": found.replicon}) | found.to_dict() | row


def warning(row: dict[str, Any]) -> str | None:
    """Why a recorded solution is not to be trusted, in a sentence."""
    margin, separation = float(row["margin"]), float(row["separation"])
    if margin == -np.inf:
        return "the width cuts inside a band of the spectrum, where the replicon is infinite"
    if margin <= row["margin_error"]:
        return f"replica symmetry is not stable: the margin 1 - Lambda is {margin:.2g}"
    if separation > _FAR:
        return (
            f"jumps of the minimiser break replica symmetry: two runs settle {separation:.2g} q apart "
            "(squared distance), and trained networks may differ from the theory by as much"
        )
    return None


@np.errstate(all="ignore")
def stability(solution: Solution) -> Stability:
    """Replicon of a solution, with what the jumps of a softmax channel's minimiser add.

    Raises
    ------
    ArithmeticError
        The spectrum's part was lost to rounding.
    """
    if solution.phase == "collapsed":
        # F vanishes around the whole spectrum.
        return Stability(0.0, 0.0, 0.0)
    if isinstance(solution.problem.channel, LinearChannel):
        return _linear(solution)
    return _softmax(solution)


@lru_cache(maxsize=8)
def _compiled(expression: sp.Expr, *arguments: sp.Symbol) -> Any:
    return compile_function("stability", arguments, {"value": expression}, "numpy", np)


# --- the linear task ------------------------------------------------------------------------------


def _linear(solution: Solution) -> Stability:
    problem = solution.problem
    value = _compiled(ds.linear_replicon(problem.penalty), s.alpha, s.A, ds.spread)
    alpha, A = float(problem.alpha), float(solution.values["A"])
    spread, error = _spread(solution)
    (replicon,) = value(alpha, A, spread)
    if np.isinf(spread):
        return Stability(float("inf"), 0.0, 0.0)
    (moved,) = value(alpha, A * (1 + solution.error_estimate), spread + error)
    return Stability(float(replicon), float(abs(moved - replicon)), 0.0)


def _spread(solution: Solution) -> tuple[float, float]:
    """`derive.stability.spread` at a solution, with an error estimate."""
    problem = solution.problem
    if problem.penalty == "frobenius":
        return 1.0, 0.0
    if solution.phase == "recovered":
        return _spread_of_recovered(solution), 1e-13
    law, cap = float_law(problem.target), float(problem.rank_cap)
    tau, theta = (float(solution.values[k]) for k in ("tau", "theta"))

    def at(tau: float, theta: float, **more: Any) -> float:
        return squared_differences(FreeConvolution(law, tau**2), theta, cap, **more)

    value = at(tau, theta)
    if np.isinf(value):
        return value, 0.0
    slopes = at(tau * (1 + _STEP), theta) - value, at(tau, theta * (1 + _STEP)) - value
    own = sum(abs(slope) for slope in slopes) / _STEP * solution.error_estimate
    return value, own + abs(at(tau, theta, order=_COARSE) - value) + 1e-15


def _spread_of_recovered(solution: Solution) -> float:
    """At R = 0: S0 stands far above the noise, which is a semicircle on the null space of S0."""
    problem, ctx = solution.problem, context(25)
    limit = SmallNoiseLimit(problem.target.rank_fraction, ctx)
    null = float(1 - limit.kappa0)
    if null == 0:
        return 1.0
    cut = float(limit.at_risk(2 * evaluate(problem.alpha, ctx))["cut"])
    zero = AtomicLaw(np.zeros(1), np.ones(1))
    return float(1 - null**2 + null**2 * squared_differences(FreeConvolution(zero, null), cut))


# --- softmax tasks --------------------------------------------------------------------------------


def _softmax(solution: Solution) -> Stability:
    problem, solver = solution.problem, TwoSidedSolver(solution.problem)
    mu, log_b2, log_V = solution.seed
    b, V = float(np.exp(log_b2 / 2)), float(np.exp(log_V))
    m = solver.Q0 - mu
    at = Geometry(solver.field_variance, m, b, V)
    found = [_channel_averages(solver, nodes, at) for nodes in averaging_rule(solver).checks()]
    responses, surfaces = zip(*found, strict=True)
    spread, spread_error = _spread(solution)
    if np.isinf(spread):
        return Stability(float("inf"), 0.0, float("inf"))
    A, alpha = float(solution.values["A"]), float(problem.alpha)
    arguments = s.alpha, ds.response, ds.spread, s.A, s.lam
    replicon = _compiled(ds.replicon(problem.penalty), *arguments)
    each = [replicon(alpha, one, spread, A, solver.lam)[0] for one in responses]
    value = float(np.mean(each))
    error = float(np.std(each, ddof=1)) / len(each) ** 0.5 + value * spread_error / spread
    return Stability(value, error, _distance(solution, spread, value, float(np.mean(surfaces))))


def _channel_averages(solver: TwoSidedSolver, nodes: Nodes, at: Geometry) -> tuple[float, float]:
    """E[sum_lk (df_l/domega_k)^2], and Int p(omega) norm(jump of f)^2 over the surface of the jumps.

    The density at the surface is smoothed by a Gaussian kernel. On both its sides the runner-up is the
    other side's minimum; it is (difference of the objectives)/norm(jump of u*) away.
    """
    rows, here = solver.rows, fields(solver.rows, nodes, at, solver.beta0, solver.noise)
    y, omega, weights = here.y, here.omega, here.weights
    found = rows.minimise(omega, y, at.V, here.fitted, None)
    response = rows.response(omega + found.shift, y, at.V)
    jump = found.rival - found.shift[:, found.twofold]
    size = np.linalg.norm(jump, axis=0)
    width = _KERNEL * float(np.sqrt(weights @ (omega**2).mean(0)))
    kernel = np.exp(-((found.gap / size / width) ** 2) / 2) / (width * (2 * np.pi) ** 0.5)
    surface = weights[found.twofold] @ ((size / at.V) ** 2 * kernel)
    return float(weights @ (response**2).sum((1, 2))), float(surface)


def _distance(solution: Solution, spread: float, replicon: float, surface: float) -> float:
    """Where two runs settle, over q."""
    if surface == 0:
        return 0.0
    if replicon >= 1:
        return float("inf")
    strength, distance = ds.settled(solution.problem.penalty)
    A, lam, alpha = (
        float(solution.values["A"]),
        float(solution.problem.lam),
        float(solution.problem.alpha),
    )
    (J,) = _compiled(strength, s.alpha, ds.spread, s.A, s.lam, ds.K)(alpha, spread, A, lam, surface)
    (D,) = _compiled(distance, ds.J, ds.Lambda)(J, replicon)
    return float(D / float(solution.values["q"]))
