"""Edges and outliers of the learned spectrum to as many digits as the solution has."""

from dataclasses import replace
from typing import Any

from mpmath.ctx_mp import MPContext

from derive.exact import ProblemError
from derive.targets import PowerLaw
from numerics.convolution import FreeConvolution
from numerics.edges import band_edges
from numerics.laws import ClosedLaw, MPAtomicLaw, mp_law, target_atoms
from numerics.learned import Outlier, learned
from numerics.modes import mode_values
from numerics.mp_convolution import MPConvolution
from numerics.precision import context, evaluate
from numerics.solution import Solution
from numerics.spectrum import Spectrum, without_outliers

__all__ = ["sharpen"]

_GUARD = 15


def sharpen(found: Spectrum, solution: Solution) -> Spectrum:
    """Replace edges and outliers by mpf; densities and masses stay in float64.

    To first order an edge moves with tau2 at the finite rate G0(w) (dz/dw = 0 there), so it keeps the
    digits of the solution even where two bands are about to touch.

    Parameters
    ----------
    found : Spectrum
        `numerics.spectrum.learned_spectrum` of the solution.
    solution : Solution
        Solved with more than 15 digits.

    Raises
    ------
    ProblemError
        The solution is one in float64.
    ArithmeticError
        Two bands are so close to touching that an edge was not found.
    """
    if solution.digits <= 15:
        raise ProblemError("edges have as many digits as the solution: solve with more than 15")
    here = learned(solution)
    if here.rho == 0:
        return found
    ctx = context(solution.digits + _GUARD)
    tau, theta, rho = _scale(solution, ctx)
    if here.tau == 0:  # the edges of the target
        support = [pair for pair in mp_law(solution.problem.target, ctx).support if pair[1] > 0]
        pairs = zip(found.bands, support, strict=True)
        exact_bands = (replace(b, low=rho * low, high=rho * high) for b, (low, high) in pairs)
        return replace(found, bands=tuple(exact_bands))
    near, _ = without_outliers(solution, here)
    spent = len(found.outliers) / (solution.problem.d or 1)
    cut = here.cut(near, spent)
    law, strengths = _law(solution, near, ctx)
    try:
        exact = band_edges(law, near, tau**2, ctx)
    except ValueError as failure:
        raise ArithmeticError(
            f"an edge was not found for {solution.problem.describe()}: two bands are about to touch; "
            "move alpha or lam a little"
        ) from failure
    lowest = theta
    if cut > here.theta:
        nu = MPConvolution(law, tau**2, ctx)
        mass = evaluate(solution.problem.rank_cap, ctx) - ctx.mpf(spent)
        lowest = nu.map(nu.quantile(mass, near.preimage(cut)))[0].real
    edges = [
        (lowest if start < cut else low, high)
        for (start, stop), (low, high) in zip(near.bands(), exact, strict=True)
        if stop > cut
    ]
    bands = [
        replace(band, low=rho * (low - theta), high=rho * (high - theta))
        for band, (low, high) in zip(found.bands, edges, strict=True)
    ]
    outliers = tuple(_outlier(o, strengths[o.k - 1], tau, theta, rho) for o in found.outliers)
    return Spectrum(found.atom, tuple(bands), outliers)


def _scale(solution: Solution, ctx: MPContext) -> tuple[Any, Any, Any]:
    """Tau, theta and rho as `numerics.learned.Learned` has them."""
    value = {name: ctx.mpf(solution.values[name]) for name in ("tau", "theta", "A", "M", "m")}
    if solution.problem.penalty == "frobenius":
        return value["tau"], ctx.mpf(0), value["m"] / evaluate(solution.problem.target.Q0, ctx)
    return value["tau"], value["theta"], value["M"] / value["A"] if value["A"] else ctx.mpf(1)


def _law(
    solution: Solution, near: FreeConvolution, ctx: MPContext
) -> tuple[ClosedLaw | MPAtomicLaw, list[Any]]:
    """The law of the bands, and the strengths of the modes from the largest."""
    target = solution.problem.target
    if not isinstance(target, PowerLaw):
        return mp_law(target, ctx), []
    pairs = sorted(zip(*target_atoms(target, ctx), strict=True), reverse=True)
    rest = pairs[len(pairs) - len(near.law.support) :]
    return MPAtomicLaw([v for v, _ in rest], [w for _, w in rest], ctx), [v for v, _ in pairs]


def _outlier(rough: Outlier, strength: Any, tau: Any, theta: Any, rho: Any) -> Outlier:
    position, overlap = mode_values(strength, tau)
    eigenvalue, minimum = rho * (position - theta), strength * overlap
    return Outlier(rough.k, strength, eigenvalue, overlap, minimum, tau)
