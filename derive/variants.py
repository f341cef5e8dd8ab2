"""The scaling law under other protocols: best lam, lam ~ n^x, no noise, direct training; the peak."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import sympy as sp

from derive import symbols as s
from derive.balance import Balance, a, delta, l, linear_balance, log_d, n, r
from derive.balance import d as size
from derive.limit_laws import noise_bulk
from derive.saddle import direct_solution, reduced_system
from derive.scaling import Cell, Regime, best_cells, cleared, grouped, named, possible
from derive.spectra import CutMoment
from derive.thresholds import phi

__all__ = ["Best", "along", "best", "direct_regimes", "interpolation_peak", "noiseless"]


@dataclass(frozen=True)
class Best:
    """A regime of the best penalty at each n, with the largest l that attains it (None: any)."""

    regime: Regime
    penalty: sp.Expr | None


@cache
def best(model: Balance | None = None) -> tuple[Best, ...]:
    """The envelope over l: the least exponent of R at each n, and the penalty that attains it.

    A smaller lam helps until theta reaches the edge of the noise, theta ~ 2 tau; below it E_over can
    only add. So the envelope is the case of a cut at the edge through which nothing passes.
    """
    model = model or linear_balance()
    found = []
    for regime in named(model, best_cells(model)):
        cell = regime.cells[0]
        tau2 = model.noise.subs(r, cell.exponent if cell.tau == "data" else delta)
        penalty = None if cell.modes == "none" else sp.expand(sp.solve(model.shrinkage - tau2 / 2, l)[0])
        found.append(Best(regime, penalty))
    return tuple(found)


def along(table: Sequence[Regime], power: sp.Expr) -> tuple[Regime, ...]:
    """The table on the line lam ~ n^power, l = power a, with f along that line."""
    line = {l: power * a}
    moved = []
    for regime in table:
        shifted = [
            replace(
                cell,
                exponent=sp.expand(cell.exponent.subs(line)),
                conditions=tuple(cleared(c.subs(line)) for c in cell.conditions),
            )
            for cell in regime.cells
        ]
        kept = tuple(filter(possible, shifted))
        if kept:
            f = sp.factor(-sp.diff(kept[0].exponent, a))
            moved.append(replace(regime, exponent=kept[0].exponent, f=f, cells=kept))
    return tuple(moved)


def noiseless(table: Sequence[Regime]) -> tuple[Regime, ...]:
    """The table at Delta = 0: delta -> -oo, so R sets tau."""
    kept = []
    for regime in table:
        cells = tuple(
            replace(cell, conditions=tuple(c for c in cell.conditions if not c.has(delta)))
            for cell in regime.cells
            if cell.tau == "data"
        )
        if cells:
            kept.append(replace(regime, cells=cells))
    return tuple(kept)


# --- direct training ------------------------------------------------------------------------------


@cache
def direct_regimes() -> tuple[Regime, ...]:
    """Direct (Frobenius) training: linear shrinkage knows no modes, so gamma never enters.

    S = shrink (S0 + tau G) with scale (1 - shrink) = lam. The equation for ``scale`` and the risk
    (1 - shrink)^2 Q0 + shrink^2 Delta/(4 alpha) are balanced term by term.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in filter(possible, _direct_cells()):
        groups.setdefault(_DIRECT[cell.dominant, cell.modes], []).append(cell)
    how = "scale + 2 against 4 alpha (1 + ...): linear shrinkage"
    return tuple(grouped(name, cells, how) for name, cells in groups.items())


_DIRECT = {
    ("bias", "none"): "nothing learned",
    ("bias", "some"): "nothing learned",
    ("bias", "all"): "shrunk",
    ("variance", "none"): "noise under a strong penalty",
    ("variance", "some"): "noise of too few samples",
    ("variance", "all"): "every direction resolved",
}


def _direct_cells() -> Iterator[Cell]:
    scale = sp.Symbol("scale", nonnegative=True)
    shrink = direct_solution().shrink
    equation = sp.expand(sp.numer(sp.together(scale * (1 - shrink) - s.lam)))
    x = sp.Symbol("x")
    sides: dict[bool, list[sp.Expr]] = {True: [], False: []}
    for term in sp.Add.make_args(equation):
        positive = bool(term.as_coeff_Mul()[0] > 0)
        sides[positive] += log_d(term.subs(s.alpha, n / size**2), scale=x)
    # shrink = 4 alpha/(scale + 2): its denominator is a sum of positive terms.
    top, bottom = sp.fraction(sp.cancel(shrink))
    (alpha,) = log_d(top.subs(s.alpha, n / size**2))
    for left, right, below in product(sides[True], sides[False], log_d(bottom, scale=x)):
        solved = sp.solve(left - right, x)
        if not solved:
            continue  # x drops out: a wall
        inside = [left - o for o in sides[True]] + [right - o for o in sides[False]]
        inside += [below - o for o in log_d(bottom, scale=x)]
        bias, shrinkage = 2 * (l - x), alpha - below
        # S = shrink (S0 + tau G) with shrink ~ 1, or ~ alpha for want of samples, or ~ alpha/lam.
        modes = "all" if solved[0] == alpha else "some" if below == 0 else "none"
        terms = {"bias": bias, "variance": 2 * shrinkage + delta - alpha}
        at = {x: solved[0]}
        for name, other in (("bias", "variance"), ("variance", "bias")):
            conditions = [sp.expand(form.subs(at)) for form in (*inside, terms[name] - terms[other])]
            kept = tuple(cleared(form) for form in conditions if form != 0)
            if all(form.is_positive is not False for form in kept if form.is_number):
                exponent = sp.expand(terms[name].subs(at))
                kept = tuple(form for form in kept if not form.is_number)
                yield Cell("noise", "penalty", modes, name, (), exponent, kept, None)


# --- the interpolation peak -----------------------------------------------------------------------


def interpolation_peak() -> sp.Expr:
    """R at the interpolation threshold of S0 = 0, alpha = 1/4, for lam -> 0+.

    The cut stands at theta = u tau with u -> 0: psi and E_over/tau2 leave their values at the threshold,
    2 alpha, linearly, and the width and shrinkage equations fix u and tau.
    """
    u, tau = sp.symbols("u tau", positive=True)
    bulk = {k: e.subs(phi, sp.acos(u / 2)) for k, e in noise_bulk().items()}
    start = {k: sp.simplify(e.subs(u, 0)) for k, e in bulk.items()}
    slope = {k: sp.simplify(sp.diff(e, u).subs(u, 0)) for k, e in bulk.items()}
    if start["psi"] != start["E_over/tau2"]:
        raise ValueError("psi = 2 alpha does not meet E_over = 2 alpha tau2 at theta = 0")
    (psi,) = reduced_system().A.atoms(CutMoment)
    gain = reduced_system().A.subs({s.alpha: start["psi"] / 2, psi: start["psi"] + slope["psi"] * u})
    # 2 alpha tau2 = R + Delta/2 with R = E_over.
    opening = sp.solve(-slope["E_over/tau2"] * u * tau**2 - s.Delta / 2, u)[0]
    width = sp.solve((u * tau * gain).subs(u, opening) - s.lam, tau)
    real = next(root for root in width if root.subs({s.Delta: 1, s.lam: 1}).is_real)
    return sp.simplify(start["E_over/tau2"] * real**2)
