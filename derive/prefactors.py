"""Constants of the power laws, where the balance fixes them.

Modes s_i = c sqrt(d) i^(-gamma) with 1 << k << d recovered ones: sums over i are integrals over the
strength y = s/tau, (c sqrt(d)/tau)^(1/gamma) y^(-1/gamma - 1) dy/gamma of them in dy.
"""

from functools import cache

import sympy as sp

from derive import symbols as s
from derive.balance import d, gamma, n, noise_width, penalised_threshold
from derive.limit_laws import limit_laws
from derive.modes import mode, strength

__all__ = ["c", "laws", "mode_integral", "scale_constant"]

# s_1 = c sqrt(d).
c = sp.Symbol("c", positive=True)
_IN_N = {s.alpha: n / d**2}


def scale_constant() -> sp.Expr:
    """``c`` where Tr S0^2/d = 1; it is 1 for eigenvalues sqrt(d) i^(-gamma) as they are."""
    return 1 / sp.sqrt(sp.zeta(2 * gamma))


def _integral(expression: sp.Expr, low: sp.Expr, high: sp.Expr) -> sp.Expr:
    """Int y^(-1/gamma - 1)/gamma f(y) dy of a sum of powers, zero at an infinite or vanishing end."""
    total = sp.Integer(0)
    for term in sp.Add.make_args(sp.expand(expression)):
        constant, power = term.as_coeff_exponent(strength)
        rate = power - 1 / gamma
        ends = [sp.Integer(0) if x in (0, sp.oo) else x**rate for x in (low, high)]
        total += constant * (ends[1] - ends[0]) / (gamma * rate)
    return sp.simplify(total)


@cache
def mode_integral(ratio: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """d R/tau2 and d psi of all modes, per (c sqrt(d)/tau)^(1/gamma), with the cut at theta = ratio tau.

    A mode counts with its share where it is above the BBP transition and the cut, else with s^2.
    """
    shape = mode()
    units = {s.tau2: 1, s.theta: ratio}
    crossing = max(sp.solve(shape.position.subs(units) - ratio, strength), key=lambda x: x.evalf())
    missed = _integral(strength**2, sp.Integer(0), crossing)
    kept = _integral(shape.risk.subs(units), crossing, sp.oo)
    return sp.simplify(missed + kept), _integral(shape.susceptibility.subs(units), crossing, sp.oo)


@cache
def laws() -> dict[str, sp.Expr]:
    """R with its constant in each regime, in n, d, lam, Delta, gamma and `c`.

    The cut stands at theta = 2 tau, the edge of the noise, in the data- and the noise-limited regime,
    which is where lam -> 0+ puts it.
    """
    width = noise_width().subs(_IN_N)
    theta = penalised_threshold().subs(_IN_N)
    edge, _ = mode_integral(sp.Integer(2))
    tau = sp.Symbol("tau", positive=True)
    count = (c * sp.sqrt(d) / tau) ** (1 / gamma)
    at_edge = edge * tau**2 * count / d
    noisy = sp.sqrt(width.subs(s.R, 0))
    # Delta = 0: tau^2 = R d^2/(2 n) and R = edge tau^2 count/d fix the count.
    solved = sp.Symbol("count", positive=True)
    modes = sp.solve(edge * solved / d * sp.diff(width, s.R) - 1, solved)[0]
    width_of = c * sp.sqrt(d) * modes ** (-gamma)
    # theta >> tau: R = sum_i min(s_i, theta)^2/d.
    k = (c * sp.sqrt(d) / theta) ** (1 / gamma)
    far = _integral(strength**2, sp.Integer(0), sp.Integer(1)) + _integral(
        sp.Integer(1), sp.Integer(1), sp.oo
    )
    derived = {law.regime: law.risk.subs(_IN_N) for law in limit_laws()}
    return {
        "nothing recovered": s.Q0,
        "data-limited": _power_form(width_of**2 / sp.diff(width, s.R)),
        "noise-limited": _power_form(at_edge.subs(tau, noisy)),
        "over-regularised": _power_form(sp.simplify(far) * theta**2 * k / d),
        "over-regularised, every mode recovered": theta**2,
        "interpolating bulk": derived["interpolating bulk"],
        "half the bulk passes": derived["half the bulk passes"],
        "every mode resolved": derived["every mode resolved"],
    }


def _power_form(expression: sp.Expr) -> sp.Expr:
    return sp.powsimp(sp.powdenest(sp.expand_power_base(expression, force=True), force=True), force=True)
