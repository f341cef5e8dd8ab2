"""Thresholds of the linear task to any digits, from `derive.thresholds` and `derive.edges`."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp
from scipy.optimize import brentq

from derive import symbols as s
from derive.generate import compile_function
from derive.spectra import CUT_MOMENTS, CutMoment
from derive.targets import Target
from derive.thresholds import collapse_penalty, interpolation_residual, on_width
from numerics.convolution import FreeConvolution
from numerics.edges import critical, touching
from numerics.laws import float_law, mp_law
from numerics.mp_convolution import MPConvolution
from numerics.precision import context, evaluate, polish
from numerics.small_noise import SmallNoiseLimit

__all__ = ["Threshold", "collapse", "interpolation", "perfect_recovery", "splitting"]


@dataclass(frozen=True)
class Threshold:
    """A threshold with the unknown that solves its equation.

    Attributes
    ----------
    value : mpf
        The threshold.
    unknown : dict
        What the equation was solved for (theta/tau, tau, ...).
    error_estimate : float
        Relative change of the value under more working digits.
    """

    value: Any
    unknown: dict[str, Any]
    error_estimate: float


def _agree(solve: Any, digits: int, guards: tuple[int, ...] = (15, 60, 200)) -> Threshold:
    """Solve at two working precisions; raise the guard digits until they agree."""
    for guard in guards:
        try:
            (coarse, _), (fine, unknown) = solve(digits + guard), solve(digits + 2 * guard)
        except (ValueError, ZeroDivisionError):  # how mpmath reports a root that it did not find
            continue
        change = abs(fine - coarse) / (abs(fine) or 1)
        if change < type(fine)(10) ** (-digits):
            return Threshold(fine, unknown, float(change))
    raise ArithmeticError(
        f"{digits} digits of the threshold were not reached with {2 * guards[-1]} guard digits; "
        "the parameters are extreme: ask for fewer digits or move them"
    )


def perfect_recovery(rank_fraction: sp.Expr, digits: int = 15) -> Threshold:
    """Alpha above which R = 0 at Delta = 0, lam -> 0+ (THEORY.md section 5).

    Parameters
    ----------
    rank_fraction : sympy.Expr
        Rank of S0 over d; nothing else of the target matters.

    Raises
    ------
    ArithmeticError
        The digits were not reached, as for the other thresholds.
    """

    def solve(working: int) -> tuple[Any, dict[str, Any]]:
        least = SmallNoiseLimit(rank_fraction, context(working)).least_risk()
        return least["risk"] / 2, {"t": least["cut"]}

    return _agree(solve, digits)


@lru_cache(maxsize=1)
def _interpolation_expression() -> sp.Expr:
    moments = {
        CutMoment(1, 2, s.tau2, s.theta).subs(s.theta, 0): sp.Symbol("I2"),
        CutMoment(2, 1, s.tau2, s.theta).subs(s.theta, 0): sp.Symbol("psi"),
    }
    return interpolation_residual().subs(moments)


def interpolation(target: Target, noise: sp.Expr, digits: int = 15) -> Threshold:
    """Alpha below which the training loss vanishes at lam -> 0+ (THEORY.md section 5)."""
    if noise == 0 or target.Q0 == 0:
        # tau -> 0 (or, with no signal, tau -> oo: the same limit, since only the ratio counts).
        def limit(working: int) -> tuple[Any, dict[str, Any]]:
            values = SmallNoiseLimit(target.rank_fraction, context(working)).unpenalised()
            return values["psi"] / 2, {}

        return _agree(limit, digits)
    seed = _interpolation_seed(target, noise)

    def solve(working: int) -> tuple[Any, dict[str, Any]]:
        ctx = context(working)
        law = mp_law(target, ctx)
        arguments = (s.tau2, s.Delta, s.Q0, *sp.symbols("I2 psi"))
        residual = compile_function(
            "interpolation", arguments, {"residual": _interpolation_expression()}, "mpmath", ctx
        )
        delta, guess = evaluate(noise, ctx), seed[1]

        def at(tau2: Any) -> tuple[Any, Any]:
            nonlocal guess
            nu = MPConvolution(law, tau2, ctx)
            guess = nu.preimage(ctx.mpf(0), guess)
            moments = nu.cut_at(guess, ctx.mpf(0))
            return residual(tau2, delta, law.Q0, moments.I2, moments.psi)[0], moments.psi

        start = ctx.mpf(seed[0])

        def scaled(log_ratio: Any) -> Any:
            return at(start * ctx.exp(log_ratio))[0] / (start + delta)

        tau2 = start * ctx.exp(polish(scaled, 0.0, 1, ctx))
        return at(tau2)[1] / 2, {"tau": ctx.sqrt(tau2)}

    return _agree(solve, digits)


def _interpolation_seed(target: Target, noise: sp.Expr) -> tuple[float, complex]:
    law, delta = float_law(target), float(noise)

    def residual(log_tau2: float) -> float:
        tau2 = float(np.exp(log_tau2))
        moments = FreeConvolution(law, tau2).cut(0.0)
        # The equation of `derive.thresholds` with I2 = Q0 - defect, without cancellation at small tau.
        return -2 * (moments.defect + tau2 * moments.psi) - delta

    low = high = float(np.log(law.Q0 + delta))
    while residual(high) < 0:
        high += 1
    while residual(low) > 0:
        low -= 1
    tau2 = float(np.exp(brentq(residual, low, high, xtol=1e-12)))
    return tau2, FreeConvolution(law, tau2).preimage(0.0)


def collapse(target: Target, noise: sp.Expr, alpha: sp.Expr, digits: int = 15) -> Threshold:
    """Penalty lam at and above which S = 0 for these alpha and Delta."""
    x = sp.Symbol("edge")
    lam, tau2 = collapse_penalty(x)

    def solve(working: int) -> tuple[Any, dict[str, Any]]:
        ctx = context(working)
        law = mp_law(target, ctx)
        values = (evaluate(alpha, ctx), evaluate(noise, ctx), law.Q0)
        width = compile_function("width", (s.alpha, s.Delta, s.Q0), {"tau2": tau2}, "mpmath", ctx)(
            *values
        )[0]
        if width == 0:
            return ctx.mpf(0), {"edge": ctx.mpf(0)}
        nu = MPConvolution(law, width, ctx)
        rough = FreeConvolution(float_law(target), float(width)).top_preimage()
        edge = nu.map(ctx.mpc(critical(nu, rough), 0))[0].real
        penalty = compile_function("collapse", (s.alpha, x), {"lam": lam}, "mpmath", ctx)
        return penalty(values[0], edge)[0], {"edge": edge}

    return _agree(solve, digits)


def splitting(
    target: Target, gap: tuple[float, float], noise: sp.Expr, lam: sp.Expr, digits: int = 15
) -> Threshold | None:
    """Alpha above which the learned spectrum is split at a gap of the target's law.

    The width tau2 at which the two bands touch belongs to the law alone; the state evolution at that
    width is one equation for theta. Where more than one alpha has that width (around the peak of R at
    interpolation) it is the largest. ``unknown`` holds tau, theta and ``eigenvalue`` = x - theta, at or
    below which an eigenvector of S + theta is cut: the split shows in S where it is positive.

    Returns
    -------
    Threshold or None
        None where S = 0 before the noise is that narrow.
    """
    ctx = context(20)
    rough_tau2, _ = touching(target, gap, mp_law(target, ctx))
    start = _splitting_seed(target, float(rough_tau2), float(noise), float(lam))
    if start is None:
        return None

    def solve(working: int) -> tuple[Any, dict[str, Any]]:
        ctx = context(working)
        law = mp_law(target, ctx)
        tau2, x = touching(target, gap, law)
        nu, at = MPConvolution(law, tau2, ctx), _on_width("mpmath", ctx)
        delta, penalty = evaluate(noise, ctx), evaluate(lam, ctx)
        guess = FreeConvolution(float_law(target), float(tau2)).preimage(start)

        def values(theta: Any) -> tuple[Any, Any, Any]:
            moments = nu.cut_at(nu.preimage(theta, guess), theta)
            return at(tau2, theta, delta, law.Q0, *(getattr(moments, k) for k in CUT_MOMENTS.values()))

        def residual(theta: Any) -> Any:
            _, A, reached = values(theta)
            return reached - penalty if lam else A

        theta = ctx.mpf(0)
        if start:
            theta = polish(residual, start, start, ctx)
        unknown = {"tau": ctx.sqrt(tau2), "theta": theta, "eigenvalue": x - theta}
        return values(theta)[0], unknown

    return _agree(solve, digits)


def _on_width(backend: str, namespace: Any) -> Any:
    """Alpha, A and lam at given tau2, theta, Delta, Q0 and cut moments."""
    names = {
        CutMoment(j, k, s.tau2, s.theta): sp.Symbol(name, real=True)
        for (j, k), name in CUT_MOMENTS.items()
    }
    found = {name: getattr(on_width(), name).subs(names) for name in ("alpha", "A", "lam")}
    return compile_function(
        "on_width", (s.tau2, s.theta, s.Delta, s.Q0, *names.values()), found, backend, namespace
    )


def _splitting_seed(target: Target, tau2: float, noise: float, lam: float) -> float | None:
    """Theta of the largest alpha with this width; 0 where the limit lam -> 0+ is unpenalised."""
    law, at = float_law(target), _on_width("numpy", np)
    nu = FreeConvolution(law, tau2)

    def values(theta: float) -> Any:
        moments = nu.cut(theta)
        return at(tau2, theta, noise, law.Q0, *(getattr(moments, k) for k in CUT_MOMENTS.values()))

    def residual(theta: float) -> float:
        _, A, reached = values(theta)
        return float(reached - lam if lam else A)

    grid = nu.top_edge() * np.linspace(0, 1 - 1e-9, _SCAN)
    signs = [residual(theta) for theta in grid]
    roots = [0.0] if lam == 0 and signs[0] >= 0 else []
    for i in range(1, _SCAN):
        if signs[i - 1] * signs[i] < 0:
            roots.append(float(brentq(residual, grid[i - 1], grid[i], xtol=1e-15)))
    return max(roots, key=lambda theta: float(values(theta)[0]), default=None)


_SCAN = 120
