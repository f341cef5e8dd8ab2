"""Letters and operators of the replica calculation: what is averaged, integrated and minimised."""

from typing import Any

import sympy as sp

from derive import symbols as s

__all__ = [
    "CONJUGATES",
    "OVERLAPS",
    "S0",
    "G",
    "Least",
    "Mean",
    "Over",
    "Replica",
    "S",
    "a",
    "b",
    "c",
    "d",
    "h",
    "loss",
    "m_hat",
    "mu",
    "n_r",
    "omega",
    "penalty",
    "q_hat",
    "r",
    "r_hat",
    "u",
]

# Number of replicas, matrix size, inverse temperature; replica and sample indices.
n_r, d, b = sp.symbols("n_r d b", positive=True)
a, c, mu = sp.symbols("a c mu", integer=True, positive=True)
# Matrices by name: a student, the target, the replicas, a GOE matrix.
S, S0, G = sp.symbols("S S0 G")
Replica = sp.IndexedBase("S")
h, u, loss, penalty = (sp.Function(name) for name in ("h", "u", "loss", "penalty"))
omega = sp.Symbol("omega", real=True)
# Overlap of a replica with itself, and the conjugates.
r = sp.Symbol("r", real=True)
r_hat, q_hat, m_hat = sp.symbols("rhat qhat mhat", positive=True)
# Q0, m, r, q: target with itself, target with replica, replica with itself, with another one.
OVERLAPS = (s.Q0, s.m, r, s.q)
# What the conjugates become at zero temperature.
CONJUGATES = {r_hat: b * s.A - 2 * b**2 * s.C, q_hat: 2 * b**2 * s.C, m_hat: b * s.M}


class Mean(sp.Function):
    """An average whose variables the step names."""

    nargs = 1

    def _sympystr(self, printer: Any) -> str:
        return f"E[{printer._print(self.args[0])}]"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"\mathbb{{E}}\left[{printer._print(self.args[0])}\right]"
        return text if exp is None else f"{text}^{{{exp}}}"


class Over(sp.Function):
    """The integral over all states of a student, or of all of its replicas."""

    nargs = 1

    def _sympystr(self, printer: Any) -> str:
        return f"Int dS {printer._print(self.args[0])}"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"\int dS\, {printer._print(self.args[0])}"
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


class Least(sp.Function):
    """The minimum over the first argument of the second."""

    nargs = 2

    def _sympystr(self, printer: Any) -> str:
        variable, value = (printer._print(argument) for argument in self.args)
        return f"min_{variable}[{value}]"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        variable, value = (printer._print(argument) for argument in self.args)
        text = rf"\min_{{{variable}}}\left[{value}\right]"
        return text if exp is None else f"{text}^{{{exp}}}"
