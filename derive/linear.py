"""The linear channel: loss, Moreau envelope and its Gaussian average, carried out by SymPy."""

from dataclasses import dataclass
from typing import ClassVar

import sympy as sp

from derive import symbols as s
from derive.gaussian import gaussian_average
from derive.steps import Step

__all__ = ["LinearChannel"]


@dataclass(frozen=True)
class LinearChannel:
    """T = 1: matrix sensing, the quadratic network. y = h0 + sqrt(Delta) xi, loss (y - h)^2.

    h = sqrt(2) u, since the one pre-activation is diagonal (THEORY.md section 2).
    """

    task: ClassVar[str] = "linear"
    directions: ClassVar[sp.Expr] = sp.Integer(1)
    interpolates: ClassVar[bool] = True
    u: ClassVar[sp.Symbol] = sp.Symbol("u", real=True)
    u0: ClassVar[sp.Symbol] = sp.Symbol("u0", real=True)
    omega: ClassVar[sp.Symbol] = sp.Symbol("omega", real=True)
    xi: ClassVar[sp.Symbol] = sp.Symbol("xi", real=True)
    y: ClassVar[sp.Symbol] = sp.Symbol("y", real=True)

    def describe(self) -> str:
        """The channel in one line."""
        return f"{self.task} task"

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
