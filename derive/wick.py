"""Wick contractions of Gaussian tokens: moments of the forms x_i' S x_j as traces.

A contraction pairs the legs of the forms; every cycle of forms that it closes is a trace of the product
of their matrices (all symmetric), every pair a Kronecker delta of token labels.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sympy as sp

__all__ = ["Form", "Tr", "explicit", "gaussian_moment"]


class Tr(sp.Function):
    """Trace of a product of symmetric matrices by name; cyclic order and reversal do not matter."""

    @classmethod
    def eval(cls, *names: sp.Expr) -> sp.Expr | None:
        """Write the names in the least of the equivalent orders."""
        turns = [names[i:] + names[:i] for i in range(len(names))]
        turns += [turn[::-1] for turn in turns]
        least = min(turns, key=lambda turn: [str(name) for name in turn])
        return None if least == names else cls(*least)

    def _sympystr(self, printer: Any) -> str:
        return f"Tr[{' '.join(printer._print(name) for name in self.args)}]"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"\mathrm{{Tr}}\,{' '.join(printer._print(name) for name in self.args)}"
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


class Form(sp.Function):
    """The form x_i' S x_j of the tokens i and j; arguments (i, j, S)."""

    nargs = 3

    def _sympystr(self, printer: Any) -> str:
        i, j, S = (printer._print(name) for name in self.args)
        return f"x_{i}'*{S}*x_{j}"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        i, j, S = (printer._print(name) for name in self.args)
        text = rf"x_{{{i}}}^\top {S}\, x_{{{j}}}"
        return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


def gaussian_moment(expression: sp.Expr) -> sp.Expr:
    """Average a polynomial in forms over independent tokens x ~ N(0, 1_d) (Isserlis)."""
    total = sp.Integer(0)
    for term in sp.Add.make_args(sp.expand(expression)):
        coefficient, forms = sp.Integer(1), []
        for factor in sp.Mul.make_args(term):
            base, power = factor.as_base_exp()
            if isinstance(base, Form):
                forms += [base] * int(power)
            else:
                coefficient *= factor
        total += coefficient * _contracted(forms)
    return sp.factor(sp.expand(total))


def _contracted(forms: Sequence[Form]) -> sp.Expr:
    """Sum over all pairings of the legs; leg 2k is the left one of form k, 2k + 1 the right one."""
    label = [name for form in forms for name in form.args[:2]]
    total = sp.Integer(0)
    for pairing in _pairings(list(range(len(label)))):
        deltas = [sp.KroneckerDelta(label[a], label[b]) for a, b in pairing]
        total += sp.Mul(*deltas, *_traces(forms, pairing))
    return total


def _pairings(legs: list[int]) -> Iterator[list[tuple[int, int]]]:
    if not legs:
        yield []
        return
    first, rest = legs[0], legs[1:]
    for i, partner in enumerate(rest):
        for others in _pairings(rest[:i] + rest[i + 1 :]):
            yield [(first, partner), *others]


def _traces(forms: Sequence[Form], pairing: Sequence[tuple[int, int]]) -> list[sp.Expr]:
    partner = {a: b for pair in pairing for a, b in (pair, pair[::-1])}
    left, found = set(range(len(forms))), []
    while left:
        word, leg = [], 2 * min(left)
        while leg // 2 in left:
            left.remove(leg // 2)
            word.append(forms[leg // 2].args[2])
            leg = partner[leg ^ 1]  # through the matrix, then along the contraction
        found.append(Tr(*word))
    return found


def explicit(expression: sp.Expr, matrices: dict[sp.Expr, sp.Matrix]) -> sp.Expr:
    """The same with each trace worked out for explicit matrices; names stand for them."""

    def trace(*names: sp.Expr) -> sp.Expr:
        size = next(iter(matrices.values())).rows
        product = sp.eye(size)
        for name in names:
            product = product * matrices[name]
        return sp.trace(product)

    return expression.replace(Tr, trace)
