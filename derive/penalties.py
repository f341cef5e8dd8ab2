"""Penalties: the spectral problem min over S, one eigenvalue at a time, carried out by SymPy."""

from dataclasses import dataclass
from typing import ClassVar

import sympy as sp

from derive import symbols as s
from derive.spectra import PositivePart
from derive.steps import Step

__all__ = ["PENALTIES", "Frobenius", "Nuclear", "Penalty", "denoiser", "ground_state", "spectral_steps"]

_value = sp.Symbol("s", real=True)


@dataclass(frozen=True)
class Nuclear:
    """lam d Tr S on S >= 0: weight decay on the factor W (THEORY.md section 1)."""

    name: ClassVar[str] = "nuclear"
    factorised: ClassVar[bool] = True

    def cost(self, value: sp.Expr) -> sp.Expr:
        """Penalty of one eigenvalue of S."""
        return s.lam * value

    def power(self, y: sp.Expr, k: int) -> sp.Expr:
        """y^k where the unconstrained minimiser is allowed, y > 0, and zero where S = 0."""
        return PositivePart(y, k)


@dataclass(frozen=True)
class Frobenius:
    """lam d norm(S)_F^2 / 2 on any symmetric S: direct training (THEORY.md section 6)."""

    name: ClassVar[str] = "frobenius"
    factorised: ClassVar[bool] = False

    def cost(self, value: sp.Expr) -> sp.Expr:
        """Penalty of one eigenvalue of S."""
        return s.lam * value**2 / 2

    def power(self, y: sp.Expr, k: int) -> sp.Expr:
        """y^k: nothing constrains S."""
        return y**k


Penalty = Nuclear | Frobenius
PENALTIES: dict[str, Penalty] = {Nuclear.name: Nuclear(), Frobenius.name: Frobenius()}


def _objective(penalty: Penalty) -> sp.Expr:
    return s.A * _value**2 / 2 - s.x * _value + penalty.cost(_value)


def _unconstrained(penalty: Penalty) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Minimiser without the constraint, its numerator y, and the value there."""
    objective = _objective(penalty)
    free = sp.solve(sp.diff(objective, _value), _value)[0]
    return free, sp.numer(sp.together(free)), objective.subs(_value, free)


def denoiser(penalty: Penalty) -> sp.Expr:
    """F(x), the eigenvalue of S where B has the eigenvalue x.

    The objective is convex in s, so the constrained minimiser is the projected one.
    """
    free, y, _ = _unconstrained(penalty)
    return sp.cancel(free / y) * penalty.power(y, 1)


def ground_state(penalty: Penalty) -> sp.Expr:
    """The minimum over s at the eigenvalue x of B; it vanishes where s = 0."""
    _, y, value = _unconstrained(penalty)
    return sp.cancel(value / y**2) * penalty.power(y, 2)


def spectral_steps(penalty: Penalty) -> list[Step]:
    """The minimisation over S in the field B, eigenvalue by eigenvalue."""
    objective = _objective(penalty)
    return [
        Step(
            "spectral denoiser",
            objective,
            "minimise over the eigenvalue s of S at the eigenvalue x of B",
            sp.Eq(sp.Function("F")(s.x), denoiser(penalty)),
        ),
        Step(
            "spectral ground state",
            objective,
            "insert the minimiser",
            sp.Eq(sp.Symbol("min_s"), ground_state(penalty)),
        ),
    ]
