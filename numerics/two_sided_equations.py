"""The two maps of `derive.two_sides` as generated functions, and the spectral one evaluated."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from derive import symbols as s
from derive import two_sides as sides
from derive.generate import compile_function
from derive.softmax import SoftmaxChannel
from derive.spectra import CUT_MOMENTS, CutMoment
from numerics.convolution import CutValues, FreeConvolution
from numerics.laws import AtomicLaw, ClosedLaw

__all__ = ["OUTPUT", "SPECTRAL", "channel_functions", "spectral_values"]

Function = Callable[..., tuple[Any, ...]]

_SHORTFALL = sp.Symbol("shortfall", real=True)
_A = sp.Symbol("A", positive=True)
_FIELD = {sides.along: "along", sides.across: "across", sides.square: "square"}
_PLAIN = {symbol: sp.Symbol(name, real=True) for symbol, name in _FIELD.items()}
_MOMENTS = {
    CutMoment(j, k, s.tau2, s.theta): sp.Symbol(name, real=True) for (j, k), name in CUT_MOMENTS.items()
}
OUTPUT = ("A", "M", "C", "gap")
SPECTRAL = ("q", "m", "V", "R", "mu", "trace", "rank_fraction", "psi", "P")


@lru_cache(maxsize=16)
def channel_functions(channel: SoftmaxChannel) -> tuple[Function, Function, Function]:
    """(R, mu, Q0, Delta) -> Q, m, q, b2, shortfall; its inverse for R; averages -> A, M, C, gap."""
    geometry = sides.geometry(channel)
    b2 = sp.Symbol("b2", positive=True)
    risk = sp.expand(sp.solve(geometry["b2"] - b2, s.R)[0])
    output = {k: v.subs(_PLAIN) for k, v in sides.output_side(channel).items()}
    A = output["A"]
    output["gap"] = output["gap"].subs(_A, A)
    arguments = (s.alpha, sides.Q, s.m, sides.b, _SHORTFALL, *_PLAIN.values())
    return (
        compile_function("geometry", (s.R, sides.mu, s.Q0, s.Delta), geometry, "numpy", np),
        compile_function("risk", (b2, sides.mu, s.Q0, s.Delta), {"R": risk}, "numpy", np),
        compile_function("output", arguments, output, "numpy", np),
    )


@lru_cache(maxsize=4)
def _spectral_function(penalty: str) -> Function:
    """(A, gap, C, lam, Q0, mean, tau2, theta, defect, cut moments) -> the values of `SPECTRAL`."""
    side = sides.spectral_side(penalty)
    arguments = (
        *(s.A, sides.gap, s.C, s.lam, s.Q0, s.mean, s.tau2, s.theta, sides.defect),
        *_MOMENTS.values(),
    )
    outputs = {name: side[name].subs(_MOMENTS) for name in SPECTRAL}
    return compile_function("spectral", arguments, outputs, "numpy", np)


def spectral_values(
    penalty: str, law: ClosedLaw | AtomicLaw, lam: float, conjugates: dict[str, float], cap: float = 1.0
) -> dict[str, float]:
    """(A, M, C, gap) -> the values of `SPECTRAL`, through the law of S0 + tau G; rank at most cap d."""
    A, M, C, gap = (conjugates[k] for k in OUTPUT)
    if penalty == "frobenius":
        gap = (A + lam - M) / (A + lam)
        moments, tau2, theta = CutValues(1, 0, 0, 0, 0, 0, 0, 0, 0j), 0.0, 0.0
    else:
        tau2, theta = C / M**2, lam / M
        moments, _ = FreeConvolution(law, tau2).capped_cut(theta, cap)
    values = _spectral_function(penalty)(
        *(A, gap, C, lam, law.Q0, float(law.mean), tau2, theta, moments.defect),
        *(getattr(moments, name) for name in CUT_MOMENTS.values()),
    )
    return {k: float(v) for k, v in zip(SPECTRAL, values, strict=True)}
