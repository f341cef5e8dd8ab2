"""The problem statement: task, target law, penalty, noise, sample ratio, width."""

from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from derive import symbols as s
from derive.channels import TASKS, Channel
from derive.exact import ProblemError, exact
from derive.linear import LinearChannel
from derive.penalties import PENALTIES
from derive.softmax import SoftmaxChannel, T
from derive.targets import MarchenkoPastur, Target

__all__ = ["Problem"]

_SYMBOLIC = MarchenkoPastur(sp.Symbol("kappa0", positive=True))


@dataclass(frozen=True)
class Problem:
    """A learning problem of THEORY.md section 1, in exact numbers or symbols.

    Parameters
    ----------
    target : Target
        Law of the eigenvalues of S0.
    alpha : sympy.Expr
        Samples over d^2.
    lam : sympy.Expr
        Strength of the penalty: lam d Tr S (nuclear) or lam d norm(S)_F^2 / 2 (Frobenius). Zero
        stands for the limit lam -> 0+.
    noise : sympy.Expr
        Label noise variance Delta.
    task, penalty : str
        Names of the channel and of the penalty.
    width, d : int, optional
        Student width p and matrix size d; p = d when left out.
    tokens : int or sympy.Symbol, optional
        T of a softmax task, the symbol ``T`` when left out; the linear task has one token.
    beta, beta0 : sympy.Expr
        Inverse temperatures of student and target (softmax tasks).
    noise_at : {"inside", "outside"}
        Where label noise enters (softmax tasks; the linear one knows no difference).

    Raises
    ------
    ProblemError
        A number outside its range, or an unknown name; numbers are read by `derive.exact`.
    """

    target: Target = _SYMBOLIC
    alpha: sp.Expr = s.alpha
    lam: sp.Expr = s.lam
    noise: sp.Expr = s.Delta
    task: str = "linear"
    penalty: str = "nuclear"
    width: int | None = None
    d: int | None = None
    tokens: Any = None
    beta: sp.Expr = sp.S.One
    beta0: sp.Expr = sp.S.One
    noise_at: str = "inside"

    def __post_init__(self) -> None:
        for name in ("alpha", "lam", "noise"):
            object.__setattr__(self, name, exact(getattr(self, name), name))
        if self.alpha.is_number and not self.alpha.is_positive:
            raise ProblemError(f"alpha must be positive, not {self.alpha}")
        for name in ("lam", "noise"):
            if getattr(self, name).is_number and getattr(self, name).is_negative:
                raise ProblemError(f"{name} must not be negative, not {getattr(self, name)}")
        _known("task", self.task, TASKS)
        self._check_channel()
        _known("penalty", self.penalty, PENALTIES)
        self._check_width()

    def _check_channel(self) -> None:
        """Read the channel's own parameters; the linear task takes none."""
        if TASKS[self.task] is LinearChannel:
            given = (self.tokens or 1, exact(self.beta, "beta"), exact(self.beta0, "beta0"))
            if given != (1, 1, 1):
                raise ProblemError("the linear task has one token and no softmax: leave out T and beta")
            object.__setattr__(self, "tokens", 1)
            return
        object.__setattr__(self, "tokens", T if self.tokens is None else self.tokens)
        channel = self.channel
        for name in ("tokens", "beta", "beta0"):
            object.__setattr__(self, name, getattr(channel, name))

    @property
    def channel(self) -> Channel:
        """The output channel: one factor of the potential."""
        if TASKS[self.task] is LinearChannel:
            return LinearChannel()
        return SoftmaxChannel(self.task, self.tokens, self.beta, self.beta0, self.noise_at)

    @property
    def alpha_bar(self) -> sp.Expr:
        """L_eff alpha, the axis on which the thresholds of every T are those of T = 1."""
        return self.channel.directions * self.alpha

    def _check_width(self) -> None:
        implied = self.target.dimension
        if implied is not None and self.d not in (None, implied):
            raise ProblemError(f"d = {self.d} contradicts the target, which has d = {implied}")
        object.__setattr__(self, "d", implied if implied is not None else self.d)
        if self.d is not None and self.d < 1:
            raise ProblemError(f"d must be at least 1, not {self.d}")
        if self.width is None:
            return
        if self.d is None:
            raise ProblemError("a width needs the matrix size d")
        if not 1 <= self.width <= self.d:
            raise ProblemError(f"width must lie in 1..d = {self.d}, not {self.width}")
        if not PENALTIES[self.penalty].factorised:
            raise ProblemError(f"the {self.penalty} penalty trains S itself, which has no width")

    @property
    def rank_cap(self) -> sp.Rational:
        """Largest rank fraction that the student can reach, p/d."""
        if self.width is None or self.d is None:
            return sp.Integer(1)
        return sp.Rational(self.width, self.d)

    def at(self, **changes: Any) -> "Problem":
        """The same problem with some entries changed."""
        return replace(self, **changes)

    def describe(self, *varying: str) -> str:
        """One line that names every parameter but those that vary over a curve."""
        parts = [self.channel.describe(), f"{self.penalty} penalty", str(self.target)]
        stated = [name for name in ("alpha", "lam", "noise") if name not in varying]
        parts += [f"{name} = {getattr(self, name)}" for name in stated]
        if self.width is not None:
            parts.append(f"width {self.width} of {self.d}")
        return ", ".join(parts)


def _known(kind: str, name: str, table: dict[str, Any]) -> None:
    if name not in table:
        raise ProblemError(f"unknown {kind} {name!r}: choose from {', '.join(sorted(table))}")
