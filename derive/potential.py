"""The replica-symmetric potential e(q, m, V, A, M, C), assembled from channel and penalty.

Stages: channel (Moreau envelope, averaged) + penalty (ground state of one eigenvalue, integrated
over nu) + Legendre terms  ->  one SymPy expression (THEORY.md section 2).
"""

import sympy as sp

from derive import symbols as s
from derive.channels import CHANNELS
from derive.model import Problem
from derive.penalties import PENALTIES, ground_state, spectral_steps
from derive.spectra import SpectralIntegral
from derive.steps import Step

__all__ = ["potential", "potential_steps", "spectral_term"]


def spectral_term(penalty: str) -> sp.Expr:
    """P(A, M, C): the ground state of the eigenvalue problem, integrated over nu."""
    coefficient, integrand = ground_state(PENALTIES[penalty]).as_independent(s.x)
    return coefficient * SpectralIntegral(integrand, s.M, s.C)


def potential_steps(problem: Problem) -> list[Step]:
    """The chain that leads to the potential; the last result is the potential itself."""
    channel = CHANNELS[problem.task]
    steps = channel.steps()
    moreau = next(step.result.rhs for step in steps if step.name == "averaged Moreau envelope")
    spectral = spectral_term(problem.penalty)
    legendre = -s.A * s.q / 2 + s.M * s.m + s.C * s.V
    total = s.alpha * moreau + spectral + legendre
    return [
        *steps,
        *spectral_steps(PENALTIES[problem.penalty]),
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


def potential(problem: Problem) -> sp.Expr:
    """The replica-symmetric potential per d^2 as a SymPy expression (THEORY.md section 2)."""
    return potential_steps(problem)[-1].result.rhs
