"""The reduced state evolution of `derive.saddle` as generated functions of numbers.

Both solvers, float64 and mpmath, run these; nothing about the linear task is typed in here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import sympy as sp

from derive import symbols as s
from derive.generate import compile_function
from derive.saddle import reduced_system
from derive.spectra import CUT_MOMENTS, CutMoment, EdgeTerm

__all__ = ["CLOSINGS", "Equations", "equations"]

_DEFECT, _EDGE = sp.symbols("defect edge", real=True)
_ARGUMENTS = (
    s.tau2,
    s.theta,
    s.alpha,
    s.lam,
    s.Delta,
    s.Q0,
    *sp.symbols(tuple(CUT_MOMENTS.values()), real=True),
    _DEFECT,
    _EDGE,
)
# What closes the width equation: the penalty, the limit lam -> 0+ below the interpolation threshold
# (A = 0) or above it (theta = 0), or the penalty of least risk.
CLOSINGS = ("shrinkage", "interpolating", "unpenalised", "optimal")
# Proportional to A, and V to 1/A: their limits where the training loss vanishes at lam -> 0+.
_LIMITS = {"A": 0, "M": 0, "C": 0, "train_loss": 0, "energy": 0, "V": sp.oo}


def _numbers(expression: sp.Expr) -> sp.Expr:
    """Cut moments become arguments."""
    values = {
        CutMoment(j, k, s.tau2, s.theta): sp.Symbol(name, real=True)
        for (j, k), name in CUT_MOMENTS.items()
    }
    return expression.subs(values).subs(EdgeTerm(s.tau2, s.theta), _EDGE)


def _by_defect(expression: sp.Expr) -> sp.Expr:
    """Int_{x>c} x^2 dnu = Q0 - defect in place of I2: R loses no digits when it is small."""
    mass, I1, I2 = sp.symbols("mass I1 I2", real=True)
    split = s.Q0 - _DEFECT - 2 * s.theta * I1 - s.theta**2 * mass
    return sp.expand(expression.subs(I2, split))


@dataclass(frozen=True)
class Equations:
    """Generated functions; each takes the values of `arguments` in order.

    Attributes
    ----------
    names : tuple of str
        Names of the outputs, tau and theta included.
    outputs : dict
        For each closing a callable that returns the values of `names`.
    residuals : dict
        For each of `CLOSINGS` a callable that returns the closing residual and the width residual.
    jacobians : dict
        For each closing but the last a callable that returns their derivatives in (tau2, theta),
        row by row.
    """

    names: tuple[str, ...]
    outputs: dict[str, Callable[..., tuple[Any, ...]]]
    residuals: dict[str, Callable[..., tuple[Any, ...]]]
    jacobians: dict[str, Callable[..., tuple[Any, ...]]]


def _symbolic(closing: str) -> tuple[sp.Expr, sp.Expr]:
    system = reduced_system()
    first = {
        "shrinkage": system.shrinkage,
        "interpolating": system.A,
        "unpenalised": s.theta,
        "optimal": system.best_shrinkage,
    }[closing]
    return first, system.width


@cache
def _expressions() -> dict[str, sp.Expr]:
    """The outputs in numbers."""
    found = {name: _numbers(e) for name, e in reduced_system().outputs.items()}
    for name in ("excess_risk", "train_loss", "test_loss", "energy"):
        found[name] = sp.factor(_by_defect(found[name]))
    return found | {"tau": sp.sqrt(s.tau2), "theta": s.theta}


@cache
def _residual(closing: str) -> dict[str, sp.Expr]:
    first, width = _symbolic(closing)
    return {"closing": _numbers(first), "width": _by_defect(_numbers(width))}


@cache
def _jacobian(closing: str) -> dict[str, sp.Expr]:
    entries = sp.Matrix(_symbolic(closing)).jacobian([s.tau2, s.theta])
    names = ("closing_tau2", "closing_theta", "width_tau2", "width_theta")
    return dict(zip(names, map(_numbers, entries), strict=True))


@lru_cache(maxsize=8)
def equations(backend: str, namespace: Any) -> Equations:
    """Generate the equations for a backend (see `derive.generate.compile_function`)."""

    def build(name: str, expressions: dict[str, sp.Expr]) -> Callable[..., tuple[Any, ...]]:
        return compile_function(name, _ARGUMENTS, expressions, backend, namespace)

    expressions = _expressions()
    outputs = dict.fromkeys(CLOSINGS, build("outputs", expressions))
    outputs["interpolating"] = build("outputs", expressions | _LIMITS)
    residuals = {closing: build("residual", _residual(closing)) for closing in CLOSINGS}
    # The derivative of the optimality condition leaves the hierarchy of cut moments.
    jacobians = {closing: build("jacobian", _jacobian(closing)) for closing in CLOSINGS[:-1]}
    return Equations(tuple(expressions), outputs, residuals, jacobians)
