"""What a solve returns, and the error it raises instead of a wrong number."""

from dataclasses import dataclass, field
from typing import Any

from mpmath.ctx_mp import MPContext

from derive.model import Problem

__all__ = ["KEYS", "NotConverged", "Solution", "magnitude"]

# Printed in this order; the names are those of THEORY.md.
KEYS = (
    "q",
    "m",
    "V",
    "A",
    "M",
    "C",
    "tau",
    "theta",
    "psi",
    "excess_risk",
    "train_loss",
    "test_loss",
    "energy",
    "trace",
    "rank_fraction",
)


def magnitude(values: dict[str, Any], key: str) -> Any:
    """What an error of a value is measured against: itself, q for m (zero by symmetry), else one."""
    size = abs(values[key])
    return (max(size, values["q"]) if key == "m" else size) or 1


class NotConverged(ArithmeticError):
    """No solution could be certified; the message names parameters, last residual and what to try."""

    def __init__(self, problem: Problem, residual: float, advice: str) -> None:
        self.problem, self.residual, self.advice = problem, residual, advice
        super().__init__(
            f"no convergence for {problem.describe()}: last residual {residual:.2e}; {advice}"
        )


@dataclass(frozen=True)
class Solution:
    """A solved state evolution.

    Attributes
    ----------
    problem : Problem
        What was solved; with ``lam`` replaced by the value found when it was optimised.
    values : dict
        The quantities of `KEYS`: floats up to 15 digits, mpf beyond. V is infinite where the training
        loss vanishes at lam -> 0+.
    residual : float
        Largest scaled residual of the equations at the solution.
    error_estimate : float
        Estimated relative error of the values (absolute where a value vanishes).
    digits : int
        Digits asked for.
    phase : str
        ``regular``, ``interpolating`` (zero training loss), ``unpenalised`` (lam -> 0+ above the
        interpolation threshold), ``recovered`` (R = 0) or ``collapsed`` (S = 0).
    seed : object
        Where a neighbouring solve starts: the preimage of the cut in the subordination plane, or the
        coordinates of `numerics.two_sided`.
    extras : dict
        More numbers to report, by name.
    """

    problem: Problem
    values: dict[str, Any]
    residual: float
    error_estimate: float
    digits: int = 15
    phase: str = "regular"
    seed: Any = field(default=None, repr=False)
    extras: dict[str, float] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(name)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers up to 15 digits, strings beyond; infinity is the string ``inf``."""
        row = {key: self._plain(self.values[key]) for key in KEYS}
        row |= {"residual": self.residual, "error_estimate": self.error_estimate}
        row |= {"lam": self._plain_lam(), "phase": self.phase}
        return row | {"alpha_bar": float(self.problem.alpha_bar)} | self.extras

    def _plain(self, value: Any) -> Any:
        if value == float("inf"):
            return "inf"
        if self.digits > 15:
            ctx = MPContext()
            ctx.dps = self.digits + 5
            return ctx.nstr(ctx.mpf(value), self.digits, strip_zeros=False)
        return float(value)

    def _plain_lam(self) -> Any:
        lam = self.problem.lam
        return str(lam.evalf(self.digits)) if self.digits > 15 else float(lam)
