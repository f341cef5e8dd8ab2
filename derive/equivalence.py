"""Whether a user's equations are the engine's: eliminate with the engine's own and see what is left.

The engine's equations are solved for what channel and spectrum bring in (averages, or alpha and Delta;
the functionals of nu). What remains is independent: an equation follows from the engine's if and only
if it becomes an identity.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import sympy as sp

from derive import symbols as s
from derive.expressions import AVERAGES, ENGINE_NAMES, rescaled
from derive.gaussian import ChannelAverage
from derive.linear import LinearChannel
from derive.model import Problem
from derive.saddle import saddle_equations
from derive.spectra import (
    CutMoment,
    PositivePart,
    SpectralIntegral,
    SpectralPair,
    free_moments,
    in_cut_moments,
)

__all__ = ["CONVENTIONS", "Convention", "Finding", "check_equations", "fixed", "recognise"]

Equation = tuple[sp.Expr, sp.Expr]
_AVERAGE = dict(zip(("field", "student", "square"), AVERAGES.values(), strict=True))
_DIGITS, _POINTS = 40, 5


@dataclass(frozen=True)
class Convention:
    """A common normalisation: what a user's letter is in the engine's."""

    name: str
    letters: dict[sp.Symbol, sp.Expr]


CONVENTIONS = (
    Convention(
        "the loss is halved (A, M, lam and x are half, C a quarter, V twice ours)",
        {
            **{v: v / 2 for v in (s.A, s.M, s.lam, s.x)},
            s.C: s.C / 4,
            s.V: 2 * s.V,
        },
    ),
    Convention("V is Sigma = 2 V", {s.V: 2 * s.V}),
    Convention(
        "the hats are per sample (A, M, C are ours over alpha)",
        {v: v / s.alpha for v in (s.A, s.M, s.C)},
    ),
    Convention(
        "lam is the weight decay on W (ours is lam sqrt(kappa))",
        {s.lam: s.lam / sp.sqrt(ENGINE_NAMES["kappa"])},
    ),
    Convention("samples are counted per d(d+1)/2 (alpha is twice ours)", {s.alpha: 2 * s.alpha}),
    Convention("A and C are halved", {s.A: s.A / 2, s.C: s.C / 2}),
    Convention("A and C are doubled", {s.A: 2 * s.A, s.C: 2 * s.C}),
)


@dataclass(frozen=True)
class Finding:
    """What became of one equation.

    Attributes
    ----------
    holds : bool
        Whether it follows from the engine's equations.
    how : str
        ``symbolically``, or ``numerically`` where that decided.
    yours, ours : sympy.Expr or None
        Where it does not hold: the first term of its right side that the engine's has not, and the
        engine's right side for the same left side.
    ratio : sympy.Expr or None
        Right side over the engine's, where that is a number.
    """

    equation: Equation
    holds: bool
    how: str
    yours: sp.Expr | None = None
    ours: sp.Expr | None = None
    ratio: sp.Expr | None = None


def check_equations(problem: Problem, equations: Sequence[Equation]) -> list[Finding]:
    """Decide each equation by itself."""
    found = []
    for left, right in equations:
        holds, how = _decided(problem, left, right)
        if holds:
            found.append(Finding((left, right), True, how))
        else:
            found.append(_differing(problem, left, right, how))
    return found


def fixed(problem: Problem, equations: Sequence[Equation]) -> int:
    """How many of q, m, V, A, M, C equations that hold can fix: their rank at a point of the solutions.

    The functionals of nu count as given there.
    """
    unknowns = (s.q, s.m, s.V, s.A, s.M, s.C)
    left = sp.Matrix([_in_moments(a - b, problem.penalty) for a, b in equations])
    slopes = _on_solutions(problem, left.jacobian(unknowns))
    at = _random_point(slopes, random.Random(1))
    return int(slopes.subs(at).rank(iszerofunc=lambda e: abs(e.evalf(30)) < 1e-20))


def recognise(problem: Problem, equations: Sequence[Equation]) -> tuple[Convention, ...] | None:
    """The fewest conventions, at most two, under which every equation holds."""
    for count in (1, 2):
        for chosen in combinations(CONVENTIONS, count):
            read = list(equations)
            for convention in chosen:
                read = [tuple(_reread(side, convention) for side in each) for each in read]
            if all(_decided(problem, *each)[0] for each in read):
                return chosen
    return None


def _reread(expression: sp.Expr, convention: Convention) -> sp.Expr:
    """The expression in the engine's letters; nu stays the law of the engine's B."""
    functionals = {e: sp.Dummy() for e in expression.atoms(SpectralIntegral, SpectralPair)}
    outside = expression.subs(functionals).subs(convention.letters, simultaneous=True)
    return outside.subs({dummy: _reread_functional(e, convention) for e, dummy in functionals.items()})


def _reread_functional(functional: sp.Expr, convention: Convention) -> sp.Expr:
    integrand = functional.integrand.subs(convention.letters, simultaneous=True)
    slope = convention.letters.get(s.x, s.x) / s.x
    value = type(functional)(rescaled(integrand), s.M, s.C)
    return value / slope if isinstance(functional, SpectralPair) else value


# --- elimination ----------------------------------------------------------------------------------


def _eliminated(problem: Problem, expression: sp.Expr) -> sp.Expr:
    """The expression on the solutions of the engine's equations, in what is independent there."""
    return sp.together(_on_solutions(problem, _in_moments(expression, problem.penalty)))


def _on_solutions(problem: Problem, value: Any) -> Any:
    """An expression or a matrix with every rule inserted."""
    for symbol, rule in _rules(problem):
        value = value.subs(symbol, rule)
    return value


@cache
def _rules(problem: Problem) -> tuple[tuple[sp.Symbol, sp.Expr], ...]:
    """One after the other: a symbol and what it is on the solutions."""
    own = saddle_equations(problem.channel, problem.penalty)
    channel = {v: sp.Eq(v, _named(own[v])) for v in (s.A, s.M, s.C)}
    spectrum = {v: sp.Eq(v, _in_moments(own[v], problem.penalty)) for v in (s.q, s.m, s.V)}
    if problem.penalty == "frobenius":  # S = B/(A + lam) is linear in B
        pairs = ((s.C, s.q), (s.Q0, s.m), (s.lam, s.V))
    else:
        pairs = ((_moment(1), s.m), (_moment(2), s.q), (_psi, s.V))
    of_spectrum = [(symbol, sp.solve(spectrum[v], symbol)[0]) for symbol, v in pairs]
    if isinstance(problem.channel, LinearChannel):
        noise, alpha = (sp.solve(channel[v], k)[0] for k, v in ((s.Delta, s.C), (s.alpha, s.A)))
        M = channel[s.M].rhs.subs(s.alpha, alpha)
        return ((s.Delta, noise), (s.alpha, alpha), *of_spectrum, (s.M, sp.cancel(M)))
    averages = sp.solve(list(channel.values()), list(_AVERAGE.values()), dict=True)[0]
    return (*averages.items(), *of_spectrum)


def _named(expression: sp.Expr) -> sp.Expr:
    """Channel averages as plain symbols."""
    return expression.replace(
        lambda e: isinstance(e, ChannelAverage), lambda e: _AVERAGE[str(e.args[0])]
    )


def _moment(k: int) -> sp.Symbol:
    return sp.Symbol(f"I{k}", positive=True)


_psi = sp.Symbol("psi", positive=True)


def _in_moments(expression: sp.Expr, penalty: str) -> sp.Expr:
    """Functionals of nu as the moments I0, I1, I2 above the cut and psi, or as moments of S0.

    What the engine's equations do not hold is a quantity of its own, to which nothing is equal.
    """
    if penalty == "frobenius":
        return free_moments(expression, s.mean, s.Q0).replace(_is_functional, _opaque)
    own = expression.replace(lambda e: _is_functional(e) and not _is_cut(e), _opaque)
    in_cut = in_cut_moments(own, s.tau2, s.theta).replace(
        CutMoment, lambda j, k, *_: _psi if (j, k) == (2, 1) else _moment(k)
    )
    return in_cut.subs(s.theta, s.lam / s.M)


def _is_functional(expression: sp.Basic) -> bool:
    return isinstance(expression, SpectralIntegral | SpectralPair)


def _is_cut(functional: sp.Expr) -> bool:
    """Whether it is one of the cut moments of the nuclear penalty."""
    f = functional.integrand
    if isinstance(functional, SpectralPair):
        return bool(f == PositivePart(s.x - s.lam, 1))
    parts = f.atoms(PositivePart)
    cut = len(parts) == 1 and all(part.args[0] == s.x - s.lam for part in parts)
    return cut and sp.cancel(f / next(iter(parts))).is_polynomial(s.x)


def _opaque(functional: sp.Expr) -> sp.Expr:
    return sp.Symbol(str(functional), positive=True)


# --- decision -------------------------------------------------------------------------------------


def _decided(problem: Problem, left: sp.Expr, right: sp.Expr) -> tuple[bool, str]:
    """Whether an equation follows from the engine's, and how that was found."""
    return _vanishes(_eliminated(problem, left) - _eliminated(problem, right))


def _random_point(expression: Any, rng: random.Random) -> dict[sp.Symbol, sp.Rational]:
    letters = sorted(expression.free_symbols, key=str)
    return {v: sp.Rational(rng.randint(100, 999), 500) for v in letters}


def _vanishes(residual: sp.Expr) -> tuple[bool, str]:
    """Whether an expression is zero, and whether symbols or numbers said so."""
    numerator = sp.numer(sp.together(residual))
    if numerator.is_polynomial(*numerator.free_symbols):
        return sp.expand(numerator) == 0, "symbolically"
    if sp.simplify(residual) == 0:
        return True, "symbolically"
    rng = random.Random(0)
    for _ in range(_POINTS):
        value = residual.subs(_random_point(residual, rng)).evalf(_DIGITS + 20, maxn=400)
        if abs(value) > sp.Rational(1, 10**_DIGITS):
            return False, "numerically"
    return True, "numerically"


def _differing(problem: Problem, left: sp.Expr, right: sp.Expr, how: str) -> Finding:
    """The first term of the right side that is not among the engine's for this left side."""
    own = saddle_equations(problem.channel, problem.penalty)
    ours = _named(left.subs(own, simultaneous=True))
    terms = [sp.cancel(term) for term in sp.Add.make_args(sp.expand(ours))]
    mine = sp.Add.make_args(sp.expand(right))
    first = next((t for t in mine if not any(sp.cancel(t - own_term) == 0 for own_term in terms)), right)
    quotient = sp.cancel(_eliminated(problem, right) / _eliminated(problem, left))
    return Finding((left, right), False, how, first, ours, quotient if quotient.is_number else None)
