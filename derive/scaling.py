"""Regimes of the scaling law: the max-plus self-consistency of a `Balance`, solved case by case.

A case says what sets tau (R or Delta), what sets the cut (penalty or edge of the noise), how many modes
pass it, and which term of R is the largest. Its equation for the exponent r of R is linear; its
inequalities are what was assumed. Cases whose inequalities cannot hold are dropped, the others
grouped by name: the table of THEORY.md section 7.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import sympy as sp

from derive.balance import Balance, Passage, a, delta, gamma, l, linear_balance, monomial, r, t2, w
from derive.polyhedra import interior_point, rational_form

__all__ = ["Cell", "Regime", "best_cells", "cells", "cleared", "grouped", "named", "possible", "regimes"]

# Exponents at which a case must be possible to be kept; all that matters is on which side of the
# crossings of its inequalities gamma lies.
WITNESSES = tuple(map(sp.Rational, ("11/20", "3/5", "3/4", "1", "3/2", "2", "5")))
VARIABLES = (a, l, delta, w)


@dataclass(frozen=True)
class Cell:
    """One case: a convex region of the exponents (a, l, delta, w).

    Attributes
    ----------
    tau, cut, modes : str
        ``data`` or ``noise``; ``penalty`` or ``edge``; ``none``, ``some`` or ``all``.
    dominant : str
        Largest term of R: under, bias, variance, over or width.
    ties : tuple of str
        Terms of the same exponent.
    exponent : sympy.Expr
        R ~ d^exponent.
    conditions : tuple of sympy.Expr
        Linear forms, positive inside.
    passage : Passage or None
        How noise passes, for a cut at the edge.
    """

    tau: str
    cut: str
    modes: str
    dominant: str
    ties: tuple[str, ...]
    exponent: sp.Expr
    conditions: tuple[sp.Expr, ...]
    passage: Passage | None


@dataclass(frozen=True)
class Regime:
    """Cells with one name and one exponent.

    Attributes
    ----------
    exponent : sympy.Expr
        R ~ d^exponent, linear in a, l, delta, w; gamma is a symbol.
    f : sympy.Expr
        R ~ n^(-f) at fixed d, lam, Delta.
    log_power : int
        Power of log(d/n) that multiplies R.
    """

    name: str
    exponent: sp.Expr
    f: sp.Expr
    dominant: str
    ties: tuple[str, ...]
    derivation: str
    log_power: int
    cells: tuple[Cell, ...]


def _terms(
    model: Balance, modes: str, kappa: sp.Expr, theta: sp.Expr, tau2: sp.Expr, wide: bool
) -> dict[str, sp.Expr]:
    """Exponents of the terms of R but E_over."""
    if modes == "none":
        return {"under": model.missed(sp.Integer(0))}
    count = kappa if modes == "some" else (sp.Integer(1) if wide else w)
    terms = {
        "bias": model.recovered(count, 2 * theta),
        "variance": model.recovered(count, tau2),
    }
    if modes == "some":
        return {"under": model.missed(kappa), **terms}
    # A student of width p is full: it misses the modes beyond p for want of rank.
    return terms if wide else {"width": model.missed(w), **terms}


def _count(
    model: Balance, modes: str, height: sp.Expr, capacity: sp.Expr
) -> tuple[sp.Expr, list[sp.Expr]]:
    """Exponent of the number of modes above a cut, s_k = d^height, with what ``modes`` says about it."""
    kappa = sp.expand((model.largest - height) / gamma)
    said = {"none": [-kappa], "some": [kappa, capacity - kappa], "all": [kappa - capacity]}
    return kappa, said[modes]


def cells(model: Balance, wide: bool) -> Iterator[Cell]:
    """All cases whose equation for r has a solution."""
    capacity = sp.Integer(1) if wide else w
    for (tau, level), modes, passage in product(_LEVELS, _MODES, (None, *model.passages)):
        tau2 = model.noise.subs(r, level)
        at_edge = passage is not None and passage.at_edge
        height = model.shrinkage if passage is None else tau2 / 2
        theta = tau2 / 2 if at_edge else model.shrinkage
        kappa, count = _count(model, modes, height, capacity)
        terms = _terms(model, modes, kappa, theta, tau2, wide)
        order = model.shrinkage - tau2 / 2
        conditions = [*_own(tau), order if passage is None else -order, *count]
        if passage is not None:
            conditions += passage.conditions
            if modes != "all":  # else no noise direction is left to pass
                terms["over"] = passage.risk.subs(t2, tau2)
        if wide:
            terms = {name: form.subs(w, 1) for name, form in terms.items()}
            conditions = [form.subs(w, 1) for form in conditions]
        else:
            conditions += [w, 1 - w]
        cut = "penalty" if passage is None else "edge"
        yield from _balanced(tau, cut, modes, terms, conditions, passage)


def best_cells(model: Balance) -> Iterator[Cell]:
    """Cases of a cut at the edge of the noise, theta ~ 2 tau, through which nothing passes."""
    for (tau, level), modes in product(_LEVELS, _MODES):
        tau2 = model.noise.subs(r, level)
        kappa, count = _count(model, modes, tau2 / 2, sp.Integer(1))
        terms = _terms(model, modes, kappa, tau2 / 2, tau2, wide=True)
        yield from _balanced(tau, "edge", modes, terms, [*_own(tau), *count], None)


_LEVELS = (("data", r), ("noise", delta))
_MODES = ("none", "some", "all")


def _own(tau: str) -> list[sp.Expr]:
    """Whether R or Delta is the larger one in tau^2."""
    return [r - delta] if tau == "data" else [delta - r]


def _balanced(
    tau: str,
    cut: str,
    modes: str,
    terms: dict[str, sp.Expr],
    conditions: list[sp.Expr],
    passage: Passage | None,
) -> Iterator[Cell]:
    """Solve r = term for each term that can be the largest."""
    solved: set[sp.Expr] = set()
    for name, term in terms.items():
        slope = sp.simplify(sp.diff(term, r))
        if slope == 1:
            continue  # r drops out: the balance fixes n instead (a wall, such as the interpolation peak)
        exponent = _tidy(sp.solve(term - r, r)[0])
        if exponent in solved:
            continue
        solved.add(exponent)
        margins = {other: _tidy((r - form).subs(r, exponent)) for other, form in terms.items()}
        logs = passage.log_power if passage else 0
        equal = [other for other, gap in margins.items() if gap == 0 and other != name]
        ties = tuple(other for other in equal if other != "over" or not logs)
        inside = [cleared(c.subs(r, exponent)) for c in conditions]
        if tau == "noise":  # R ~ Delta up to a logarithm: counted here, not with the data
            inside = [c for c in inside if c != 0]
        inside += [cleared(gap) for gap in margins.values() if gap != 0]
        if any(c.is_number and not c.is_positive for c in inside):
            continue
        kept = tuple(dict.fromkeys(c for c in inside if not c.is_number))
        yield Cell(tau, cut, modes, name, ties, exponent, kept, passage)


def _tidy(form: sp.Expr) -> sp.Expr:
    """A linear form with simplified coefficients in gamma."""
    polynomial = sp.Poly(sp.expand(form), *VARIABLES, r)
    return sp.Add(*(sp.factor(c) * sp.prod(m) for m, c in _monomials(polynomial)))


def cleared(form: sp.Expr) -> sp.Expr:
    """A linear form times a positive factor that makes its coefficients coprime polynomials in gamma."""
    numerator, denominator = sp.fraction(sp.together(form))
    if numerator == 0:
        return sp.Integer(0)
    polynomial = sp.Poly(numerator, *VARIABLES, r, domain=sp.ZZ[gamma])
    content, primitive = polynomial.primitive()
    sign = sp.sign((sp.sympify(content) / denominator).subs(gamma, _ABOVE_HALF))
    return sp.expand(sign * primitive.as_expr())


# Where signs are read off: contents are products of gamma and 2 gamma - 1, positive for gamma > 1/2.
_ABOVE_HALF = 2


def _monomials(polynomial: sp.Poly) -> Iterator[tuple[list[sp.Expr], sp.Expr]]:
    for powers, coefficient in polynomial.terms():
        yield [x**e for x, e in zip(polynomial.gens, powers, strict=True)], coefficient


def possible(cell: Cell) -> bool:
    """Whether its conditions can hold together, for some gamma > 1/2."""
    for value in WITNESSES:
        forms = [rational_form(c.subs(gamma, value), VARIABLES) for c in cell.conditions]
        if interior_point(forms) is not None:
            return True
    return False


def _name(cell: Cell) -> str:
    if cell.dominant == "over":
        assert cell.passage is not None
        return cell.passage.name
    if cell.dominant == "width":
        return "width-limited"
    if cell.modes == "none":
        return "nothing recovered"
    if cell.cut == "penalty":
        return "over-regularised" + (", every mode recovered" if cell.modes == "all" else "")
    if cell.modes == "all":
        return "every mode resolved"
    return "data-limited" if cell.tau == "data" else "noise-limited"


def _derivation(model: Balance, cell: Cell) -> str:
    """The balance in words."""
    theta, tau = monomial(model.shrinkage), monomial(model.noise - r)
    cut = f"theta ~ {theta} >> tau" if cell.cut == "penalty" else "theta ~ 2 tau"
    if cell.passage is not None and not cell.passage.at_edge:
        cut = "theta << tau"
    count = {
        "none": "s_1 below the cut",
        "some": "s_k at the cut",
        "all": "every s_i above the cut" if cell.dominant != "width" else "p modes above the cut",
    }[cell.modes]
    noise = f"tau^2 ~ {'R' if cell.tau == 'data' else 'Delta'} {tau}".replace(" 1/", "/")
    if cell.dominant == "over":
        assert cell.passage is not None
        return "; ".join((noise, cell.passage.balance, "R ~ over"))
    needs_tau = cell.cut == "edge" and cell.modes != "none" and cell.dominant != "width"
    largest = " ~ ".join((cell.dominant, *cell.ties))
    return "; ".join((cut, *([noise] if needs_tau else []), count, f"R ~ {largest}"))


@cache
def regimes(model: Balance | None = None, wide: bool = True) -> tuple[Regime, ...]:
    """Every regime of a model, each with its exponent, region and balance.

    Parameters
    ----------
    model : Balance, optional
        The linear task unless stated.
    wide : bool
        A student of width p = d, or one of width d^w with 0 < w < 1.
    """
    model = model or linear_balance()
    return named(model, cells(model, wide))


def named(model: Balance, found: Iterable[Cell]) -> tuple[Regime, ...]:
    """Drop the impossible cells, group the others by name.

    Raises
    ------
    ValueError
        Cells of one name have different exponents.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in filter(possible, found):
        groups.setdefault(_name(cell), []).append(cell)
    table = [grouped(name, cells, _derivation(model, cells[0])) for name, cells in groups.items()]
    return tuple(sorted(table, key=lambda regime: _ORDER.index(regime.name)))


def grouped(name: str, members: Sequence[Cell], derivation: str) -> Regime:
    """One regime from its cells.

    Raises
    ------
    ValueError
        The cells have different exponents.
    """
    first = members[0]
    if any(cell.exponent != first.exponent for cell in members):
        raise ValueError(f"{name} has more than one exponent")
    log_power = first.passage.log_power if first.passage and first.dominant == "over" else 0
    f = sp.factor(-sp.diff(first.exponent, a))
    terms = (first.dominant, first.ties)
    return Regime(name, first.exponent, f, *terms, derivation, log_power, tuple(members))


_ORDER = (
    "nothing recovered",
    "data-limited",
    "noise-limited",
    "over-regularised",
    "over-regularised, every mode recovered",
    "interpolating bulk",
    "interpolating narrow student",
    "half the bulk passes",
    "every mode resolved",
    "width-limited",
)
