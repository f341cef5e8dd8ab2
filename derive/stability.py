"""Local stability of the replica-symmetric saddle point: the replicon, and jumps of the minimiser.

Two runs of message passing on the same data (two replicas) whose matrices B differ by a little noise of
their own: the noise is multiplied by the replicon Lambda at every iteration. The saddle point is stable,
and message passing converges to it, where Lambda < 1 (THEORY.md section 5).
"""

from functools import cache

import sympy as sp

from derive import symbols as s
from derive.amp import linear_message
from derive.channels import Channel
from derive.gaussian import gaussian_average
from derive.linear import LinearChannel
from derive.model import Problem
from derive.penalties import PENALTIES, denoiser
from derive.saddle import saddle_equations
from derive.spectra import PositivePart, SquaredPair
from derive.steps import Check, Step

__all__ = ["linear_replicon", "replicon", "response", "settled", "spread", "stability_steps"]

# E[sum_lk (df_l/domega_k)^2], and IntInt of the squared divided difference of A F (of (A + lam) F).
response, spread = sp.symbols("response spread", nonnegative=True)
Lambda, D, K, J = sp.symbols("Lambda D K J", nonnegative=True)
_eps, _later = sp.symbols("eps eps'", positive=True)
_slopes = sp.Symbol("E[sum_lk (df_l/domega_k)^2]", nonnegative=True)
_change = sp.Symbol("E[norm(df)^2]", nonnegative=True)
_moved, _G, _H = sp.symbols("dB G H")
_f, _F = sp.Function("f"), sp.Function("F")
_SPREAD = SquaredPair(_F(s.x), s.M, s.C)


@cache
def replicon(penalty: str) -> sp.Expr:
    """Lambda in alpha, `response`, `spread`, A and lam."""
    F = denoiser(PENALTIES[penalty])
    return _in_spread(sp.expand(s.alpha / 2 * response * SquaredPair(F, s.M, s.C)))


def _in_spread(expression: sp.Expr) -> sp.Expr:
    return expression.replace(lambda e: isinstance(e, SquaredPair), lambda _: spread)


@cache
def linear_replicon(penalty: str) -> sp.Expr:
    """Lambda of the linear task in alpha, A and `spread`; finite at lam -> 0+ too, where V is not."""
    return _in_spread(_linear_replicon(penalty))


def _linear_replicon(penalty: str) -> sp.Expr:
    channel = LinearChannel()
    own = saddle_equations(channel, penalty)
    inserted = _raw_linear_replicon(channel, penalty)
    if penalty == "frobenius":
        # The denoiser is linear: A + lam is a function of V.
        lam = sp.solve(sp.Eq(s.V, own[s.V]), s.lam)[0]
        inserted = inserted.subs(s.lam, lam)
    V = sp.solve(sp.Eq(s.A, own[s.A]), s.V)[0]
    return sp.factor(sp.cancel(inserted.subs(s.V, V)))


def _raw_linear_replicon(channel: LinearChannel, penalty: str) -> sp.Expr:
    F = denoiser(PENALTIES[penalty])
    return s.alpha / 2 * _linear_response(channel) * SquaredPair(F, s.M, s.C)


@cache
def settled(penalty: str) -> tuple[sp.Expr, sp.Expr]:
    """J and the distance D = norm(S_1 - S_2)_F^2/d at which jumps settle.

    J is in alpha, `spread`, A, lam and K = Int p(omega) norm(jump of f)^2 over the surface of the jumps;
    the distance in J and Lambda.
    """
    F = denoiser(PENALTIES[penalty])
    strength = _jump_strength(K).subs(_SPREAD, SquaredPair(F, s.M, s.C))
    return _in_spread(strength), _distance()


def stability_steps(problem: Problem) -> list[Step]:
    """The replicon, its value for the channel and penalty, and what follows from it."""
    channel, penalty = problem.channel, problem.penalty
    general = [*_perturbation(), _condition(), _response_step(channel)]
    if isinstance(channel, LinearChannel):
        return [*general, _linear_step(channel, penalty), _bound_step(channel, penalty)]
    return [*general, *_jumps()]


# --- one iteration of two runs --------------------------------------------------------------------


_omega = sp.symbols("omega1:3")
_delta = sp.symbols("delta1:3")


def _shifted() -> tuple[sp.Expr, ...]:
    return tuple(o + e for o, e in zip(_omega, _delta, strict=True))


def _perturbation() -> list[Step]:
    square = (_f(*_shifted()) - _f(*_omega)) ** 2
    return [
        Step(
            "perturbed denoiser",
            sp.Eq(_moved, sp.sqrt(_eps) * _G),
            "two runs whose B differ by GOE noise that is independent of B: the derivative of F along G "
            "has the entries of G times the divided differences of F; D = E norm(dS)_F^2/d",
            sp.Eq(D, _eps * _SPREAD),
            ("eps is small, and F Lipschitz",),
            _check_denoiser,
        ),
        Step(
            "perturbed pre-activations",
            square,
            "omega + delta with independent delta_l of variance D; average to first order in D",
            sp.Eq(_change, D * _slopes),
            ("f does not jump",),
            _check_fields,
        ),
        Step(
            "perturbed matrix",
            sp.Eq(s.C, s.alpha * sp.Symbol("E[f.f]") / 2),
            "the sum of df X has the covariance that C has from f X; memory terms take the rest away",
            sp.Eq(_later, s.alpha * _change / 2),
            (),
            _check_matrix,
        ),
    ]


def _check_denoiser(_: sp.Eq, result: sp.Eq) -> bool:
    """F = x^3 and a 2 x 2 matrix in its eigenbasis, off the diagonal as d -> oo."""
    x1, x2, g = sp.symbols("x1 x2 g")
    B, off = sp.diag(x1, x2), sp.Matrix([[0, g], [g, 0]])
    along = B * B * off + B * off * B + off * B * B
    size = 2
    variance = _eps / size
    # Two entries, over d.
    found = 2 * gaussian_average(sp.expand(along[0, 1] ** 2), (g,), sp.Matrix([[variance]])) / size
    (pair,) = result.rhs.atoms(SquaredPair)
    difference = sp.cancel((x1**3 - x2**3) / (x1 - x2))
    return bool(sp.expand(found - result.rhs.coeff(pair) * 2 * difference**2 / size**2) == 0)


def _check_fields(_: sp.Expr, result: sp.Eq) -> bool:
    """Two polynomials of two fields, every average by Wick contractions."""
    one, two = _omega
    maps = (one * two + 3 * one, 2 * two**2 - one**3)
    place = dict(zip(_omega, _shifted(), strict=True))
    covariance = sp.diag(s.q, s.q, D, D)

    def mean(expression: sp.Expr) -> sp.Expr:
        return gaussian_average(sp.expand(expression), (*_omega, *_delta), covariance)

    moved = mean(sum((each.subs(place, simultaneous=True) - each) ** 2 for each in maps))
    slopes = mean(sum(sp.diff(each, o) ** 2 for each in maps for o in _omega))
    first = sp.expand(moved).coeff(D, 1) * D
    return bool(sp.expand(first - result.rhs.subs(_slopes, slopes)) == 0)


def _check_matrix(definition: sp.Eq, result: sp.Eq) -> bool:
    """Sensing matrices of the variance 1/2 off the diagonal, n = alpha d^2 of them, times d^(-3)."""
    d = sp.Symbol("d", positive=True)
    variance = s.alpha * d**2 * _change / 2 * d**-3
    same = definition.rhs.subs(sp.Symbol("E[f.f]"), _change)
    return bool(sp.expand(result.rhs / d - variance) == 0 and sp.expand(result.rhs - same) == 0)


def _condition() -> Step:
    return Step(
        "replicon",
        sp.Tuple(
            sp.Eq(D, _eps * _SPREAD), sp.Eq(_change, D * _slopes), sp.Eq(_later, s.alpha * _change / 2)
        ),
        "Lambda = eps'/eps: one iteration multiplies the difference by it; stable if Lambda < 1",
        sp.Eq(Lambda, s.alpha / 2 * _slopes * _SPREAD),
        (),
        _check_condition,
    )


def _check_condition(definition: sp.Tuple, result: sp.Eq) -> bool:
    distance, change, later = definition
    composed = later.rhs.subs(_change, change.rhs).subs(D, distance.rhs)
    return bool(sp.expand(composed - result.rhs * _eps) == 0)


# --- the channel ----------------------------------------------------------------------------------


def _linear_response(channel: LinearChannel) -> sp.Expr:
    return sp.diff(linear_message(channel), channel.omega) ** 2


def _response_step(channel: Channel) -> Step:
    if isinstance(channel, LinearChannel):
        return Step(
            "response of the linear channel",
            linear_message(channel),
            "differentiate in omega; it is the same for every sample",
            sp.Eq(_slopes, _linear_response(channel)),
            (),
            _check_linear_response(channel),
        )
    u, omega = sp.symbols("u omega")
    loss = sp.Function("loss")(u)
    return Step(
        "response of the softmax channel",
        sp.Eq(sp.diff(loss, u) + (u - omega) / s.V, 0),
        "implicit function theorem at u*, where H is the Hessian of the loss, a matrix over components; "
        "f = (u* - omega)/V",
        sp.Eq(sp.Symbol("df/domega"), -_H / (1 + s.V * _H)),
        ("u* does not jump",),
        _check_softmax_response,
    )


def _check_linear_response(channel: LinearChannel) -> Check:
    """One component whose slope is a constant: its square is (A/alpha)^2 of the saddle point."""
    A = saddle_equations(channel, "nuclear")[s.A]
    return lambda _, result: bool(sp.simplify(result.rhs - (A / s.alpha) ** 2) == 0)


def _check_softmax_response(_: sp.Eq, result: sp.Eq) -> bool:
    """A loss of second order, for which u* is explicit."""
    u, omega, slope = sp.symbols("u omega slope")
    loss = _H * u**2 / 2 + slope * u
    least = sp.solve(sp.diff(loss + (u - omega) ** 2 / (2 * s.V), u), u)[0]
    return bool(sp.simplify(sp.diff((least - omega) / s.V, omega) - result.rhs) == 0)


# --- the linear task is stable --------------------------------------------------------------------


def _linear_step(channel: LinearChannel, penalty: str) -> Step:
    return Step(
        "replicon of the linear task",
        sp.Eq(Lambda, sp.factor(_raw_linear_replicon(channel, penalty))),
        "insert the saddle point's A (and its V, for a linear denoiser)",
        sp.Eq(Lambda, _linear_replicon(penalty)),
        (),
        _check_linear(channel, penalty),
    )


def _check_linear(channel: LinearChannel, penalty: str) -> Check:
    """At numbers: pick V (and lam), A from the saddle point, and two eigenvalues for the integral."""

    def check(definition: sp.Eq, result: sp.Eq) -> bool:
        own = saddle_equations(channel, penalty)
        chosen = {s.alpha: sp.Rational(3, 7), s.V: sp.Rational(1, 3)}
        A = own[s.A].subs(chosen)
        if penalty == "frobenius":
            chosen[s.lam] = sp.solve(own[s.V].subs(s.A, A) - chosen[s.V], s.lam)[0]
        else:
            chosen[s.lam] = sp.Rational(1, 2)

        def number(expression: sp.Expr) -> sp.Expr:
            explicit = expression.replace(
                lambda e: isinstance(e, SquaredPair), lambda e: _two_eigenvalues(e.integrand)
            )
            return explicit.subs(chosen).subs(s.A, A).replace(PositivePart, lambda y, k: max(y, 0) ** k)

        return bool(sp.simplify(number(definition.rhs) - number(result.rhs)) == 0)

    return check


def _two_eigenvalues(f: sp.Expr) -> sp.Expr:
    """The squared divided difference between two numbers on either side of the cut."""
    low, high = sp.Rational(1, 5), sp.Integer(3)
    return ((f.subs(s.x, high) - f.subs(s.x, low)) / (high - low)) ** 2


def _bound_step(channel: LinearChannel, penalty: str) -> Step:
    A = saddle_equations(channel, penalty)[s.A]
    bound = sp.factor(s.alpha / 2 * _linear_response(channel) * 2 * s.V / A)
    return Step(
        "the linear task is stable",
        sp.Eq(sp.Symbol("D(x, y)^2"), sp.Symbol("D(x, y)") / s.A),
        "F rises by at most 1/A per unit: its divided differences are in 0..1/A, their squares are "
        "at most 1/A times themselves; the double integral of those is 2 V",
        sp.Eq(sp.Symbol("bound on Lambda"), bound),
        ("A > 0 and lam >= 0",),
        _check_bound(channel, penalty),
    )


def _check_bound(channel: LinearChannel, penalty: str) -> Check:
    """With f' = -A/alpha the bound is A V/alpha: below one, and the slope of F never exceeds 1/A."""

    def check(_: sp.Eq, result: sp.Eq) -> bool:
        A = saddle_equations(channel, penalty)[s.A]
        slope = sp.diff(_uncut_denoiser(penalty), s.x)
        return bool(
            sp.simplify(A * s.V / s.alpha - result.rhs) == 0
            and sp.together(1 - result.rhs).is_positive
            and sp.simplify(sp.together(1 / s.A - slope)).is_nonnegative
        )

    return check


def _uncut_denoiser(penalty: str) -> sp.Expr:
    """F where it is not zero."""
    return denoiser(PENALTIES[penalty]).replace(PositivePart, lambda y, k: y**k)


# --- jumps of the minimiser -----------------------------------------------------------------------


def _jump_strength(surface: sp.Expr) -> sp.Expr:
    return s.alpha / 2 * sp.sqrt(2 / sp.pi) * surface * _SPREAD


def _distance() -> sp.Expr:
    root = sp.Symbol("root", positive=True)
    return sp.solve(sp.Eq(root, Lambda * root + J), root)[0] ** 2


def _jumps() -> list[Step]:
    return [
        Step(
            "jumps of the minimiser",
            sp.Eq(K, sp.Symbol("Int p(omega) norm(jump of f)^2 over the surface of the jumps")),
            "a shift delta of variance D takes the share E|delta.n| = sqrt(2 D/pi) of the density p "
            "at the surface across it: what it adds to E norm(df)^2 is of order sqrt(D), not D",
            sp.Eq(_change, sp.sqrt(2 * D / sp.pi) * K),
            ("D is small",),
            _check_jumps,
        ),
        Step(
            "distance at which jumps settle",
            sp.Eq(D, Lambda * D + J * sp.sqrt(D)),
            "one iteration turns D into Lambda D + J sqrt(D): however small J is, two runs separate; "
            "they stop at this distance, which says how far the saddle point can be trusted",
            sp.Tuple(sp.Eq(J, _jump_strength(K)), sp.Eq(D, _distance())),
            ("Lambda < 1",),
            _check_distance,
        ),
    ]


def _check_jumps(_: sp.Eq, result: sp.Eq) -> bool:
    """f = sign(omega): omega and omega + delta differ in sign with the probability arctan(.)/pi."""
    root = sp.Symbol("root", positive=True)  # of D
    omega = sp.Symbol("omega", real=True)
    variance = sp.Symbol("variance", positive=True)
    density = sp.exp(-(omega**2) / (2 * variance)) / sp.sqrt(2 * sp.pi * variance)
    crossed = 4 * sp.atan(root / sp.sqrt(variance)) / sp.pi
    first = sp.series(crossed, root, 0, 2).removeO()
    found = result.rhs.subs({D: root**2, K: 4 * density.subs(omega, 0)})
    return bool(sp.simplify(found - first) == 0)


def _check_distance(definition: sp.Eq, result: sp.Tuple) -> bool:
    """The distance solves the equation; J is what the chain of perturbations makes of sqrt(D)."""
    left = sp.Symbol("left", positive=True)  # 1 - Lambda
    push = sp.Symbol("push", positive=True)
    at = {Lambda: 1 - left, J: push}
    value = result[1].rhs.subs(at)
    solves = sp.simplify((definition.rhs - definition.lhs).subs(at).subs(D, value)) == 0
    one = sp.Symbol("one", positive=True)
    chained = s.alpha * sp.sqrt(2 * one**2 / sp.pi) * K / 2 * _SPREAD / one
    return bool(solves and value != 0 and sp.simplify(result[0].rhs - chained) == 0)
