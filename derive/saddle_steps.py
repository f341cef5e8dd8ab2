"""The chain from the potential to the state evolution, step by step."""

import sympy as sp

from derive import symbols as s
from derive.channels import Channel
from derive.model import Problem
from derive.potential import chain
from derive.saddle import PARTNER, definitions, direct_solution, reduced_system, saddle_equations
from derive.softmax import SoftmaxChannel
from derive.steps import Step
from derive.two_sides import output_side, spectral_side

__all__ = ["saddle_steps"]


def saddle_steps(problem: Problem) -> list[Step]:
    """The chain from the potential to the state evolution and its reduced form."""
    channel, penalty = problem.channel, problem.penalty
    steps = [
        Step(
            f"equation for {unknown}",
            sp.Eq(sp.Derivative(sp.Symbol("e"), partner), 0),
            f"differentiate the potential in {partner} and solve for {unknown}"
            + (_RULES.get(unknown, "") if penalty == "nuclear" else ""),
            sp.Eq(unknown, saddle_equations(channel, penalty)[unknown]),
        )
        for partner, unknown in PARTNER.items()
    ]
    if isinstance(channel, SoftmaxChannel):
        return steps + _two_sided_steps(channel, penalty)
    return steps + (_nuclear_steps(channel) if penalty == "nuclear" else _frobenius_steps(channel))


_RULES = {s.m: ", by the Stein rule in M", s.V: ", by the Burgers rule in C"}


def _nuclear_steps(channel: Channel) -> list[Step]:
    system = reduced_system()
    definition = sp.Eq(s.tau2, s.C / s.M**2), sp.Eq(s.theta, s.lam / s.M)
    return [
        Step(
            "elimination of A",
            sp.Tuple(*definition),
            "A = M; insert V = psi/(2 A) and solve",
            sp.Eq(s.A, system.A),
        ),
        Step(
            "shrinkage equation",
            definition[1],
            "insert A",
            sp.Eq(system.shrinkage, 0),
        ),
        Step(
            "width equation",
            definition[0],
            "insert C, q and m, written for S = (S0 + tau G - theta)_+",
            sp.Eq(system.width, 0),
        ),
        *(
            _output_step(name, definitions(channel, "nuclear")[name], value)
            for name, value in system.outputs.items()
        ),
    ]


def _frobenius_steps(channel: Channel) -> list[Step]:
    form = direct_solution()
    return [
        Step("scale", sp.Eq(sp.Symbol("scale"), s.A + s.lam), "solve", form.scale),
        Step("shrink", sp.Eq(sp.Symbol("shrink"), s.M / (s.A + s.lam)), "insert A", form.shrink),
        *(
            _output_step(name, _frobenius_definition(channel, name), value)
            for name, value in form.outputs.items()
        ),
    ]


def _frobenius_definition(channel: Channel, name: str) -> sp.Expr:
    return sp.sqrt(s.C) / s.M if name == "tau" else definitions(channel, "frobenius")[name]


def _output_step(name: str, definition: sp.Expr, value: sp.Expr) -> Step:
    return Step(name, definition, "insert the solution", sp.Eq(sp.Symbol(name), value))


def _two_sided_steps(channel: SoftmaxChannel, penalty: str) -> list[Step]:
    """Channels without a closed form: the two maps that the solver iterates."""
    outputs = saddle_equations(channel, penalty)
    field = "insert u0 = sqrt(Q) z0, omega = (m/sqrt(Q)) z0 + b z, b^2 = q - m^2/Q"
    scaled = "write the functionals of nu for B = M (S0 + tau G), lam = M theta, gap = 1 - M/A"
    if penalty == "frobenius":
        scaled = "insert gap = (A + lam - M)/(A + lam)"
    A, M = s.A if penalty == "nuclear" else s.A + s.lam, s.M
    stated = definitions(channel, penalty) | {
        **{str(k): v for k, v in outputs.items() if str(k) in "AMC"},
        "gap": 1 - M / A,
        "P": chain(channel, penalty)["spectral potential"].result.rhs,
        "mu": s.Q0 - s.m,
        "R": s.Q0 - 2 * s.m + s.q,
    }
    return [
        Step(f"{side} side, {name}", stated[name], words, sp.Eq(sp.Symbol(name), value))
        for side, words, values in (
            ("output", field, output_side(channel)),
            ("spectral", scaled, spectral_side(penalty)),
        )
        for name, value in values.items()
    ]
