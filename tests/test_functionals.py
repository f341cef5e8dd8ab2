"""The functional identities: proved in exact arithmetic where that is possible, else to 30 digits."""

import pytest
import sympy as sp

from derive import MarchenkoPastur
from derive import symbols as s
from derive.spectra import (
    CUT_MOMENTS,
    LAW_PRIMITIVES,
    CutMoment,
    PositivePart,
    SpectralIntegral,
    SpectralPair,
    atom_primitive,
    cut_primitive,
    g,
    in_cut_moments,
    law_symbol,
    marchenko_pastur_primitive,
    marchenko_pastur_stieltjes,
    w,
)
from derive.thresholds import bulk_moment, phi
from numerics.laws import mp_law
from numerics.mp_convolution import MPConvolution
from numerics.precision import context

RING, RM, RC, RA, RB = sp.ring("M,C,a,b", sp.QQ)
ORDER = 6


def free_moments(cumulants):
    """Moments from free cumulants: m_n = sum_k c_k sum over i_1 + ... + i_k = n - k of m_i products."""
    moments = [RING(1)]
    for n in range(1, len(cumulants)):
        total, power = RING(0), [RING(1)] + [RING(0)] * n
        for k in range(1, n + 1):
            power = [
                sum((power[i] * moments[j - i] for i in range(j + 1)), RING(0)) for j in range(n - k + 1)
            ]
            total += cumulants[k] * power[n - k]
        moments.append(total)
    return moments


def free_cumulants(moments):
    """Invert `free_moments`: m_n is c_n plus what the lower cumulants give."""
    cumulants = [RING(0)]
    for n in range(1, len(moments)):
        cumulants.append(moments[n] - free_moments([*cumulants, RING(0)])[n])
    return cumulants


def law_of_B(target):
    """Moments of B = M S0 + sqrt(C) G from those of S0."""
    k = free_cumulants([RING(m) for m in target])
    cumulants = [RM**n * k[n] + (RC if n == 2 else 0) for n in range(ORDER + 1)]
    return [m.as_expr(s.M, s.C, *sp.symbols("a b")) for m in free_moments(cumulants)]


QUARTER, HALF, THIRD = (sp.QQ(1, n) for n in (4, 2, 3))
LAWS = {
    "semicircle": [RING(int(n == 0)) for n in range(ORDER + 1)],  # S0 = 0
    "2 symbolic atoms": [QUARTER * RA**n + 3 * QUARTER * RB**n for n in range(ORDER + 1)],
    "3 atoms": [HALF * int(n == 0) + THIRD * 2**n + HALF * THIRD * 5**n for n in range(ORDER + 1)],
}
MOMENTS = {name: law_of_B(target) for name, target in LAWS.items()}


def test_moments_of_known_laws():
    assert [m.subs(s.C, 1) for m in MOMENTS["semicircle"]] == [1, 0, 1, 0, 2, 0, 5]  # Catalan


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", range(1, ORDER + 1))
def test_burgers_and_stein_exactly(law, n):
    moments = MOMENTS[law]

    def evaluate(expression):
        """Int x^k = m_k, and the divided difference of x^k is a sum of products."""
        expression = expression.replace(
            lambda e: isinstance(e, SpectralIntegral), lambda e: moments[sp.degree(e.integrand, s.x)]
        )
        return expression.replace(
            lambda e: isinstance(e, SpectralPair),
            lambda e: sum(
                moments[i] * moments[sp.degree(e.integrand, s.x) - 1 - i]
                for i in range(sp.degree(e.integrand, s.x))
            ),
        )

    functional = SpectralIntegral(s.x**n, s.M, s.C)
    for variable in (s.C, s.M):
        rule = evaluate(sp.diff(functional, variable).doit())
        assert sp.expand(rule - sp.diff(moments[n], variable)) == 0


def test_burgers_equation_for_any_law():
    """g = G0(z - C g) gives dg/dC = -g dg/dz, whatever G0."""
    z = sp.Symbol("z")
    G0 = sp.Function("G0")
    u = sp.Symbol("u")
    h = sp.Function("h")(z, s.C)
    implicit = h - G0(u).subs(u, z - s.C * h)
    dz = sp.solve(sp.diff(implicit, z).doit(), sp.diff(h, z))[0]
    dC = sp.solve(sp.diff(implicit, s.C).doit(), sp.diff(h, s.C))[0]
    assert sp.simplify(dC + h * dz) == 0


@pytest.mark.parametrize("jk", [(1, 1), (1, 2), (2, 1)])
def test_hierarchy_exactly_on_the_semicircle(jk):
    """Cut moments of S0 = 0 in closed form; [j, k] scales as tau^(k + 1 - j)."""
    tau = sp.sqrt(s.tau2)
    angle = sp.acos(s.theta / (2 * tau))

    def closed(j, k):
        return tau ** (k + 1 - j) * bulk_moment(j, k, sp.Integer(1)).subs(phi, angle)

    moment = CutMoment(*jk, s.tau2, s.theta)
    for variable in (s.tau2, s.theta):
        rule = sp.diff(moment, variable).replace(
            lambda e: e.func.__name__ == "EdgeTerm", lambda e: sp.Integer(0)
        )
        rule = rule.replace(CutMoment, lambda j, k, *_: closed(int(j), int(k)))
        difference = rule - sp.diff(closed(*jk), variable)
        t = sp.Symbol("t", positive=True)
        in_angle = difference.subs(s.theta, 2 * tau * sp.cos(t)).subs(s.tau2, t**0 * 3)
        exact = sp.simplify(in_angle.subs(t, sp.pi / 3))
        assert exact == 0
        assert abs(sp.N(in_angle.subs(t, sp.Rational(7, 5)), 30)) < sp.Rational(1, 10**25)


def test_semicircle_closed_forms():
    assert sp.simplify(bulk_moment(1, 0, sp.Integer(1)) - (phi - sp.sin(2 * phi) / 2) / sp.pi) == 0
    assert bulk_moment(2, 1, sp.Integer(1)).subs(phi, sp.pi) == 1
    assert sp.simplify(bulk_moment(1, 2, sp.Integer(1)).subs(phi, sp.pi / 2) - sp.Rational(1, 2)) == 0


@pytest.mark.parametrize("jk", list(CUT_MOMENTS))
def test_cut_primitives_differentiate_back(jk):
    """d/dw of the primitive is (z - theta)^k g^j dz/dw for an undefined law."""
    G = sp.Function("G")(w)
    primitive = cut_primitive(*jk)
    total = sp.diff(primitive.subs(g, G), w)
    for a, b in LAW_PRIMITIVES:
        total += sp.diff(primitive, law_symbol(a, b)) * w**a * G**b
    z = w + s.tau2 * G
    assert sp.expand(total - (z - s.theta) ** jk[1] * G ** jk[0] * sp.diff(z, w)) == 0


@pytest.mark.parametrize("ab", LAW_PRIMITIVES)
def test_law_primitives_differentiate_back(ab):
    a, b = ab
    kappa0 = sp.Symbol("kappa0", positive=True)
    r = sp.sqrt(kappa0)
    of_g = 1 / g + r / (1 - g / r)
    primitive = marchenko_pastur_primitive(a, b, kappa0)
    assert sp.simplify(sp.diff(primitive, g) - of_g**a * g**b * sp.diff(of_g, g)) == 0
    # Three atoms: the shares add up to a primitive of w^a G^b.
    atoms = [
        (sp.Integer(0), sp.Rational(1, 2)),
        (sp.Integer(2), sp.Rational(1, 3)),
        (sp.Integer(5), sp.Rational(1, 6)),
    ]
    names = sp.symbols("s weight first second")
    G = sum(weight / (w - value) for value, weight in atoms)
    total = sp.Integer(0)
    for value, weight in atoms:
        others = [(v, p) for v, p in atoms if v != value]
        first = sum(p / (value - v) for v, p in others)
        second = -sum(p / (value - v) ** 2 for v, p in others)
        total += atom_primitive(a, b).subs(dict(zip(names, (value, weight, first, second), strict=True)))
    assert sp.simplify(sp.diff(total, w) - w**a * G**b) == 0


def test_stieltjes_forms_agree_and_solve_the_r_transform():
    kappa0 = sp.Rational(2, 5)
    r = sp.sqrt(kappa0)
    forms = marchenko_pastur_stieltjes(kappa0)
    for point in (3 + 2 * sp.I, sp.Rational(1, 3) + sp.I / 7, -2 + sp.I):
        values = [sp.N(form.subs(w, point), 40) for form in forms]
        assert abs(values[0] - values[1]) < 1e-35
        assert sp.im(values[0]) < 0
        assert abs(sp.N(1 / values[0] + r / (1 - values[0] / r) - point, 40)) < 1e-35


@pytest.mark.parametrize("kappa0", ["1/5", "1", "7/4"])
@pytest.mark.parametrize("jk", [(1, 1), (1, 2), (2, 1)])
def test_burgers_on_marchenko_pastur_to_30_digits(kappa0, jk):
    ctx = context(70)
    law = mp_law(MarchenkoPastur(kappa0), ctx)
    tau2, theta = ctx.mpf(3) / 5, ctx.mpf(2) / 7
    name = CUT_MOMENTS[jk]

    def moments(t2, th):
        nu = MPConvolution(law, t2, ctx)
        start = nu.preimage(th, ctx.mpc(th, ctx.sqrt(t2) / 2))
        return nu.cut_at(start, th)

    here = moments(tau2, theta)
    h = ctx.mpf(10) ** -17
    moment = CutMoment(*jk, s.tau2, s.theta)
    for variable, shift in ((s.tau2, (h, 0)), (s.theta, (0, h))):
        rule = sp.diff(moment, variable)
        value = ctx.mpf(0)
        for term in sp.Add.make_args(rule):
            if term.has(CutMoment):
                (found,) = term.atoms(CutMoment)
                factor = term / found
                value += (
                    ctx.mpf(int(factor.p)) / int(factor.q) * getattr(here, CUT_MOMENTS[found.args[:2]])
                )

        def central(step, shift=shift):
            up = moments(tau2 + step * shift[0], theta + step * shift[1])
            down = moments(tau2 - step * shift[0], theta - step * shift[1])
            return (getattr(up, name) - getattr(down, name)) / (2 * step * h)

        # Richardson: the error of a central difference at 1e-17 is 1e-34, here 1e-60.
        numeric = (4 * central(1) - central(2)) / 3
        assert abs(numeric - value) < ctx.mpf(10) ** -30 * abs(value)


@pytest.mark.parametrize("kappa0", ["1/5", "7/4"])
def test_stein_on_marchenko_pastur_to_30_digits(kappa0):
    """d/dM Int (x - lam)_+^2 dnu by differences in M against the rule."""
    ctx = context(70)
    law = mp_law(MarchenkoPastur(kappa0), ctx)
    C, lam = ctx.mpf(1) / 2, ctx.mpf(1) / 3

    def moments(M):
        nu = MPConvolution(law, C / M**2, ctx)
        return nu.cut_at(nu.preimage(lam / M, ctx.mpc(lam / M, ctx.sqrt(C) / M / 2)), lam / M)

    functional = SpectralIntegral(PositivePart(s.x - s.lam, 2), s.M, s.C)
    rule = in_cut_moments(sp.diff(functional, s.M).doit(), s.tau2, s.theta)
    M = ctx.mpf(6) / 5
    at = moments(M)
    numbers = {s.M: M, s.C: C, s.theta: lam / M}
    value = ctx.mpf(0)
    for term in sp.Add.make_args(sp.expand(rule)):
        (found,) = term.atoms(CutMoment)
        factor = sp.lambdify(list(numbers), term / found, modules="mpmath")(*numbers.values())
        value += factor * getattr(at, CUT_MOMENTS[found.args[:2]])
    h = ctx.mpf(10) ** -17

    def central(step):
        return ((M + step) ** 2 * moments(M + step).I2 - (M - step) ** 2 * moments(M - step).I2) / (
            2 * step
        )

    numeric = (4 * central(h) - central(2 * h)) / 3
    assert abs(numeric - value) < ctx.mpf(10) ** -30 * abs(value)
