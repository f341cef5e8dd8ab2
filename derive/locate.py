"""Which regime a point of the phase diagram is in, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sympy as sp

from derive.balance import a, delta, gamma, l, w
from derive.exact import ProblemError, exact
from derive.scaling import Cell, Regime

__all__ = ["Place", "locate", "read_point"]

_NAMES = {"a": a, "l": l, "delta": delta, "w": w}
_DEFAULTS = {"l": "-inf", "delta": "0", "w": "1"}
_FAR = 10**6
# lam -> 0+ and Delta = 0 lie beyond every finite boundary, Delta = 0 first.
_BEYOND = {"l": sp.Integer(-(10**12)), "delta": sp.Integer(-(10**24))}


@dataclass(frozen=True)
class Place:
    """A regime at a point.

    Attributes
    ----------
    exponent : sympy.Expr
        R ~ d^exponent there, exact; -oo where R = 0.
    conditions : tuple of (sympy.Expr, sympy.Expr)
        Linear forms and their values there, all positive.
    """

    regime: Regime
    exponent: sp.Expr
    f: sp.Expr
    conditions: tuple[tuple[sp.Expr, sp.Expr], ...]


def read_point(text: str) -> dict[str, sp.Expr]:
    """Read ``a=1.5,l=-0.2,delta=0``; l and delta may be -inf (lam -> 0+, Delta = 0), w is else 1.

    Raises
    ------
    ProblemError
        An unknown name, a number that is none, or no value of a.
    """
    stated = dict(_DEFAULTS)
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name.strip() not in _NAMES or not equals:
            raise ProblemError(f"a point reads a=1.5,l=-0.2,delta=0 (and w), not {part!r}")
        stated[name.strip()] = value.strip()
    if "a" not in stated:
        raise ProblemError("a point needs a, the exponent of n = d^a")
    infinite = {name for name in _BEYOND if stated[name] in ("-inf", "-oo")}
    point = {k: -sp.oo if k in infinite else exact(v, k) for k, v in stated.items()}
    if not 0 < point["w"] <= 1:
        raise ProblemError(f"w lies above 0 and up to 1 (p = d^w <= d), not {point['w']}")
    if point["a"] < 0:
        raise ProblemError(f"a must not be negative: n = d^a is at least 1, not {point['a']}")
    return point


def locate(table: Sequence[Regime], point: Mapping[str, sp.Expr], value: sp.Expr | None) -> Place:
    """The regime at a point.

    Parameters
    ----------
    table : sequence of Regime
        Of a full-width student for w = 1, of a narrow one else.
    point : mapping
        As `read_point` gives it.
    value : sympy.Expr or None
        gamma; left out, the answer must be the same for every gamma > 1/2.

    Raises
    ------
    ProblemError
        The point lies on a boundary, or its regime depends on a gamma that is not given.
    """
    finite = {_NAMES[k]: _BEYOND[k] if v == -sp.oo else v for k, v in point.items()}
    if value is not None:
        regime, cell = _holding(table, finite, value)
    else:
        samples = _samples(table, finite)
        found = [(_holding(table, finite, g), g) for g in samples]
        (regime, cell), _ = found[0]
        for (other, _), g in found:
            if other.name != regime.name:
                raise ProblemError(
                    f"the regime depends on gamma here: {regime.name} at gamma = {samples[0]}, "
                    f"{other.name} at {g}; state --gamma"
                )
    own = {gamma: value} if value is not None else {}
    exponent = sp.factor(regime.exponent.subs(own).subs(finite))
    infinite = {_NAMES[k] for k, v in point.items() if v == -sp.oo}

    def margin(condition: sp.Expr) -> sp.Expr:
        return sp.oo if condition.free_symbols & infinite else sp.factor(condition.subs(finite))

    stated = [c.subs(own) for c in cell.conditions]
    if regime.exponent.free_symbols & infinite:
        exponent = -sp.oo
    return Place(regime, exponent, regime.f.subs(own), tuple((c, margin(c)) for c in stated))


def _samples(table: Sequence[Regime], finite: dict[sp.Symbol, sp.Expr]) -> list[sp.Expr]:
    """One gamma in each interval on which no condition at the point changes its sign."""
    roots: set[sp.Expr] = set()
    for regime in table:
        for cell in regime.cells:
            for condition in cell.conditions:
                at = sp.expand(condition.subs(finite))
                if at.has(gamma):
                    roots |= set(sp.Poly(at, gamma).real_roots())
    half = sp.Rational(1, 2)
    # Roots that come of the stand-ins for infinity lie beyond every gamma.
    kept = sorted((x for x in roots if half < x < _FAR), key=lambda x: x.evalf(30))
    breaks = [half, *kept]
    between = [_simple(x, y) for x, y in pairwise(breaks)]
    return [*between, sp.floor(breaks[-1]) + 1]


def _simple(low: sp.Expr, high: sp.Expr) -> sp.Rational:
    """A rational with a small denominator between two numbers."""
    denominator = 1
    while True:
        found = sp.Rational(sp.floor(low * denominator) + 1, denominator)
        if found < high:
            return found
        denominator += 1


def _holding(
    table: Sequence[Regime], finite: dict[sp.Symbol, sp.Expr], value: sp.Expr
) -> tuple[Regime, Cell]:
    touching: dict[str, tuple[Regime, Cell]] = {}
    for regime in table:
        for cell in regime.cells:
            margins = [c.subs(gamma, value).subs(finite) for c in cell.conditions]
            if all(margin > 0 for margin in margins):
                return regime, cell
            if all(margin >= 0 for margin in margins):
                touching.setdefault(regime.name, (regime, cell))
    if len(touching) == 1:
        return next(iter(touching.values()))
    names = " and ".join(f"'{name}'" for name in touching) or "no two regimes"
    raise ProblemError(f"the point lies on the boundary of {names}; move off it")
