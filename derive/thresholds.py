"""Thresholds as equations in one unknown (THEORY.md section 5).

Stated for the linear task; `effective_samples` carries recovery and interpolation to any other.

The reduced state evolution at lam -> 0+ is specialised: to theta = 0 (interpolation), to tau -> 0
(perfect recovery, where only the atom of the target at zero keeps a noise bulk), to the upper edge
of the bulk (collapse).
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from derive import symbols as s
from derive.channels import Channel
from derive.gaussian import gaussian_average
from derive.linear import LinearChannel
from derive.potential import chain
from derive.saddle import reduced_system
from derive.softmax import T
from derive.spectra import LAW_PRIMITIVES, CutMoment, atom_primitive, cut_primitive, g, law_symbol, w

__all__ = [
    "OnWidth",
    "SmallNoise",
    "bulk_moment",
    "collapse_penalty",
    "effective_samples",
    "exact_fit_envelope",
    "interpolation_residual",
    "on_width",
    "small_noise",
    "small_noise_above_bulk",
]

kappa0, phi, t = sp.symbols("kappa0 phi t", positive=True)


@dataclass(frozen=True)
class SmallNoise:
    """The limit tau -> 0 at fixed theta/tau, for a target of rank fraction kappa0 < 1.

    The noise bulk is a semicircle of radius 2 tau sqrt(1 - kappa0) and mass 1 - kappa0; its cut
    stands at theta = 2 tau sqrt(1 - kappa0) cos(phi).

    Attributes
    ----------
    cut, risk, psi, mass : sympy.Expr
        theta/tau, R/tau2, psi and the rank fraction in terms of phi in (0, pi) and kappa0.
    stationarity : sympy.Expr
        Half of d risk/d(theta/tau); it vanishes at the perfect-recovery threshold, where
        risk = 2 alpha.
    """

    cut: sp.Expr
    risk: sp.Expr
    psi: sp.Expr
    mass: sp.Expr
    stationarity: sp.Expr


def bulk_moment(j: int, k: int, beta: sp.Expr) -> sp.Expr:
    """Cut moment of one atom of mass beta at zero, in units tau = 1, at w_c = sqrt(beta) e^(i phi)."""
    atom = dict(zip(sp.symbols("s weight first second"), (0, beta, 0, 0), strict=True))
    primitive = cut_primitive(j, k)
    for a, b in LAW_PRIMITIVES:
        primitive = primitive.subs(law_symbol(a, b), atom_primitive(a, b).subs(atom))
    # On the circle w = sqrt(beta) E, E = e^(i phi), every term is c E^n or c log(w) E^n, c real.
    E, log = sp.symbols("E log")
    root = sp.sqrt(beta)
    values = {s.tau2: 1, s.theta: root * (E + 1 / E), g: root / E, sp.log(w): log}
    terms = sp.Add.make_args(sp.expand(primitive.subs(values).subs(w, root * E)))
    total = sp.Integer(0)
    for term in terms:
        coefficient, powers = term.as_independent(E, log)
        n = powers.as_powers_dict()[E]
        if powers.has(log):  # Im (log sqrt(beta) + i phi) e^(i n phi)
            total += coefficient * (sp.log(root) * sp.sin(n * phi) + phi * sp.cos(n * phi))
        else:
            total += coefficient * sp.sin(n * phi)
    return sp.expand(total / sp.pi)


def exact_fit_envelope(channel: Channel) -> sp.Expr:
    """Limit of V E[Moreau] as V -> oo: what is left of the output side where labels are fitted exactly.

    For the linear channel the limit of its closed form. For the softmax the loss forces u* = u0 on
    the L_eff directions that it sees (its Jacobian has that rank), any other u costs more than
    (u0 - omega)^2/(2 V); the common shift stays at omega and costs nothing.

    Raises
    ------
    ValueError
        The labels cannot be fitted exactly: noise outside the softmax.
    """
    if not channel.interpolates:
        raise ValueError("noise outside the softmax leaves its range: no student fits the labels")
    if isinstance(channel, LinearChannel):
        closed = chain(channel, "nuclear")["averaged Moreau envelope"].result.rhs
        return sp.factor(sp.limit(s.V * closed, s.V, sp.oo))
    u0, omega = sp.symbols("u0 omega", real=True)
    covariance = sp.Matrix([[channel.target_variance, s.m], [s.m, s.q]])
    one = gaussian_average((u0 - omega) ** 2 / 2, (u0, omega), covariance)
    return sp.factor(channel.directions * one)


@cache
def effective_samples(channel: Channel) -> sp.Expr:
    """The alpha of the linear task that has the same exact-fit limit, L_eff alpha.

    Perfect recovery and interpolation depend on the output side through alpha V E[Moreau] only.
    """
    linear = LinearChannel()
    ratio = sp.cancel(exact_fit_envelope(channel) / exact_fit_envelope(linear))
    if ratio.free_symbols - {T}:
        raise ValueError(
            f"the exact-fit limit of {channel.describe()} is not a multiple of the linear one"
        )
    return s.alpha * ratio


@cache
def small_noise() -> SmallNoise:
    """Derive the limit from the cut moments of the target's atom at zero.

    Above the cut, everything that is not noise bulk is fixed by sum rules over the whole axis:
    [2, 1] = 1 (psi of the identity) and mass 1; the bulk's own totals are beta^2 and beta. The
    width equation R = Q0 - I2 - 2 theta I1 + 2 tau2 psi is Int_{x<c} x^2 - tau2 + theta^2 mass
    + 2 tau2 psi, because Int x^2 = Q0 + tau2; below the cut there is nothing but bulk.
    """
    beta = sp.Symbol("beta", positive=True)
    cut = 2 * sp.sqrt(beta) * sp.cos(phi)
    bulk = {jk: bulk_moment(*jk, beta) for jk in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1))}
    parts = _compose(cut, beta, bulk)

    def finish(expression: sp.Expr) -> sp.Expr:
        return sp.expand(sp.expand_trig(sp.expand(expression))).subs(beta, 1 - kappa0)

    return SmallNoise(*map(finish, parts))


@cache
def small_noise_above_bulk() -> SmallNoise:
    """The same limit with the cut above the bulk, at theta/tau = t >= 2 sqrt(1 - kappa0)."""
    zero = {jk: sp.Integer(0) for jk in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1))}
    return SmallNoise(*map(sp.expand, _compose(t, 1 - kappa0, zero)))


def _compose(cut: sp.Expr, beta: sp.Expr, bulk: dict[tuple[int, int], sp.Expr]) -> tuple[sp.Expr, ...]:
    mass, psi = 1 - beta + bulk[1, 0], 1 - beta**2 + bulk[2, 1]
    below = beta**2 - (bulk[1, 2] + 2 * cut * bulk[1, 1] + cut**2 * bulk[1, 0])
    risk = below - 1 + cut**2 * mass + 2 * psi
    slope = reduced_system().best_shrinkage.subs(
        {
            CutMoment(2, 0, s.tau2, s.theta): bulk[2, 0],
            CutMoment(1, 0, s.tau2, s.theta): mass,
        }
    )
    return cut, risk, psi, mass, slope.subs({s.tau2: 1, s.theta: cut}) / 2


def interpolation_residual() -> sp.Expr:
    """Vanishes at the interpolation threshold, as a function of tau2 at theta = 0.

    The training loss vanishes where A does, psi = 2 alpha; the width equation with that alpha is one
    equation for tau2, and alpha = psi/2 follows.
    """
    system = reduced_system()
    alpha = sp.solve(system.A, s.alpha)[0]
    residual = sp.expand(sp.numer(sp.together(system.width.subs(s.alpha, alpha))))
    return residual.subs(s.theta, 0)


@dataclass(frozen=True)
class OnWidth:
    """Which problems have a given width tau2 of the noise, one for each theta.

    Attributes
    ----------
    alpha : sympy.Expr
        From the width equation, in Delta and cut moments.
    A, lam : sympy.Expr
        At that alpha; the limit lam -> 0+ is A = 0 or theta = 0.
    """

    alpha: sp.Expr
    A: sp.Expr
    lam: sp.Expr


@cache
def on_width() -> OnWidth:
    """Solve the width equation for alpha, and the shrinkage equation for lam at that alpha."""
    system = reduced_system()
    alpha = sp.solve(system.width, s.alpha)[0]
    lam = sp.solve(system.shrinkage, s.lam)[0].subs(s.alpha, alpha)
    return OnWidth(alpha, system.A.subs(s.alpha, alpha), lam)


def collapse_penalty(edge: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """(lam, tau2) at which theta reaches the upper edge of nu and S = 0 (all cut moments vanish).

    Parameters
    ----------
    edge : sympy.Expr
        Upper edge of the law of S0 + tau G.
    """
    system = reduced_system()
    empty = {moment: 0 for e in (system.width, system.shrinkage) for moment in e.atoms(CutMoment)}
    tau2 = sp.solve(system.width.subs(empty), s.tau2)[0]
    lam = sp.solve(system.shrinkage.subs(empty), s.lam)[0].subs(s.theta, edge)
    return lam, sp.expand(tau2)
