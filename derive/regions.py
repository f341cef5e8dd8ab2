"""The regions of regimes in few words: conditions without what follows from the others."""

from collections.abc import Sequence
from itertools import combinations

import sympy as sp

from derive.balance import gamma, monomial
from derive.polyhedra import Form, interior_point, rational_form
from derive.scaling import VARIABLES, WITNESSES, Regime

__all__ = ["region", "stated"]

Conditions = tuple[sp.Expr, ...]


class _Geometry:
    """Implications between conditions, at one gamma or at all witnesses."""

    def __init__(self, value: sp.Expr | None) -> None:
        self.values = WITNESSES if value is None else (value,)
        self._forms: dict[sp.Expr, tuple[Form, ...]] = {}

    def forms(self, condition: sp.Expr) -> tuple[Form, ...]:
        if condition not in self._forms:
            self._forms[condition] = tuple(
                rational_form(condition.subs(gamma, value), VARIABLES) for value in self.values
            )
        return self._forms[condition]

    def implied(self, condition: sp.Expr, others: Sequence[sp.Expr]) -> bool:
        """Whether the others leave no room for the opposite."""
        for index in range(len(self.values)):
            against = tuple(-c for c in self.forms(condition)[index])
            if interior_point([against, *(self.forms(o)[index] for o in others)]) is not None:
                return False
        return True

    def essential(self, conditions: Conditions) -> Conditions:
        """Drop, one after the other, what follows from the rest."""
        kept = list(dict.fromkeys(conditions))
        for condition in tuple(kept):
            rest = [c for c in kept if c != condition]
            if rest and self.implied(condition, rest):
                kept = rest
        return tuple(kept)

    def union(self, one: Conditions, other: Conditions) -> Conditions | None:
        """The union of two cells as one: all conditions but the one they disagree on."""
        split = [c for c in one if sp.expand(-c) in other]
        if len(split) != 1:
            return None
        apart = {split[0], sp.expand(-split[0])}
        both = tuple(dict.fromkeys(c for c in (*one, *other) if c not in apart))
        for cell in (one, other):
            if not all(c in cell or self.implied(c, cell) for c in both):
                return None
        return both


def region(regime: Regime, value: sp.Expr | None = None) -> tuple[Conditions, ...]:
    """Alternatives, each a tuple of linear forms that are positive together.

    Exact at the given gamma; without one, simplified as far as that holds at every witness of
    `derive.scaling`.
    """
    geometry = _Geometry(value)
    parts = [cell.conditions for cell in regime.cells]
    if value is not None:
        parts = [c for c in parts if interior_point([geometry.forms(x)[0] for x in c]) is not None]
    joined = True
    while joined:
        joined = False
        for one, other in combinations(parts, 2):
            both = geometry.union(one, other)
            if both is not None:
                parts = [p for p in parts if p not in (one, other)] + [both]
                joined = True
                break
    return tuple(geometry.essential(part) for part in parts)


def stated(condition: sp.Expr) -> str:
    """A linear form that is positive as a comparison of monomials, such as ``n > d Delta``."""
    left, right = sp.Integer(0), sp.Integer(0)
    for term in sp.Add.make_args(sp.collect(sp.expand(condition), VARIABLES)):
        if term.subs(gamma, 2).subs(dict.fromkeys(VARIABLES, 1)) > 0:
            left += term
        else:
            right -= term
    return f"{monomial(left)} > {monomial(right)}"
