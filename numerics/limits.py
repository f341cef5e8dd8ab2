"""Solutions that are limits of the equations: S = 0 (collapsed) and R = 0 (recovered)."""

from typing import Any

import sympy as sp

from derive import symbols as s
from derive.generate import compile_function
from derive.model import Problem
from derive.saddle import reduced_system
from derive.spectra import CutMoment
from numerics.laws import mp_law
from numerics.precision import context, evaluate
from numerics.small_noise import SmallNoiseLimit
from numerics.solution import KEYS, NotConverged, Solution
from numerics.thresholds import perfect_recovery

__all__ = ["collapsed", "floor", "plain", "recovered", "recovers"]


def floor(digits: int) -> float:
    """Relative error of a value that is exact up to its last digit."""
    return 2.3e-16 if digits <= 15 else 10.0 ** max(-digits, -300)


def plain(values: dict[str, Any], digits: int) -> dict[str, Any]:
    """Floats where no more than 15 digits were asked for."""
    return values if digits > 15 else {k: float(v) for k, v in values.items()}


def collapsed(problem: Problem, digits: int) -> Solution:
    """S = 0: every cut moment vanishes, and what is left of the equations is exact."""
    ctx = context(digits + 10)
    system = reduced_system()
    zero = {m: 0 for e in (*system.outputs.values(), system.width) for m in e.atoms(CutMoment)}
    tau2 = sp.solve(system.width.subs(zero), s.tau2)[0]
    theta = sp.solve(system.shrinkage.subs(zero), s.theta)[0]
    outputs = {k: e.subs(zero).subs({s.tau2: tau2, s.theta: theta}) for k, e in system.outputs.items()}
    outputs |= {"tau": sp.sqrt(tau2), "theta": theta}
    numbers = {
        s.alpha: problem.alpha,
        s.lam: problem.lam,
        s.Delta: problem.noise,
        s.Q0: problem.target.Q0,
    }
    values = {k: evaluate(e.subs(numbers), ctx) for k, e in outputs.items()}
    return Solution(problem, plain(values, digits), 0.0, floor(digits), digits, "collapsed")


def recovers(problem: Problem) -> bool:
    """Whether R = 0: no noise, lam -> 0+ and alpha above the perfect-recovery threshold."""
    if problem.noise != 0 or problem.lam != 0 or problem.target.Q0 == 0:
        return False
    threshold = perfect_recovery(problem.target.rank_fraction, 30).value
    return bool(evaluate(problem.alpha, threshold.context) > threshold)


def recovered(problem: Problem, digits: int) -> Solution:
    """R = 0: tau and theta vanish with lam; their ratio solves R/tau2 = 2 alpha.

    Raises
    ------
    NotConverged
        The width cuts eigenvalues that the limit keeps.
    """
    ctx = context(digits + 20)
    alpha = evaluate(problem.alpha, ctx)
    at = SmallNoiseLimit(problem.target.rank_fraction, ctx).at_risk(2 * alpha)
    if at["mass"] > evaluate(problem.rank_cap, ctx):
        raise NotConverged(problem, float("nan"), "the width cuts this limit; take a small lam > 0")
    psi = sp.Symbol("psi")
    moment = {CutMoment(2, 1, s.tau2, s.theta): psi}
    system = reduced_system()
    limits = {"A": system.A.subs(moment), "V": system.outputs["V"].subs(moment)}
    A, V = compile_function("limits", (s.alpha, psi), limits, "mpmath", ctx)(alpha, at["psi"])
    law = mp_law(problem.target, ctx)
    values = dict.fromkeys(KEYS, ctx.mpf(0))
    values |= {"q": law.Q0, "m": law.Q0, "A": A, "M": A, "V": V, "psi": at["psi"]}
    values |= {"trace": law.mean, "rank_fraction": at["mass"]}
    residual = float(abs(at["risk"] - 2 * alpha))
    return Solution(problem, plain(values, digits), residual, floor(digits), digits, "recovered")
