"""Output channels: loss, Moreau envelope and its Gaussian average, carried out by SymPy.

A channel is one factor of the potential. It states its loss and its label as functions of the
normalised pre-activations u (THEORY.md sections 1 and 2) and derives the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import sympy as sp

from derive import symbols as s
from derive.steps import Step

__all__ = ["CHANNELS", "LinearChannel", "gaussian_average"]


def gaussian_average(
    expression: sp.Expr, variables: Sequence[sp.Symbol], covariance: sp.Matrix
) -> sp.Expr:
    """Average a polynomial over centred Gaussian variables by Wick's theorem (Isserlis).

    Parameters
    ----------
    expression : sympy.Expr
        Polynomial in ``variables``.
    variables : sequence of sympy.Symbol
        The Gaussian variables.
    covariance : sympy.Matrix, shape (len(variables), len(variables))
        Their covariance.
    """
    total = sp.Integer(0)
    for powers, coefficient in sp.Poly(expression, *variables).terms():
        legs = [i for i, power in enumerate(powers) for _ in range(power)]
        total += coefficient * _wick(legs, covariance)
    return sp.factor(sp.expand(total))


def _wick(legs: list[int], covariance: sp.Matrix) -> sp.Expr:
    if len(legs) % 2:
        return sp.Integer(0)
    if not legs:
        return sp.Integer(1)
    first, rest = legs[0], legs[1:]
    return sp.Add(
        *(
            covariance[first, leg] * _wick(rest[:i] + rest[i + 1 :], covariance)
            for i, leg in enumerate(rest)
        )
    )


@dataclass(frozen=True)
class LinearChannel:
    """T = 1: matrix sensing, the quadratic network. y = h0 + sqrt(Delta) xi, loss (y - h)^2.

    h = sqrt(2) u, since the one pre-activation is diagonal (THEORY.md section 2).
    """

    name: ClassVar[str] = "linear"
    u: ClassVar[sp.Symbol] = sp.Symbol("u", real=True)
    u0: ClassVar[sp.Symbol] = sp.Symbol("u0", real=True)
    omega: ClassVar[sp.Symbol] = sp.Symbol("omega", real=True)
    xi: ClassVar[sp.Symbol] = sp.Symbol("xi", real=True)
    y: ClassVar[sp.Symbol] = sp.Symbol("y", real=True)

    @property
    def label(self) -> sp.Expr:
        """The label as a function of the target's pre-activation and the noise."""
        return sp.sqrt(2) * self.u0 + sp.sqrt(s.Delta) * self.xi

    def loss(self, u: sp.Expr) -> sp.Expr:
        """Loss of one sample at the student's pre-activation u."""
        return (self.y - sp.sqrt(2) * u) ** 2

    def average(self, expression: sp.Expr) -> sp.Expr:
        """Average over (u0, omega, xi); u0 and omega have covariance [[Q0, m], [m, q]]."""
        covariance = sp.Matrix([[s.Q0, s.m, 0], [s.m, s.q, 0], [0, 0, 1]])
        labelled = expression.subs(self.y, self.label)
        return gaussian_average(labelled, (self.u0, self.omega, self.xi), covariance)

    def steps(self) -> list[Step]:
        """Moreau minimisation and Gaussian averages, in order."""
        u, omega = self.u, self.omega
        objective = self.loss(u) + (u - omega) ** 2 / (2 * s.V)
        prox = sp.factor(sp.solve(sp.diff(objective, u), u)[0])
        moreau = sp.factor(objective.subs(u, prox))
        return [
            Step(
                "proximal operator",
                objective,
                "minimise over u: the derivative is linear in u, the second derivative positive",
                sp.Eq(sp.Symbol("u*"), prox),
            ),
            Step(
                "Moreau envelope",
                objective,
                "insert the minimiser",
                sp.Eq(sp.Symbol("Moreau_V"), moreau),
            ),
            Step(
                "averaged Moreau envelope",
                sp.Eq(self.y, self.label),
                "average over the Gaussian (u0, omega, xi) by Wick's theorem",
                sp.Eq(sp.Symbol("E[Moreau]"), self.average(moreau)),
            ),
            Step(
                "train loss",
                self.loss(prox),
                "average the loss at the minimiser",
                sp.Eq(sp.Symbol("train_loss"), self.average(sp.factor(self.loss(prox)))),
            ),
            Step(
                "test loss",
                self.loss(omega),
                "average the loss at omega on a fresh sample",
                sp.Eq(sp.Symbol("test_loss"), self.average(self.loss(omega))),
            ),
        ]


CHANNELS = {LinearChannel.name: LinearChannel()}
