"""LASSO with a power-law signal: the vector sibling of the nuclear penalty.

y = X x0 + sqrt(Delta) xi with X of n x d standard normals, objective norm(y - X x)^2 + lam norm(x)_1.
The same route as for S: potential -> saddle point -> two equations in tau2 and theta; the spectral
functional is replaced by the soft threshold of one Gaussian number per coordinate. (A diagonal linear
network trained with weight decay has this objective.)
"""

from dataclasses import dataclass
from functools import cache

import sympy as sp

from derive import symbols as s
from derive.balance import Balance, Passage, a, delta, log_d, n, r, t2

__all__ = ["Lasso", "lasso", "lasso_balance", "soft_mass", "soft_risk"]

z = sp.Symbol("z", real=True)
# Signal and threshold of one coordinate in units of tau; the number of coordinates that are not zero.
y, u = sp.symbols("y u", positive=True)
selected = sp.Symbol("selected", nonnegative=True)
_DENSITY = sp.exp(-(z**2) / 2) / sp.sqrt(2 * sp.pi)


def _primitive(power: int, at: sp.Expr) -> sp.Expr:
    """Int z^power times the standard normal density, by parts, up to a constant."""
    if at in (sp.oo, -sp.oo):
        return sp.sign(at) * sp.factorial2(power - 1) / 2 if power % 2 == 0 else sp.Integer(0)
    if power == 0:
        return sp.erf(at / sp.sqrt(2)) / 2
    rest = (power - 1) * _primitive(power - 2, at) if power > 1 else sp.Integer(0)
    return rest - at ** (power - 1) * _DENSITY.subs(z, at)


def _average(above: sp.Expr, between: sp.Expr, below: sp.Expr) -> sp.Expr:
    """Mean over z of a function of the soft threshold of y + z, a polynomial for each outcome."""
    total = sp.Integer(0)
    parts = ((above, u - y, sp.oo), (between, -u - y, u - y), (below, -sp.oo, -u - y))
    for polynomial, low, high in parts:
        for (power,), coefficient in sp.Poly(polynomial, z).terms():
            total += coefficient * (_primitive(power, high) - _primitive(power, low))
    return sp.expand(total, power_exp=False)


@cache
def soft_risk() -> sp.Expr:
    """E (eta - y)^2 with eta the soft threshold at u of y + z, in `y` and `u`."""
    return _average((z - u) ** 2, y**2, (z + u) ** 2)


@cache
def soft_mass() -> sp.Expr:
    """Probability that the soft threshold is not zero; by Stein's lemma the mean of its slope too."""
    return _average(sp.Integer(1), sp.Integer(0), sp.Integer(1))


@dataclass(frozen=True)
class Lasso:
    """State evolution of the LASSO.

    Attributes
    ----------
    tau2 : sympy.Expr
        Variance of the effective noise in terms of R, Delta, n; R = norm(x - x0)^2.
    theta : sympy.Expr
        Threshold in terms of lam, n and the number of ``selected`` coordinates.
    """

    tau2: sp.Expr
    theta: sp.Expr


@cache
def lasso() -> Lasso:
    """Extremise the replica-symmetric potential.

    e = n E[Moreau] - A q/2 + M m + C V/2 + sum_i E min_x {A x^2/2 - (M x0 + sqrt(C) z) x + lam |x|};
    the last minimum is reached at the soft threshold of x0 + tau z when M = A, with C = tau2 A^2 and
    lam = theta A.
    """
    label, field, omega = sp.symbols("label field omega", real=True)
    objective = (label - field) ** 2 + (field - omega) ** 2 / (2 * s.V)
    best = sp.solve(sp.diff(objective, field), field)[0]
    moreau = sp.factor(objective.subs(field, best))
    # label - omega has the variance R + Delta, with R = Q0 - 2 m + q.
    envelope = sp.factor(moreau.subs(label, omega + 1)) * (s.Q0 - 2 * s.m + s.q + s.Delta)
    potential = n * envelope - s.A * s.q / 2 + s.M * s.m + s.C * s.V / 2
    A = sp.solve(sp.diff(potential, s.q), s.A)[0]
    M = sp.solve(sp.diff(potential, s.m), s.M)[0]
    if sp.simplify(A - M) != 0:
        raise ValueError("A != M: the soft threshold does not apply")
    C = sp.solve(sp.diff(potential, s.V), s.C)[0].subs(s.q, s.R - s.Q0 + 2 * s.m)
    # dP/dC = -V/2: E[x z] = sqrt(C) E dx/dB; the soft threshold has the slope 1/A where it is not 0.
    inverse = sp.solve(s.A - A.subs(s.V, selected / s.A), s.A)
    curvature = next(root for root in inverse if root != 0)
    return Lasso(sp.factor(sp.simplify(C / A**2)), s.lam / sp.factor(curvature))


@cache
def lasso_balance() -> Balance:
    """Exponents of the LASSO: n samples in d dimensions, x0_i ~ i^(-gamma).

    The noise has a Gaussian tail: of d coordinates, n pass u = theta/tau (as many as samples, where
    lam -> 0+), with E_over ~ n tau^2 times the mean square excess over u, 2/u^2 with u^2 ~ 2 log(d/n).
    """
    equations = lasso()
    (tau2,) = {form.subs(delta, r) for form in log_d(equations.tau2)}
    (theta,) = log_d(equations.theta.subs(selected, 0))
    noise = [f.subs(y, 0) for f in (soft_risk(), soft_mass())]
    excess = sp.limit(u**2 * noise[0] / noise[1], u, sp.oo)
    strong = sp.limit(soft_risk(), y, sp.oo)
    if sp.expand(strong - u**2 - 1) != 0:
        raise ValueError("a recovered coordinate must cost theta^2 + tau^2")
    tail = Passage(
        "interpolating bulk",
        t2 + a,
        (1 - a,),
        True,
        -1,
        f"n coordinates pass, each with tau^2 {excess}/u^2 and u^2 ~ 2 log(d/n)",
    )
    everything = Passage(
        "half the bulk passes", t2 + 1, (a - 1,), False, 0, "theta << tau, E_over ~ d tau^2"
    )
    return Balance("lasso", tau2, theta, sp.Integer(0), sp.Integer(0), (tail, everything))
