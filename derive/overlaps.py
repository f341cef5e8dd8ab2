"""Eigenvectors: their overlaps with those of the target, and the part of the error that each causes.

Subordination holds for the resolvent itself, E (z - S0 - tau G)^-1 = (w(z) - S0)^-1 (Biane 1998; Ledoit
and Peche 2011; Allez and Bouchaud 2014). An eigenvector at x and a direction of the target at s have
therefore the overlap O(x, s) with rho(x) O(x, s) = -(1/pi) Im 1/(w - s) at w = w(x + i0).
"""

from functools import cache

import sympy as sp

from derive import symbols as s
from derive.linear import LinearChannel
from derive.modes import strength
from derive.saddle import definitions
from derive.spectra import g, w

__all__ = [
    "INTEGRALS",
    "TERMS",
    "eigenvalue_cost",
    "fit",
    "in_m",
    "in_q",
    "learned",
    "linear_slopes",
    "overlap_kernel",
    "seen",
    "seen_target",
    "terms",
]

learned, seen = sp.symbols("F y", real=True)
# Slopes of the error (R for the linear task, else the test loss) in the overlaps q and m.
in_q, in_m = sp.symbols("e_q e_m", real=True)
# Integrals over the eigenvectors that fit noise and over those that hold a recovered direction: of F^2,
# F y, y^2, and of the squared eigenvalues of the target that are missed and found.
INTEGRALS = ("noise_FF", "noise_Fy", "FF", "Fy", "yy", "missed", "found")
TERMS = ("over", "under", "approx", "mismatch")


def overlap_kernel() -> sp.Expr:
    """Minus pi rho(x) O(x, s) is the imaginary part of this, with `derive.modes.strength` for s."""
    return 1 / (w - strength)


def seen_target() -> sp.Expr:
    """Minus pi rho(x) y(x) is the imaginary part of this, with y = v' S0 v for an eigenvector v at x.

    The kernel is averaged with s over the target's law: s/(w - s) = w/(w - s) - 1.
    """
    kernel, average = overlap_kernel(), sp.Symbol("average")
    divided = sp.apart(strength * kernel, strength)
    in_kernel = sp.expand(divided).subs(kernel, average).subs(-1 / (strength - w), average)
    if in_kernel.has(strength):
        raise ValueError(f"not a multiple of the kernel: {divided}")
    return in_kernel.subs(average, g)


@cache
def linear_slopes() -> tuple[sp.Expr, sp.Expr]:
    """Slopes in q and m of the linear task's excess risk R; its test loss is 2 R + Delta."""
    risk = definitions(LinearChannel(), "nuclear")["excess_risk"]
    return sp.diff(risk, s.q), sp.diff(risk, s.m)


def eigenvalue_cost() -> sp.Expr:
    """What an eigenvector with learned eigenvalue F adds to d times the error.

    It adds F^2/d to q and F y/d to m; everything else stays fixed.
    """
    return in_q * learned**2 + in_m * seen * learned


@cache
def fit() -> sp.Expr:
    """The multiple a of y at which the cost of an eigenvalue is least (one for the linear task)."""
    return sp.solve(sp.diff(eigenvalue_cost(), learned), learned)[0] / seen


@cache
def terms() -> dict[str, sp.Expr]:
    """The four terms of the error in `INTEGRALS` and its slopes (THEORY.md section 8).

    mismatch: cost of the learned eigenvalue over the least cost, of recovered directions. approx: what
    that least cost leaves of the squared eigenvalue of the target. over and under: the squares and the
    rest of what the other eigenvectors do. ``total`` is their sum, in_q norm(S - a S0)_F^2/d.

    Raises
    ------
    ValueError
        The four do not add up.
    """
    found = {name: sp.Symbol(name, real=True) for name in INTEGRALS}
    integrals = {learned**2: found["FF"], learned * seen: found["Fy"], seen**2: found["yy"]}
    noise = {learned**2: found["noise_FF"], learned * seen: found["noise_Fy"]}
    cost, a = eigenvalue_cost(), fit()
    least = sp.expand(cost.subs(learned, a * seen))
    nothing_learned = in_q * a**2
    shares = {
        "over": (in_q * learned**2).subs(noise),
        "under": nothing_learned * found["missed"] + (in_m * learned * seen).subs(noise),
        "approx": nothing_learned * found["found"] + least.subs(integrals),
        "mismatch": sp.expand(cost - least).subs(integrals),
    }
    overlaps = {
        s.q: found["noise_FF"] + found["FF"],
        s.m: found["noise_Fy"] + found["Fy"],
        s.Q0: found["missed"] + found["found"],
    }
    total = in_q * (s.q - 2 * a * s.m + a**2 * s.Q0)
    if sp.simplify(sp.Add(*shares.values()) - total.subs(overlaps)) != 0:
        raise ValueError("the four terms do not add up to the distance to the target")
    return {name: sp.factor(share) for name, share in shares.items()} | {"total": total}
