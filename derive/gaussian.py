"""Gaussian averages over pre-activations: Wick's theorem, and the calculus where no closed form exists.

`ChannelAverage` stands for an average over (u0, omega) ~ N(0, [[Q, m], [m, q]]) (and over label noise)
that no closed form is known for; its derivatives follow from the envelope theorem and Stein's lemma.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import sympy as sp

__all__ = [
    "CHANNEL_AVERAGES",
    "PRICE_AVERAGES",
    "ChannelAverage",
    "gaussian_average",
    "price_slopes",
    "stein_derivatives",
]


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


# What is averaged, f = (u* - omega)/V being minus the gradient of the Moreau envelope in omega;
# products are summed over the components.
CHANNEL_AVERAGES = {
    "moreau": "Moreau_V",
    "square": "f.f",
    "field": "f.u0",
    "student": "f.omega",
    "train": "loss(u*)",
    "test": "loss(omega)",
}


class ChannelAverage(sp.Function):
    """E[kind](Q, m, q, V) with ``kind`` one of `CHANNEL_AVERAGES` as a symbol.

    Q, m and q are the second moments of one component of u0 and omega, V the susceptibility.
    """

    nargs = 5

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Derivatives of the averaged Moreau envelope in m, q and V."""
        kind, *variables = self.args
        if str(kind) != "moreau" or argindex not in (3, 4, 5):
            raise sp.core.function.ArgumentIndexError(self, argindex)
        if argindex == 5:
            # Envelope theorem: only the explicit (u - omega)^2/(2 V) counts at the minimum.
            return -average("square", *variables) / 2
        return stein_derivatives(*variables)[argindex - 3]

    def _sympystr(self, printer: Any) -> str:
        return f"E[{CHANNEL_AVERAGES[str(self.args[0])]}]"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"\mathbb{{E}}[{_LATEX[str(self.args[0])]}]"
        return text if exp is None else rf"{text}^{{{exp}}}"


_LATEX = {
    "moreau": r"\mathcal{M}_V",
    "square": r"f\cdot f",
    "field": r"f\cdot u_0",
    "student": r"f\cdot\omega",
    "train": r"\ell(u^*)",
    "test": r"\ell(\omega)",
}


def average(kind: str, *variables: sp.Expr) -> sp.Expr:
    """The average of that kind (see `CHANNEL_AVERAGES`)."""
    return ChannelAverage(sp.Symbol(kind), *variables)


@cache
def _stein() -> tuple[tuple[sp.Symbol, ...], tuple[sp.Expr, sp.Expr]]:
    """Solve Stein's lemma for the derivatives of E[Moreau] in m and q.

    Price's theorem (the covariance is the time of a heat flow): with g = -f the gradient in omega,
    dE/dm = sum E[d g/d u0] and dE/dq = sum E[d g/d omega]/2. Stein's lemma for g and either variable:
    E[u0 g] = Q E[d g/d u0] + m E[d g/d omega], E[omega g] = m E[d g/d u0] + q E[d g/d omega].
    No pointwise derivative is needed, so jumps of the minimiser are counted.
    """
    Q, m, q, field, student, in_m, in_q = sp.symbols("Q m q field student in_m in_q")
    lemma = [
        sp.Eq(-field, Q * in_m + m * 2 * in_q),
        sp.Eq(-student, m * in_m + q * 2 * in_q),
    ]
    found = sp.solve(lemma, [in_m, in_q], dict=True)[0]
    return (Q, m, q, field, student), (found[in_m], found[in_q])


def stein_derivatives(Q: sp.Expr, m: sp.Expr, q: sp.Expr, V: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """Derivatives of E[Moreau] in m and in q from E[f.u0] and E[f.omega]."""
    symbols, derivatives = _stein()
    values = (Q, m, q, average("field", Q, m, q, V), average("student", Q, m, q, V))
    in_m, in_q = (
        d.subs(dict(zip(symbols, values, strict=True)), simultaneous=True) for d in derivatives
    )
    return in_m, in_q


# Averages that `price_slopes` is written in: E[tr phi''], E[phi' . u0], and two second moments.
PRICE_AVERAGES = sp.symbols("curvature field Q m", real=True)


def price_slopes() -> dict[str, sp.Expr]:
    """Slopes in q and m of E[phi(omega)], where phi depends on u0 too, in `PRICE_AVERAGES`.

    Price's theorem gives d/dq = E[tr phi'']/2 and d/dm = E[d/du0 . phi']; Stein's lemma, E[phi' . u0] =
    Q d/dm + m E[tr phi''], turns the latter into an average of the gradient.
    """
    curvature, field, Q, m = PRICE_AVERAGES
    in_m = sp.Symbol("in_m", real=True)
    lemma = sp.Eq(field, Q * in_m + m * curvature)
    return {"in_q": curvature / 2, "in_m": sp.solve(lemma, in_m)[0]}
