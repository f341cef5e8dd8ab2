"""Limit laws of the risk at lam -> 0+ that follow from the semicircle alone, with their exponents.

Each starts from the reduced state evolution with the cut moments of a pure noise bulk (S0 = 0) or of
the uncut law, and ends in a power of alpha whose exponent SymPy reads off (THEORY.md section 7).
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from derive import symbols as s
from derive.saddle import reduced_system
from derive.spectra import CutMoment
from derive.thresholds import bulk_moment, phi

__all__ = ["LimitLaw", "edge_exponents", "limit_laws", "noise_bulk"]


@dataclass(frozen=True)
class LimitLaw:
    """R ~ risk in a regime; f is minus the exponent of n (at fixed d and Delta)."""

    regime: str
    conditions: str
    risk: sp.Expr
    f: sp.Expr
    derivation: str


def noise_bulk() -> dict[str, sp.Expr]:
    """Psi, R/tau2 and mass above the cut of S0 = 0, with the cut at theta = 2 tau cos(phi)."""
    moments = {"psi": (2, 1), "E_over/tau2": (1, 2), "mass": (1, 0)}
    return {name: sp.expand(bulk_moment(*jk, sp.Integer(1))) for name, jk in moments.items()}


@cache
def edge_exponents() -> dict[str, tuple[sp.Expr, sp.Expr]]:
    """Leading (constant, power of eps) of psi, E_over/tau2 and mass at theta = 2 tau (1 - eps)."""
    found = {}
    for name, expression in noise_bulk().items():
        leading = sp.series(expression, phi, 0, 10).removeO().as_leading_term(phi)
        constant, power = leading.as_coeff_exponent(phi)
        # eps = 1 - cos(phi) = phi^2/2 to leading order.
        found[name] = (constant * 2 ** (power / 2), power / 2)
    return found


def _width_equation(moments: dict[tuple[int, int], sp.Expr], risk: sp.Expr) -> sp.Expr:
    """Solve tau2 = (R + Delta/2)/(2 alpha) for R when R = risk tau2; theta-free moments only."""
    system = reduced_system()
    values = {CutMoment(*jk, s.tau2, s.theta): value for jk, value in moments.items()}
    width = system.width.subs(values)
    tau2 = sp.solve(width, s.tau2)[0]
    return sp.factor(risk * tau2)


@cache
def limit_laws() -> tuple[LimitLaw, ...]:
    """The laws that the spine derives so far; the others need the power-law target's balance."""
    psi, over = edge_exponents()["psi"], edge_exponents()["E_over/tau2"]
    # Interpolation: psi = 2 alpha sets eps; the width equation for S0 = 0 is 2 alpha tau2 = R + Delta/2.
    eps = (2 * s.alpha / psi[0]) ** (1 / psi[1])
    ratio = over[0] * eps ** over[1] / (2 * s.alpha)  # E_over/(tau2 psi), small with eps
    interpolating = sp.simplify(s.Delta / 2 * ratio)
    t2, half = s.tau2, sp.Rational(1, 2)
    # theta = 0, S0 = 0: half the semicircle passes. R = I2 because m = 0.
    noise = {(1, 2): t2 * half, (2, 1): half, (1, 1): 0}
    half_bulk = _width_equation(noise, half).subs(s.Q0, 0)
    # theta = 0 and nothing below zero: I2 = Q0 + tau2 and psi = 1.
    resolved = _width_equation({(1, 2): s.Q0 + t2, (2, 1): sp.Integer(1), (1, 1): 0}, sp.Integer(1))
    return (
        _law("nothing recovered", "theta above the spectrum", s.Q0, "every cut moment vanishes"),
        _law(
            "interpolating bulk",
            "lam -> 0+, d << n << d^2, noise part",
            interpolating,
            f"psi = 2 alpha with psi ~ eps^({psi[1]}) and E_over ~ tau^2 eps^({over[1]})",
        ),
        _law(
            "half the bulk passes",
            "lam -> 0+, d^2/4 < n << d^(1 + 2 gamma), noise part",
            half_bulk,
            "theta = 0, psi = 1/2, E_over = tau^2/2",
        ),
        _law(
            "every mode resolved",
            "lam -> 0+, n >> d^(1 + 2 gamma)",
            resolved,
            "theta = 0 below the spectrum, psi = 1, R = tau^2",
        ),
    )


def _law(regime: str, conditions: str, risk: sp.Expr, derivation: str) -> LimitLaw:
    slope = sp.simplify(-s.alpha * sp.diff(risk, s.alpha) / risk)
    direction = 0 if regime == "interpolating bulk" else sp.oo
    return LimitLaw(regime, conditions, risk, sp.limit(slope, s.alpha, direction), derivation)
