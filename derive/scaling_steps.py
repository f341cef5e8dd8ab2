"""The derivation of the exponents as steps to print: from the state evolution to what balances what."""

import sympy as sp

from derive import symbols as s
from derive.balance import (
    d,
    gamma,
    k,
    linear_balance,
    mode_limits,
    n,
    noise_width,
    penalised_threshold,
)
from derive.limit_laws import edge_exponents, noise_bulk
from derive.modes import mode, strength
from derive.prefactors import c, laws, mode_integral
from derive.saddle import reduced_system
from derive.scaling import regimes
from derive.steps import Step
from derive.variants import interpolation_peak

__all__ = ["scaling_steps"]

_EPS = sp.Symbol("eps", positive=True)


def scaling_steps() -> list[Step]:
    """Every step from the reduced state evolution to the regimes."""
    return [
        *_equation_steps(),
        *_mode_steps(),
        *_edge_steps(),
        *_regime_steps(),
        *_constant_steps(),
    ]


def _equation_steps() -> list[Step]:
    system = reduced_system()
    in_n = {s.alpha: n / d**2}
    return [
        Step(
            "width of the noise",
            sp.Eq(system.width, 0),
            "solve for tau2, with R in place of its cut moments; alpha = n/d^2",
            sp.Eq(s.tau2, sp.factor(noise_width().subs(in_n))),
        ),
        Step(
            "threshold of the penalty",
            sp.Eq(system.shrinkage, 0),
            "solve for theta where psi << alpha",
            sp.Eq(s.theta, penalised_threshold().subs(in_n)),
        ),
    ]


def _mode_steps() -> list[Step]:
    shape = mode()
    bias, variance = mode_limits()
    index, tail = sp.Symbol("i", positive=True), k ** (1 - 2 * gamma)
    profile = c * sp.sqrt(d) * index ** (-gamma)
    missed = c**2 * tail / (2 * gamma - 1)
    return [
        Step(
            "position of a mode",
            sp.Symbol("z(w) = w + tau2/w at w = s"),
            "outlier of S0 + tau G for a target eigenvalue s",
            sp.Eq(sp.Symbol("x_s"), shape.position),
        ),
        Step(
            "BBP transition",
            sp.Eq(sp.Symbol("overlap"), shape.overlap),
            "dz/dw, the residue of the resolvent, vanishes",
            sp.Eq(strength, shape.transition),
        ),
        Step(
            "share of a mode in d R",
            reduced_system().outputs["excess_risk"],
            "each cut moment's residue at w = s, to first order in the weight 1/d, plus s^2 of Q0",
            shape.risk,
        ),
        Step("bias and variance", shape.risk, "s -> oo", sp.Tuple(bias, variance)),
        Step(
            "modes that are missed",
            sp.Eq(sp.Symbol("s_i"), profile),
            "sum of s_i^2/d over i > k, for 2 gamma > 1 and k >> 1",
            missed,
        ),
    ]


def _edge_steps() -> list[Step]:
    found = []
    for name, expression in noise_bulk().items():
        constant, power = edge_exponents()[name]
        found.append(
            Step(
                f"{name} at the edge",
                expression,
                "noise bulk cut at theta = 2 tau cos(phi); series in eps = 1 - cos(phi)",
                constant * _EPS**power,
            )
        )
    return found


def _constant_steps() -> list[Step]:
    risk, _ = mode_integral(sp.Integer(2))
    constants = [
        Step(
            "modes at the edge of the noise",
            mode().risk,
            "integrate over s_i = c sqrt(d) i^(-gamma) at theta = 2 tau, per "
            "tau^2 (c sqrt(d)/tau)^(1/gamma)"
            "; c = zeta(2 gamma)^(-1/2) where Q0 = 1, and 1 for eigenvalues sqrt(d) i^(-gamma)",
            risk,
        )
    ]
    for name, law in laws().items():
        constants.append(Step(f"constant: {name}", sp.Symbol("R"), "insert the balance", law))
    peak = Step(
        "interpolation peak",
        sp.Symbol("theta = u*tau, u -> 0, alpha = 1/4, S0 = 0"),
        "psi and E_over/tau2 leave 2 alpha linearly in u; width and shrinkage equations fix u and tau",
        sp.Eq(s.R, interpolation_peak()),
    )
    return [*constants, peak]


def _regime_steps() -> list[Step]:
    model = linear_balance()
    steps = [
        Step(
            f"passage of noise: {passage.name}",
            sp.Tuple(*(sp.Gt(form, 0) for form in passage.conditions)),
            passage.balance,
            sp.Eq(sp.Symbol("log_d E_over"), passage.risk),
        )
        for passage in model.passages
    ]
    for wide in (True, False):
        for regime in regimes(model, wide):
            width = "" if wide else " (width p = d^w)"
            steps.append(
                Step(
                    f"regime: {regime.name}{width}",
                    sp.Or(*(sp.And(*(sp.Gt(x, 0) for x in cell.conditions)) for cell in regime.cells)),
                    f"{regime.derivation}; the balance is linear in the exponents",
                    sp.Tuple(
                        sp.Eq(sp.Symbol("log_d R"), regime.exponent), sp.Eq(sp.Symbol("f"), regime.f)
                    ),
                )
            )
    return steps
