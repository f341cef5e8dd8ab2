"""The phase diagram of the scaling law as exact polygons, and the proof that they tile the plane.

At rational gamma, delta and w every condition of every regime is a line in the plane (a, l). All lines
together cut a box into convex cells on which no condition changes its sign, so one interior point
decides for each cell which regimes hold there: exactly one, or the table has a gap or an overlap. The
exponents of neighbouring cells are compared at the end points of the edge that they share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from derive.balance import a, delta, gamma, l, w
from derive.polyhedra import Form, evaluate_form, rational_form
from derive.scaling import Regime

__all__ = ["Box", "Jump", "Tile", "box", "discontinuities", "tiles"]

Point = tuple[Fraction, Fraction]
Polygon = tuple[Point, ...]
# a from and to, l from and to.
Box = tuple[sp.Rational, sp.Rational, sp.Rational, sp.Rational]


def box(value: sp.Rational, scale: sp.Rational) -> Box:
    """A part of the plane that shows every regime at gamma = value, delta = scale."""
    right = max(3, 2 + 2 * value + sp.Abs(scale))
    return sp.Rational(1, 2), sp.Rational(right), -2 - sp.Abs(scale), sp.Rational(right) / 2


@dataclass(frozen=True)
class Tile:
    """A cell of the arrangement with the regime that holds in it.

    Attributes
    ----------
    corners : tuple of (a, l)
        In cyclic order.
    exponent : Form
        Exponent of R as coefficients of a, l and one.
    """

    corners: Polygon
    regime: Regime
    exponent: Form


@dataclass(frozen=True)
class Jump:
    """An edge across which the exponent of R is not continuous."""

    ends: tuple[Point, Point]
    regimes: tuple[str, str]
    exponents: tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]


def tiles(table: Sequence[Regime], at: dict[sp.Symbol, sp.Rational], box: Box) -> tuple[Tile, ...]:
    """Cut the box along every condition and name the regime of each piece.

    Parameters
    ----------
    at : dict
        Rational values of gamma, delta and, where it appears, w.

    Raises
    ------
    ValueError
        A piece in no regime, or in two.
    """
    values = {gamma: at[gamma], delta: at[delta], w: at.get(w, sp.Integer(1))}

    def form(expression: sp.Expr) -> Form:
        return rational_form(expression.subs(values), (a, l))

    cells = [
        (regime, form(regime.exponent), [form(c) for c in cell.conditions])
        for regime in table
        for cell in regime.cells
    ]
    lines = {_line(f) for _, _, conditions in cells for f in conditions if any(f[:2])}
    corners = [Fraction(int(x.p), int(x.q)) for x in map(sp.Rational, box)]
    pieces: list[Polygon] = [_rectangle(*corners)]
    for line in sorted(lines):
        pieces = [part for piece in pieces for part in _cut(piece, line)]
    return tuple(_named(piece, cells) for piece in pieces)


def _named(piece: Polygon, cells: list[tuple[Regime, Form, list[Form]]]) -> Tile:
    centre = [sum(x) / len(piece) for x in zip(*piece, strict=True)]
    # A form that vanishes on the whole plane (R ~ Delta where both are of order one) excludes nothing.
    holding = {
        regime.name: (regime, exponent)
        for regime, exponent, conditions in cells
        if all(not any(f) or evaluate_form(f, centre) > 0 for f in conditions)
    }
    if len(holding) != 1:
        names = " and ".join(holding) or "no regime"
        raise ValueError(f"{names} at a = {centre[0]}, l = {centre[1]}")
    return Tile(piece, *next(iter(holding.values())))


def discontinuities(found: Sequence[Tile]) -> tuple[Jump, ...]:
    """Edges shared by two tiles on which their exponents differ."""
    shared: dict[frozenset[Point], list[Tile]] = {}
    for tile in found:
        for edge in zip(tile.corners, (*tile.corners[1:], tile.corners[0]), strict=True):
            shared.setdefault(frozenset(edge), []).append(tile)
    jumps = []
    for ends, neighbours in shared.items():
        if len(neighbours) != 2:
            continue
        first, second = sorted(ends)
        one, two = (
            (evaluate_form(t.exponent, first), evaluate_form(t.exponent, second)) for t in neighbours
        )
        if one != two:
            names = (neighbours[0].regime.name, neighbours[1].regime.name)
            jumps.append(Jump((first, second), names, (one, two)))
    return tuple(jumps)


def _rectangle(left: Fraction, right: Fraction, low: Fraction, high: Fraction) -> Polygon:
    return ((left, low), (right, low), (right, high), (left, high))


def _line(form: Form) -> Form:
    """The zero set of a form: its coefficients up to a factor."""
    lead = next(c for c in form if c)
    return tuple(c / lead for c in form)


def _cut(piece: Polygon, line: Form) -> list[Polygon]:
    """The parts of a convex polygon on both sides of a line."""
    heights = [evaluate_form(line, corner) for corner in piece]
    if min(heights) >= 0 or max(heights) <= 0:
        return [piece]
    sides: tuple[list[Point], list[Point]] = ([], [])
    around = zip(piece, heights, (*piece[1:], piece[0]), (*heights[1:], heights[0]), strict=True)
    for here, height, there, other in around:
        for side, sign in zip(sides, (1, -1), strict=True):
            if height * sign >= 0:
                side.append(here)
        if height * other < 0:
            share = height / (height - other)
            crossing = (here[0] + share * (there[0] - here[0]), here[1] + share * (there[1] - here[1]))
            for side in sides:
                side.append(crossing)
    return [tuple(side) for side in sides]
