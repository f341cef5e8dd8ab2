"""The replica-symmetric potential e(q, m, V, A, M, C), assembled from channel and penalty.

Stages: channel (Moreau envelope, averaged) + penalty (ground state of one eigenvalue, integrated
over nu) + Legendre terms  ->  one SymPy expression (THEORY.md section 2).
"""

from functools import cache

import sympy as sp

from derive import symbols as s
from derive.channels import Channel
from derive.model import Problem
from derive.penalties import PENALTIES, ground_state, spectral_steps
from derive.spectra import SpectralIntegral
from derive.steps import Step

__all__ = ["chain", "potential", "potential_steps", "spectral_term"]


def spectral_term(penalty: str) -> sp.Expr:
    """P(A, M, C): the ground state of the eigenvalue problem, integrated over nu."""
    coefficient, integrand = ground_state(PENALTIES[penalty]).as_independent(s.x)
    return coefficient * SpectralIntegral(integrand, s.M, s.C)


@cache
def chain(channel: Channel, penalty: str) -> dict[str, Step]:
    """The steps of a channel and a penalty by name; the last one holds the potential."""
    steps = channel.steps()
    moreau = next(step.result.rhs for step in steps if step.name == "averaged Moreau envelope")
    spectral = spectral_term(penalty)
    legendre = -s.A * s.q / 2 + s.M * s.m + s.C * s.V
    total = s.alpha * moreau + spectral + legendre
    steps += [
        *spectral_steps(PENALTIES[penalty]),
        Step(
            "spectral potential",
            sp.Symbol("P(A, M, C)"),
            "integrate the ground state over nu, the spectral law of B = M S0 + sqrt(C) G",
            sp.Eq(sp.Symbol("P"), spectral),
        ),
        Step(
            "potential",
            sp.Eq(sp.Symbol("e"), sp.Symbol("alpha*E[Moreau] + P - A*q/2 + M*m + C*V")),
            "add channel, spectral potential and Legendre terms",
            sp.Eq(sp.Symbol("e"), total),
        ),
    ]
    return {step.name: step for step in steps}


def potential_steps(problem: Problem) -> list[Step]:
    """The chain that leads to the potential; the last result is the potential itself."""
    return list(chain(problem.channel, problem.penalty).values())


def potential(problem: Problem) -> sp.Expr:
    """The replica-symmetric potential per d^2 as a SymPy expression (THEORY.md section 2)."""
    return potential_steps(problem)[-1].result.rhs
