"""Extremising the potential: state evolution, and its reduction to few unknowns.

potential -> six derivatives -> (q, m, V) and (A, M, C) -> elimination: two equations in tau2 and
theta for the nuclear penalty (THEORY.md section 3), a closed form for the Frobenius one (section 6).
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from derive import symbols as s
from derive.channels import Channel
from derive.linear import LinearChannel
from derive.penalties import PENALTIES, denoiser
from derive.potential import chain
from derive.spectra import SpectralIntegral, free_moments, in_cut_moments

__all__ = [
    "PARTNER",
    "ClosedForm",
    "Reduced",
    "definitions",
    "direct_solution",
    "reduced_system",
    "saddle_equations",
]

# Each derivative of the potential is linear in the partner of its variable: Legendre duality.
_LEGENDRE = -s.A * s.q / 2 + s.M * s.m + s.C * s.V
PARTNER = {s.A: s.q, s.M: s.m, s.C: s.V, s.q: s.A, s.m: s.M, s.V: s.C}


def _result(channel: Channel, penalty: str, name: str) -> sp.Expr:
    return chain(channel, penalty)[name].result.rhs


@cache
def saddle_equations(channel: Channel, penalty: str) -> dict[sp.Symbol, sp.Expr]:
    """Each of q, m, V, A, M, C solved from the derivative of the potential that fixes it."""
    e = _result(channel, penalty, "potential")
    equations = {}
    for partner, unknown in PARTNER.items():
        coefficient = sp.diff(_LEGENDRE, partner, unknown)
        solved = sp.expand(unknown - sp.diff(e, partner) / coefficient)
        equations[unknown] = sp.factor(free_moments(solved, s.mean, s.Q0))
    return equations


@cache
def definitions(channel: Channel, penalty: str) -> dict[str, sp.Expr]:
    """Every reported quantity before elimination, in the six variables and functionals of nu."""
    eqs = saddle_equations(channel, penalty)
    F = denoiser(PENALTIES[penalty])
    support = PENALTIES[penalty].power(s.x - s.lam, 0)
    return {
        **{str(v): eqs[v] for v in (s.q, s.m, s.V)},
        **{str(v): v for v in (s.A, s.M, s.C)},
        # The double integral of the unconstrained denoiser's numerator, 2 A V at the saddle.
        "psi": 2 * s.A * eqs[s.V],
        "excess_risk": s.Q0 - 2 * s.m + s.q,
        "train_loss": _result(channel, penalty, "train loss"),
        "test_loss": _result(channel, penalty, "test loss"),
        "energy": _result(channel, penalty, "potential"),
        "trace": SpectralIntegral(F, s.M, s.C),
        "rank_fraction": SpectralIntegral(support, s.M, s.C),
    }


@dataclass(frozen=True)
class Reduced:
    """The nuclear penalty in two unknowns.

    Attributes
    ----------
    A : sympy.Expr
        A = M in terms of alpha and psi.
    shrinkage, width : sympy.Expr
        Residuals that vanish at the solution: lam = theta M and C = tau2 M^2.
    outputs : dict of str to sympy.Expr
        Every reported quantity in terms of tau2, theta and the cut moments.
    """

    A: sp.Expr
    shrinkage: sp.Expr
    width: sp.Expr
    outputs: dict[str, sp.Expr]

    @property
    def jacobian(self) -> sp.Matrix:
        """Derivatives of the residuals in (tau2, theta), by the Burgers hierarchy."""
        return sp.Matrix([self.shrinkage, self.width]).jacobian([s.tau2, s.theta])

    @property
    def best_shrinkage(self) -> sp.Expr:
        """Vanishes at the penalty of least risk: the risk at given tau2 is stationary in theta."""
        return sp.factor(sp.diff(self.outputs["excess_risk"], s.theta))


@cache
def reduced_system() -> Reduced:
    """Eliminate the six variables in favour of tau2 = C/M^2 and theta = lam/M.

    It rests on A = M, which the linear channel gives because its loss is quadratic.
    """
    linear = LinearChannel()
    eqs = saddle_equations(linear, "nuclear")
    if sp.simplify(eqs[s.A] - eqs[s.M]) != 0:
        raise ValueError(f"the {linear.task} channel has A != M: the reduction does not apply")

    def scale(expression: sp.Expr) -> sp.Expr:
        in_moments = in_cut_moments(expression, s.tau2, s.theta)
        return sp.expand(in_moments.subs(s.C, s.tau2 * s.M**2).subs(s.M, s.A))

    scaled = {k: scale(eqs[k]) for k in (s.q, s.m, s.V)}
    # The channel's A contains V, and V contains A: a linear equation once 1/A is cleared.
    clearing = sp.numer(sp.together(s.A - eqs[s.A].subs(s.V, scaled[s.V])))
    A = next(root for root in sp.solve(clearing, s.A) if root != 0)

    def at_solution(expression: sp.Expr) -> sp.Expr:
        inserted = sp.cancel(sp.together(scale(expression).subs(scaled)))
        return sp.factor(inserted.subs(s.A, A))

    outputs = {name: at_solution(value) for name, value in definitions(linear, "nuclear").items()}
    for name in ("m", "excess_risk"):
        outputs[name] = sp.expand(outputs[name])
    # tau2 = C/M^2 with the channel's C, in which V goes the way of A.
    channel = sp.cancel(scale(eqs[s.C]).subs(s.V, scaled[s.V]) / s.A**2).subs(scaled)
    width = sp.expand(s.tau2 - sp.cancel(channel.subs(s.A, A)))
    return Reduced(A, sp.expand(s.theta * A - s.lam), width, outputs)


@dataclass(frozen=True)
class ClosedForm:
    """The Frobenius penalty: every quantity explicit in alpha, lam, Delta and the target moments.

    ``scale`` is A + lam, ``shrink`` is M/(A + lam), so that S = shrink (S0 + tau G). ``best_lam`` is
    the penalty of least risk.
    """

    scale: sp.Expr
    shrink: sp.Expr
    best_lam: sp.Expr
    outputs: dict[str, sp.Expr]


@cache
def direct_solution() -> ClosedForm:
    """Solve the Frobenius state evolution exactly (THEORY.md section 6).

    The outputs are written in `symbols` and in the two placeholders ``scale`` and ``shrink``, whose
    values keep their limits at lam -> 0+ on both sides of the interpolation threshold.
    """
    linear = LinearChannel()
    eqs = saddle_equations(linear, "frobenius")
    a, rho, R = sp.symbols("scale shrink R", nonnegative=True)
    V = sp.cancel(eqs[s.V].subs(s.A, a - s.lam))
    A = sp.cancel(eqs[s.A].subs(s.V, V))
    # a - lam = A is a quadratic in a; its roots have the product -2 lam, so one is positive.
    quadratic = sp.Poly(sp.numer(sp.together(a - s.lam - A)), a).monic()
    b, c = quadratic.coeff_monomial(a), quadratic.coeff_monomial(1)
    shrink = sp.cancel(A / a)
    # All in units of scale: M = rho a, A + lam = a, C = a^2 noise with R = Q0 - 2 m + q inside.
    channel = sp.cancel(eqs[s.C].subs(s.V, V) / a**2).subs(a, sp.solve(shrink - rho, a)[0])
    noise = sp.factor(channel.subs(s.q, R - s.Q0 + 2 * s.m))
    units = {s.A: a - s.lam, s.M: rho * a, s.C: a**2 * noise}
    q, m = (sp.cancel(eqs[k].subs(units)) for k in (s.q, s.m))
    risk = sp.factor(sp.solve(sp.expand(s.Q0 - 2 * m + q - R), R)[0])
    solution = {s.q: q.subs(R, risk), s.m: m, s.V: V, s.A: rho * a, s.M: rho * a}
    solution[s.C] = (a**2 * noise).subs(R, risk)

    def loss(name: str) -> sp.Expr:
        value = _result(linear, "frobenius", name).subs(s.q, R - s.Q0 + 2 * s.m).subs(s.V, V)
        # a = A/rho cancels V in favour of the ratio, which stays finite at lam -> 0+.
        return sp.factor(sp.cancel(value).subs(a, sp.solve(shrink - rho, a)[0]).subs(R, risk))

    outputs = {str(k): sp.factor(v) for k, v in solution.items()}
    outputs |= {
        "tau": sp.sqrt(sp.factor(noise.subs(R, risk) / rho**2)),
        "excess_risk": risk,
        "train_loss": loss("train loss"),
        "test_loss": loss("test loss"),
        "trace": rho * s.mean,
    }
    outputs["energy"] = s.alpha * outputs["train_loss"] + s.lam * outputs["q"] / 2
    # The risk is stationary in rho at one Delta; there the penalty is lam = a (1 - rho).
    a_of_rho = sp.solve(shrink - rho, a)[0]
    stationary = sp.solve(sp.diff(risk, rho), s.Delta)[0]
    best_lam = s.Delta * sp.cancel(a_of_rho * (1 - rho) / stationary)
    return ClosedForm((sp.sqrt(b**2 - 4 * c) - b) / 2, shrink, best_lam, outputs)
