"""Approximate message passing for matrix sensing, its state evolution, and that it is the saddle point.

u_l(S) = Tr(X_l S)/sqrt(d) with sensing matrices X. One iteration:

    omega = u(S) - V f      f = (u* - omega)/V        A = -alpha sum_l E[d f_l/d omega_l]
    B = A S + d^(-3/2) sum f X       S = F(B)         V = divergence of F at B

Both memory terms come out of Wick contractions of X: what S knows of a sample through that sample's own
f, and what f knows of S through S. A limit n_r -> 0 appears nowhere.
"""

from itertools import product
from typing import Any

import sympy as sp

from derive import symbols as s
from derive.channels import Channel
from derive.gaussian import average, gaussian_average
from derive.linear import LinearChannel
from derive.model import Problem
from derive.penalties import PENALTIES, denoiser
from derive.replica_notation import Mean
from derive.saddle import saddle_equations
from derive.softmax import SoftmaxChannel
from derive.spectra import PositivePart, SpectralIntegral, SpectralPair, free_moments
from derive.steps import Check, Step

__all__ = ["amp_steps", "fixed_point", "linear_message", "output_maps"]

_p, _r, _v, _w = sp.symbols("p r v w", integer=True, positive=True)
_X, _S, _f, _B = (sp.IndexedBase(name) for name in "XSfB")
_d = sp.Symbol("d", positive=True)
_t, _mu, _n = sp.symbols("t mu n", integer=True, positive=True)
_F = sp.Function("F")
_G = sp.Symbol("G")


def amp_steps(problem: Problem) -> list[Step]:
    """The iteration, its state evolution, and the proof that its fixed points are the saddle points."""
    return [*_contractions(), *_iteration(), *_state_evolution(problem), _meeting(problem)]


# --- the sensing matrices -------------------------------------------------------------------------


def _contractions() -> list[Step]:
    delta = sp.KroneckerDelta
    symmetric = (delta(_p, _v) * delta(_r, _w) + delta(_p, _w) * delta(_r, _v)) / 2
    xi, xj = sp.IndexedBase("x_i"), sp.IndexedBase("x_j")
    same = sp.Symbol("delta_ij")
    entry = (xi[_p] * xj[_r] + xj[_p] * xi[_r] - 2 * same * delta(_p, _r)) / 2 / sp.sqrt(1 + same)
    return [
        Step(
            "sensing matrices",
            sp.Eq(_X[_p, _r], entry),
            "u_ij = Tr(X S)/sqrt(d) for each pair of tokens; Wick contractions of its entries, the "
            "same for i = j and i < j",
            sp.Eq(Mean(_X[_p, _r] * _X[_v, _w]), symmetric),
            (),
            _check_sensing,
        ),
        Step(
            "divergence of the denoiser",
            sp.Eq(Mean(_X[_p, _r] * _X[_v, _w]), symmetric),
            "the derivative of F(B) along X has the entries D(x_p, x_r) X_pr, D the divided difference "
            "of F (Daleckii and Krein); contract with X and divide by d^2",
            sp.Eq(s.V, SpectralPair(_F(s.x), s.M, s.C) / 2),
            (),
            _check_divergence,
        ),
    ]


def _token(name: str) -> tuple[sp.Symbol, ...]:
    return sp.symbols(f"{name}1:3", real=True)


def _check_sensing(definition: sp.Eq, result: sp.Eq) -> bool:
    """Explicit tokens of two entries, one token and two."""
    xi, xj = (sp.IndexedBase(name) for name in ("x_i", "x_j"))
    one, two = _token("x"), _token("y")
    for same, other in ((1, one), (0, two)):
        values = {xi[k + 1]: one[k] for k in range(2)} | {xj[k + 1]: other[k] for k in range(2)}

        def entry(row: int, column: int, at: int = same, v: Any = values) -> sp.Expr:
            return definition.rhs.subs({_p: row, _r: column, sp.Symbol("delta_ij"): at}).subs(v)

        for labels in product((1, 2), repeat=4):
            p, r, v, w = labels
            found = gaussian_average(sp.expand(entry(p, r) * entry(v, w)), (*one, *two), sp.eye(4))
            stated = result.rhs.subs(dict(zip((_p, _r, _v, _w), labels, strict=True)))
            if sp.simplify(found - stated) != 0:
                return False
    return True


def _check_divergence(definition: sp.Eq, result: sp.Eq) -> bool:
    """F = x^3 and a 2 x 2 matrix in its eigenbasis: the contraction entry by entry, off the diagonal."""
    x1, x2 = sp.symbols("x1 x2")
    B = sp.diag(x1, x2)
    entries = sp.symbols("a b c")
    X = sp.Matrix([[entries[0], entries[2]], [entries[2], entries[1]]])
    labels = ((1, 1), (2, 2), (1, 2))
    covariance = sp.Matrix(
        3,
        3,
        lambda i, j: definition.rhs.subs(
            dict(zip((_p, _r, _v, _w), (*labels[i], *labels[j]), strict=True)), simultaneous=True
        ),
    )
    along = B * B * X + B * X * B + X * B * B
    # Off the diagonal only: those pairs alone count as d -> oo.
    contracted = sp.expand(2 * (X[0, 1] * along[0, 1]))
    found = gaussian_average(contracted, entries, covariance)
    (pair,) = result.rhs.atoms(SpectralPair)
    difference = sp.cancel((x1**3 - x2**3) / (x1 - x2))
    return bool(sp.expand(found - 2 * difference * result.rhs.coeff(pair)) == 0)


# --- the iteration --------------------------------------------------------------------------------


def _iteration() -> list[Step]:
    u, omega, f = (sp.IndexedBase(name) for name in ("u", "omega", "f"))
    A, V = sp.IndexedBase("A"), sp.IndexedBase("V")
    Bt, St, X = (sp.IndexedBase(name) for name in ("B", "S", "X"))
    slope, g = sp.Function("f"), sp.Symbol("sum_l E[df_l/domega_l]")
    sensed = sp.Sum(f[_mu, _t] * X[_mu], (_mu, 1, _n))
    own = sp.Eq(Bt[_t], A[_t] * St[_t] + sensed / _d ** sp.Rational(3, 2))
    return [
        Step(
            "memory of the pre-activations",
            sp.Eq(sp.Symbol("dS"), sp.Symbol("DF[X]") * f[_mu, _t - 1] / _d ** sp.Rational(3, 2)),
            "S_t holds a response to its own sample mu, dS; the part Tr(X dS)/sqrt(d) of u(S_t) is V "
            "times that sample's f by the divergence; without it u(S_t) is Gaussian given the target",
            sp.Eq(omega[_mu, _t], u[_mu, _t] - V[_t] * f[_mu, _t - 1]),
            ("X is Gaussian as far as these contractions go (universality of the sensing matrices)",),
            _check_memory,
        ),
        Step(
            "memory of the matrix",
            sp.Eq(slope(sp.Symbol("omega")), g),
            "f responds to S through omega: sum_mu f' X Tr(X S)/sqrt(d) contracts to n E[f'] S/sqrt(d); "
            "A S removes it from B",
            sp.Eq(sp.Symbol("A"), -s.alpha * g),
            (),
            _check_matrix_memory,
        ),
        Step(
            "iteration",
            own,
            "spectral denoiser: eigenvalue by eigenvalue, with A_t in place of A",
            sp.Eq(St[_t + 1], _F(Bt[_t])),
            ("without damping; a damped iteration has the same fixed points but not this memory",),
            lambda definition, result: result.rhs == _F(Bt[_t]) and definition == own,
        ),
    ]


def _check_memory(definition: sp.Eq, result: sp.Eq) -> bool:
    """F = x, for which V = 1/2 and DF[X] = X: the norm of one sensing matrix, explicit at every d."""
    # E Tr(X^2) = sum over entries of (1 + delta)/2 = d (d + 1)/2, times d^(-3/2 - 1/2).
    share = sp.limit((_d * (_d + 1) / 2) * _d**-2, _d, sp.oo)
    f = sp.IndexedBase("f")
    own = definition.rhs.subs(sp.Symbol("DF[X]"), 1) * _d ** sp.Rational(3, 2)
    removed = -result.rhs.subs(sp.IndexedBase("u")[_mu, _t], 0).subs(sp.IndexedBase("V")[_t], share)
    kept = result.rhs.coeff(sp.IndexedBase("u")[_mu, _t])
    return bool(own == f[_mu, _t - 1] and removed == share * own and kept == 1)


def _check_matrix_memory(definition: sp.Eq, result: sp.Eq) -> bool:
    """E[X Tr(X S)] = S for explicit 2 x 2 matrices, n = alpha d^2 of them."""
    a, b, c = sp.symbols("a b c")
    X, S = sp.Matrix([[a, c], [c, b]]), sp.Matrix([[2, 5], [5, -3]])
    weighted = X * sp.trace(X * S)
    covariance = sp.diag(1, 1, sp.Rational(1, 2))
    mean = weighted.applyfunc(lambda entry: gaussian_average(sp.expand(entry), (a, b, c), covariance))
    # d^(-3/2) (alpha d^2) f' S/sqrt(d), which A S must cancel.
    response = s.alpha * _d**2 * definition.rhs / _d**2
    return mean == S and sp.expand(result.rhs + response) == 0


# --- state evolution ------------------------------------------------------------------------------


def output_maps(channel: Channel) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """A, M, C of one iteration from the overlaps and V; of a softmax channel, in its averages."""
    if isinstance(channel, LinearChannel):
        f = linear_message(channel).subs(channel.y, channel.label)
        slopes = sp.diff(f, channel.omega), sp.diff(f, channel.u0)
        return -s.alpha * slopes[0], s.alpha * slopes[1], s.alpha / 2 * channel.average(f**2)
    return _stein_maps(channel)


def linear_message(channel: LinearChannel) -> sp.Expr:
    """f(y, omega, V) = (u* - omega)/V of the quadratic loss."""
    prox = next(step.result.rhs for step in channel.steps() if step.name == "proximal operator")
    return sp.factor((prox - channel.omega) / s.V)


def _stein_maps(channel: SoftmaxChannel) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Stein's lemma for both fields, solved for A and M; jumps of f count."""
    A, M = sp.symbols("A M", positive=True)
    variables = (channel.target_variance, s.m, s.q, s.V)
    field, student, square = (average(kind, *variables) for kind in ("field", "student", "square"))
    lemma = [
        s.alpha * field - (channel.target_variance * M - s.m * A),
        s.alpha * student - (s.m * M - s.q * A),
    ]
    found = sp.solve(lemma, [A, M], dict=True)[0]
    return found[A], found[M], s.alpha / 2 * square


def _state_evolution(problem: Problem) -> list[Step]:
    field, student = sp.symbols("E[f.u0] E[f.omega]")
    Q = sp.Symbol("Q0")
    overlap = SpectralIntegral(s.x * _F(s.x), s.M, s.C) - 2 * s.C * s.V
    A, M, C = output_maps(problem.channel)
    square = sp.Symbol("E[f.f]")
    return [
        Step(
            "law of B",
            sp.Tuple(
                sp.Eq(s.M, s.alpha * sp.Symbol("sum_l E[df_l/du0_l]")),
                sp.Eq(s.A, -s.alpha * sp.Symbol("sum_l E[df_l/domega_l]")),
            ),
            "B is M S0 (the response of f to the target) plus Gaussian noise of the covariance "
            "(1/d) alpha E[f.f] E[X X]: sqrt(C) G; Stein's lemma for u0 and for omega",
            sp.Tuple(
                sp.Eq(field, (Q * s.M - s.m * s.A) / s.alpha),
                sp.Eq(student, (s.m * s.M - s.q * s.A) / s.alpha),
                sp.Eq(s.C, s.alpha * square / 2),
            ),
            ("f is a function of (u0, omega) and label noise of one sample",),
            _check_stein,
        ),
        Step(
            "overlaps of the next iterate",
            sp.Eq(sp.Symbol("B"), s.M * sp.Symbol("S0") + sp.sqrt(s.C) * _G),
            "q = Tr F(B)^2/d; m from Tr B F(B)/d = M m + sqrt(C) Tr G F(B)/d, where Stein's lemma for G "
            "gives twice the divergence",
            sp.Tuple(
                sp.Eq(s.q, SpectralIntegral(_F(s.x) ** 2, s.M, s.C)),
                sp.Eq(s.m, sp.expand(overlap / s.M)),
            ),
            (),
            _check_overlaps,
        ),
        Step(
            "output side of the state evolution",
            sp.Tuple(sp.Symbol("f"), sp.Eq(sp.Symbol("f"), sp.Symbol("(u* - omega)/V"))),
            f"A, M and C for the {problem.channel.describe()}",
            sp.Tuple(sp.Eq(s.A, sp.factor(A)), sp.Eq(s.M, sp.factor(M)), sp.Eq(s.C, sp.factor(C))),
            (),
            _check_output(problem.channel),
        ),
    ]


def _check_stein(definition: sp.Tuple, result: sp.Tuple) -> bool:
    """A cubic f and explicit moments; and E[X_pr^2] for the noise."""
    u0, omega = sp.symbols("u0 omega")
    Q = sp.Symbol("Q0")
    moments = sp.Matrix([[Q, s.m], [s.m, s.q]])
    f = 3 * u0 - 2 * omega + u0 * omega**2 - 5 * omega**3 + 7 * u0**3

    def mean(expression: sp.Expr) -> sp.Expr:
        return gaussian_average(sp.expand(expression), (u0, omega), moments)

    slopes = {
        sp.Symbol("sum_l E[df_l/du0_l]"): mean(sp.diff(f, u0)),
        sp.Symbol("sum_l E[df_l/domega_l]"): mean(sp.diff(f, omega)),
    }
    values = {eq.lhs: eq.rhs.subs(slopes) for eq in definition}
    for eq, partner in zip(result[:2], (u0, omega), strict=True):
        if sp.expand(mean(f * partner) - eq.rhs.subs(values)) != 0:
            return False
    # n of them with the variance 1/2 off the diagonal, times d^(-3): C/d.
    noise = s.alpha * _d**2 * sp.Symbol("E[f.f]") / 2 * _d**-3
    return bool(sp.expand(result[2].rhs / _d - noise) == 0)


def _check_overlaps(definition: sp.Eq, result: sp.Tuple) -> bool:
    """F = x^2: the traces of words in S0 and G by free independence, against the moments of nu."""
    one, two, three, four = sp.symbols("t1:5")  # moments of S0
    M, C = s.M, s.C
    moments = {
        1: M * one,
        2: M**2 * two + C,
        3: M**3 * three + 3 * M * C * one,
        4: M**4 * four + 4 * M**2 * C * two + 2 * M**2 * C * one**2 + 2 * C**2,
    }

    def number(expression: sp.Expr) -> sp.Expr:
        chosen = expression.subs(s.V, SpectralPair(s.x**2, M, C) / 2).replace(_F, lambda y: y**2)
        chosen = chosen.replace(
            lambda e: isinstance(e, SpectralPair), lambda e: 2 * moments[1]
        )  # (x^2 - y^2)/(x - y) = x + y
        return chosen.replace(
            lambda e: isinstance(e, SpectralIntegral),
            lambda e: moments.get(int(sp.degree(e.integrand, s.x)), sp.nan),
        )

    # Tr S0 (M S0 + sqrt(C) G)^2: the squares of G average to one.
    overlap = M**2 * three + C * one
    found = [number(eq.rhs) for eq in result]
    return bool(sp.expand(found[0] - moments[4]) == 0 and sp.expand(found[1] - overlap) == 0)


def _check_output(channel: Channel) -> Check:
    """Gradient averages of f against the derivatives of the potential."""
    own = saddle_equations(channel, "nuclear")
    return lambda _, result: all(sp.simplify(eq.rhs - own[eq.lhs]) == 0 for eq in result)


# --- the meeting ----------------------------------------------------------------------------------


def fixed_point(problem: Problem) -> dict[sp.Symbol, sp.Expr]:
    """Each of q, m, V, A, M, C as the state evolution of message passing gives it."""
    F = denoiser(PENALTIES[problem.penalty])
    V = SpectralPair(F, s.M, s.C) / 2
    square = (F**2).replace(  # ((y)_+^k)^n is (y)_+^(k n)
        lambda e: e.is_Pow and isinstance(e.base, PositivePart),
        lambda e: PositivePart(e.base.args[0], e.base.args[1] * e.exp),
    )
    q = SpectralIntegral(sp.expand(square), s.M, s.C)
    m = (SpectralIntegral(sp.expand(s.x * F), s.M, s.C) - 2 * s.C * V) / s.M
    A, M, C = output_maps(problem.channel)
    spectral = {s.q: q, s.m: m, s.V: V}
    in_moments = {k: free_moments(value, s.mean, s.Q0) for k, value in spectral.items()}
    return in_moments | {s.A: A, s.M: M, s.C: C}


def _meeting(problem: Problem) -> Step:
    found = fixed_point(problem)
    own = saddle_equations(problem.channel, problem.penalty)
    differences = [sp.simplify(sp.expand(found[k] - own[k])) for k in own]
    return Step(
        "fixed points are saddle points",
        sp.Tuple(*(sp.Eq(k, value) for k, value in found.items())),
        "subtract the saddle-point equations of the replica potential, in the order q, m, V, A, M, C",
        sp.Tuple(*differences),
        (),
        _check_meeting(own),
    )


def _check_meeting(own: dict[sp.Symbol, sp.Expr]) -> Check:
    """Both sides agree in every one of the six equations."""

    def check(definition: sp.Tuple, result: sp.Tuple) -> bool:
        agree = all(sp.simplify(sp.expand(eq.rhs - own[eq.lhs])) == 0 for eq in definition)
        return agree and all(difference == 0 for difference in result)

    return check
