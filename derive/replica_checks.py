"""Checks of the replica steps by another way than the step: explicit replicas, small matrices, moments.

A check gets (definition, result) and decides from these alone: a wrong coefficient in either is seen.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import sympy as sp

from derive import symbols as s
from derive.channels import Channel
from derive.gaussian import ChannelAverage, gaussian_average
from derive.linear import LinearChannel
from derive.penalties import PENALTIES
from derive.potential import chain
from derive.replica_notation import (
    CONJUGATES,
    OVERLAPS,
    S0,
    G,
    Least,
    Mean,
    Over,
    Replica,
    S,
    a,
    b,
    c,
    d,
    loss,
    m_hat,
    mu,
    n_r,
    omega,
    penalty,
    q_hat,
    r,
    r_hat,
)
from derive.replica_symmetric import overlap_matrix
from derive.softmax import SoftmaxChannel
from derive.spectra import PositivePart, SpectralIntegral
from derive.wick import Form, Tr, explicit

__all__ = [
    "averaged",
    "conjugates",
    "covariance",
    "cumulants",
    "decoupled",
    "determinant",
    "goe",
    "ground",
    "inverse",
    "laplace",
    "legendre",
    "linear_integrals",
    "linear_limit",
    "normalised",
    "order_parameters",
    "potential",
    "replicated",
    "small_power",
    "symmetric",
]

_REPLICAS = (1, 2, 3)


def _zero(expression: sp.Expr) -> bool:
    return bool(sp.simplify(sp.expand(expression)) == 0)


# --- the replicated partition function -------------------------------------------------------------


def replicated(definition: sp.Eq, result: sp.Eq) -> bool:
    """Two states, two samples with two values each: sums in place of the integrals, term by term."""
    # exp(-loss) and exp(-penalty) of the toy are these rational numbers, at b = 1.
    fit = {(y, state): sp.Rational(*v) for (y, state), v in _FIT.items()}
    price = (sp.Rational(2, 3), sp.Rational(5, 7))

    def weigh(expression: sp.Expr, states: Sequence[int], data: Sequence[int] = ()) -> sp.Expr:
        """The weight of these states; averages inside run over the values of one sample."""
        placed = expression.subs({b: 1, s.alpha: 2 / d**2, n_r: len(states)}).doit()
        placed = placed.replace(
            Mean, lambda inner: sum(weigh(inner, states, (y,)) for y in (0, 1)) / sp.Integer(2)
        )
        values = {S: states[0]} | {Replica[i + 1]: state for i, state in enumerate(states)}
        placed = placed.replace(penalty, lambda state: -sp.log(price[values[state]]))

        def cost(sample: sp.Expr, state: sp.Expr) -> sp.Expr:
            which = 0 if sample == mu else int(sample) - 1
            return -sp.log(fit[data[which], values[state]])

        return sp.simplify(placed.replace(loss, cost))

    power, integral = definition.rhs, result.rhs
    if not isinstance(power, Over) or not isinstance(integral, Over):
        return False
    for replicas in _REPLICAS[:2]:
        left = sum(
            sum(weigh(power.args[0], (state,), data) for state in (0, 1)) ** replicas
            for data in product((0, 1), repeat=2)
        ) / sp.Integer(4)
        right = sum(weigh(integral.args[0], states) for states in product((0, 1), repeat=replicas))
        if not _zero(left - right):
            return False
    return True


_FIT = {(0, 0): (1, 2), (0, 1): (2, 5), (1, 0): (3, 4), (1, 1): (1, 7)}


# --- Gaussian equivalence -------------------------------------------------------------------------


def _explicit_field(definition: sp.Eq, i: int, j: int, matrix: sp.Matrix) -> sp.Expr:
    """The definition of h_ij at explicit tokens, a polynomial in their entries."""
    left_i, left_j, name = definition.lhs.args
    placed = definition.rhs.subs({left_i: i, left_j: j}, simultaneous=True)
    size = matrix.rows

    def form(first: sp.Expr, second: sp.Expr, _: sp.Expr) -> sp.Expr:
        x, y = (sp.Matrix(_token(int(token), size)) for token in (first, second))
        return (x.T * matrix * y)[0]

    placed = placed.replace(Form, form)
    return explicit(placed, {name: matrix}).subs(d, size)


def _token(index: int, size: int) -> list[sp.Symbol]:
    return list(sp.symbols(f"x{index}_1:{size + 1}", real=True))


def _average_tokens(expression: sp.Expr, tokens: int, size: int) -> sp.Expr:
    variables = [x for index in range(1, tokens + 1) for x in _token(index, size)]
    return gaussian_average(sp.expand(expression), variables, sp.eye(len(variables)))


_ONE = sp.Matrix([[sp.Rational(1, 2), 3], [3, -2]])
_OTHER = sp.Matrix([[5, sp.Rational(1, 3)], [sp.Rational(1, 3), 7]])


def covariance(definition: sp.Eq, result: sp.Eq) -> bool:
    """Explicit 2 x 2 matrices and two tokens, every pair of entries."""
    first, second = result.lhs.args[0].args
    labels = (*first.args[:2], *second.args[:2])
    matrices = {first.args[2]: _ONE, second.args[2]: _OTHER}
    for tokens in product((1, 2), repeat=4):
        i, j, k, l = tokens
        fields = _explicit_field(definition, i, j, _ONE) * _explicit_field(definition, k, l, _OTHER)
        stated = result.rhs.subs(dict(zip(labels, tokens, strict=True)), simultaneous=True)
        if not _zero(_average_tokens(fields, 2, 2) - explicit(stated, matrices).subs(d, 2)):
            return False
    return True


def cumulants(definition: sp.Eq, result: sp.Tuple) -> bool:
    """Explicit moments of h_11 for a 2 x 2 matrix."""
    field = _explicit_field(definition, 1, 1, _ONE)
    second, third, fourth = (_average_tokens(field**power, 1, 2) for power in (2, 3, 4))
    stated = [explicit(value, {S: _ONE}).subs(d, 2) for value in result]
    return _zero(third - stated[0]) and _zero(fourth - 3 * second**2 - stated[1])


def normalised(definition: sp.Eq, result: sp.Eq) -> bool:
    """Covariance of h from that of u, and back to the one derived, over the pairs of three tokens."""
    scale, (first, second) = definition.rhs.args[0], result.lhs.args[0].args
    i, j = definition.lhs.args[:2]
    labels = (*first.args[:2], *second.args[:2])
    trace = Tr(first.args[2], second.args[2])
    pairs = [(p, q) for p in (1, 2, 3) for q in (1, 2, 3) if p <= q]
    delta = sp.KroneckerDelta
    for (p, q), (k, l) in product(pairs, pairs):
        factor = scale.subs({i: p, j: q}) * scale.subs({i: k, j: l})
        of_u = result.rhs.subs(dict(zip(labels, (p, q, k, l), strict=True)), simultaneous=True)
        of_h = (delta(p, k) * delta(q, l) + delta(p, l) * delta(q, k)) * trace / d
        if not _zero(factor * of_u - of_h):
            return False
    return True


# --- order parameters -----------------------------------------------------------------------------


def _scalars(expression: sp.Expr, replicas: int) -> sp.Expr:
    """The expression for so many replicas that are numbers (1 x 1 matrices)."""
    placed = expression.subs(n_r, replicas).doit()
    numbers = {S0: sp.Symbol("t0")} | {Replica[k]: sp.Symbol(f"t{k}") for k in range(1, replicas + 1)}
    return placed.replace(Tr, lambda *names: sp.Mul(*(name.subs(numbers) for name in names)))


def order_parameters(definition: sp.Tuple, result: sp.Tuple) -> bool:
    """The delta functions are resolved: with the traces in place of Q and m the exponents cancel."""
    legendre, weights = result
    (overlap, field), (Q, m) = (eq.rhs for eq in definition), (eq.lhs.base for eq in definition)
    for replicas in _REPLICAS:
        values = {
            Q[k, l]: _scalars(overlap.subs({a: k, c: l}, simultaneous=True), replicas)
            for k, l in product(range(1, replicas + 1), repeat=2)
        }
        values |= {m[k]: _scalars(field.subs(a, k), replicas) for k in range(1, replicas + 1)}
        fixed = legendre.subs(n_r, replicas).doit().subs(values)
        if not _zero(d**2 * fixed + _scalars(weights, replicas)):
            return False
    return True


def symmetric(definition: sp.Tuple, result: sp.Tuple) -> bool:
    """Sums over one, two and three replicas, written out."""
    Q, Q_hat, m, mh = (sp.IndexedBase(name) for name in ("Q", "Qhat", "m", "mhat"))
    _, overlap, own, pair = OVERLAPS
    for replicas in _REPLICAS:
        ansatz: dict[sp.Expr, sp.Expr] = {}
        for k, l in product(range(1, replicas + 1), repeat=2):
            ansatz |= {Q[k, l]: own if k == l else pair, Q_hat[k, l]: r_hat if k == l else q_hat}
            ansatz |= {m[k]: overlap, mh[k]: m_hat}
        legendre = definition[0].subs(n_r, replicas).doit().subs(ansatz)
        weights = _scalars(definition[1], replicas).subs(ansatz)
        if not _zero(legendre - result[0].subs(n_r, replicas)):
            return False
        if not _zero(weights - _scalars(result[1], replicas)):
            return False
    return True


# --- the overlap matrix ---------------------------------------------------------------------------


def _stated_matrix(definition: sp.Tuple, replicas: int) -> sp.Matrix:
    corner, side, block = (eq.rhs for eq in definition)
    values = (corner, side, block.subs({a: 1, c: 1}), block.subs({a: 1, c: 2}))
    return overlap_matrix(replicas, values)


def determinant(definition: sp.Tuple, result: sp.Eq) -> bool:
    """Explicit determinants for one, two and three replicas."""
    return all(_zero(_stated_matrix(definition, n).det() - result.rhs.subs(n_r, n)) for n in _REPLICAS)


def inverse(definition: sp.Tuple, result: sp.Tuple) -> bool:
    """The product with the explicit matrix is one, for one, two and three replicas."""
    for replicas in _REPLICAS:
        found = overlap_matrix(replicas, tuple(entry.subs(n_r, replicas) for entry in result))
        one = _stated_matrix(definition, replicas) * found - sp.eye(replicas + 1)
        if not all(_zero(entry) for entry in one):
            return False
    return True


def decoupled(definition: sp.Tuple, result: sp.Eq) -> bool:
    """Moments of the independent representation invert the matrix that the step starts from."""
    Q0, m, _, q = OVERLAPS
    z = sp.IndexedBase("z")
    for replicas in _REPLICAS:
        noises = sp.symbols(f"z1:{replicas + 1}")
        variables = (sp.Symbol("u0"), omega, *noises)
        moments = sp.diag(sp.Matrix([[Q0, m], [m, q]]), sp.eye(replicas))
        fields = [variables[0]]
        fields += [result.rhs.subs(a, k + 1).subs(z[k + 1], noises[k]) for k in range(replicas)]
        found = sp.Matrix(
            replicas + 1,
            replicas + 1,
            lambda x, y, v=fields, w=variables, K=moments: gaussian_average(v[x] * v[y], w, K),
        )
        stated = overlap_matrix(replicas, tuple(entry.subs(n_r, replicas) for entry in definition))
        if not all(_zero(entry) for entry in found * stated - sp.eye(replicas + 1)):
            return False
    return True


# --- the output channel ---------------------------------------------------------------------------


def small_power(definition: sp.Eq, result: sp.Eq) -> bool:
    """A variable X with two values: the average of X^n_r is explicit."""
    base, power = definition.rhs.args[0].as_base_exp()
    p, low, high = sp.Rational(1, 3), sp.Integer(2), sp.Integer(5)

    def mean(expression: sp.Expr) -> sp.Expr:
        return p * expression.subs(base, low) + (1 - p) * expression.subs(base, high)

    left = sp.limit(sp.log(mean(base**power)) / n_r, n_r, 0)
    right = result.rhs.replace(Mean, mean)
    return _zero(sp.expand_log(left - right, force=True))


def laplace(definition: sp.Eq, result: sp.Eq) -> bool:
    """A quadratic loss, for which the integral is Gaussian at every b."""
    strength, label = sp.symbols("strength label", positive=True)
    variable = definition.rhs.args[1][0]

    def quadratic(expression: sp.Expr) -> sp.Expr:
        return expression.replace(loss, lambda _, value: strength * (value - label) ** 2)

    weight = quadratic(definition.rhs.args[0])
    exponent = sp.Poly(sp.expand(sp.expand_log(sp.log(weight), force=True)), variable)
    second, first, zeroth = (exponent.coeff_monomial(variable**k) for k in (2, 1, 0))
    # Int exp(-k u^2 + l u + c) du = sqrt(pi/k) exp(l^2/(4 k) + c).
    log = zeroth + first**2 / (-4 * second) + sp.log(sp.pi / -second) / 2
    left = sp.limit(sp.expand_log(-log / b, force=True), b, sp.oo)
    if not isinstance(result.rhs, Least):
        return False
    goal = quadratic(result.rhs.args[1])
    at = sp.solve(sp.diff(goal, variable), variable)
    return len(at) == 1 and _zero(left - goal.subs(variable, at[0]))


def residual_block(channel: LinearChannel) -> tuple[sp.Expr, sp.Expr]:
    """Covariance x 1 + y J of the residuals y - sqrt(2) u_a: x and y."""
    Q0, m, own, pair = OVERLAPS
    first, second = sp.symbols("u1 u2", real=True)
    moments = sp.diag(overlap_matrix(2, (Q0, m, own, pair)), sp.eye(1))
    variables = (channel.u0, first, second, channel.xi)
    residuals = [channel.label - sp.sqrt(2) * each for each in (first, second)]
    ones = gaussian_average(sp.expand(residuals[0] * residuals[1]), variables, moments)
    diagonal = gaussian_average(sp.expand(residuals[0] ** 2), variables, moments) - ones
    return sp.factor(diagonal), sp.expand(ones)


def linear_integrals(definition: sp.Eq, result: sp.Eq) -> bool:
    """The Gaussian integral over (u0, u_1..u_n, xi) with the full overlap matrix, n_r = 1, 2, 3."""
    channel = LinearChannel()
    point = dict(zip(OVERLAPS, map(sp.Rational, ("7/4", "2/3", "3/2", "4/5")), strict=True))
    point |= {b: sp.Rational(5, 3), s.Delta: sp.Rational(1, 7)}
    u = sp.IndexedBase("u")
    for replicas in _REPLICAS:
        students = sp.symbols(f"u1:{replicas + 1}", real=True)
        variables = [channel.u0, *students, channel.xi]
        exponent = definition.rhs.args[0].args[0].subs(n_r, replicas).doit()
        exponent = exponent.subs({u[k + 1]: name for k, name in enumerate(students)})
        quadratic = sp.expand(exponent.subs(channel.y, channel.label).subs(point))
        curvature = -sp.hessian(quadratic, variables)
        entries = tuple(point[entry] for entry in OVERLAPS)
        precision = sp.diag(overlap_matrix(replicas, entries), sp.eye(1)).inv()
        left = precision.det() / (precision + curvature).det()
        if not _zero(left - result.rhs.subs(n_r, replicas).subs(point) ** 2):
            return False
    return True


def linear_limit(definition: sp.Eq, result: sp.Eq) -> bool:
    """Derivative at n_r = 0 in place of the limit, and the average that the channel itself derives."""
    slope = -sp.diff(sp.log(definition.rhs), n_r).subs(n_r, 0) / b
    at = slope.subs(r, s.q + s.V / b)
    leading = sp.limit(sp.simplify(at), b, sp.oo)
    own = chain(LinearChannel(), "nuclear")["averaged Moreau envelope"].result.rhs
    return _zero(result.rhs - leading) and _zero(result.rhs - own)


def averaged(channel: Channel) -> Callable[[Any, Any], bool]:
    """The averaged envelope: moments of the labelled field, and what no student can fit."""

    def check(definition: sp.Basic, result: sp.Eq) -> bool:
        if isinstance(channel, LinearChannel):
            return _linear_moreau(channel, result.rhs)
        return _softmax_average(channel, result.rhs)

    return check


def _linear_moreau(channel: LinearChannel, stated: sp.Expr) -> bool:
    """Gaussian residual of variance v: the envelope is quadratic, its coefficient that at one."""
    residual = channel.label - sp.sqrt(2) * channel.omega
    moments = sp.diag(sp.Matrix([[s.Q0, s.m], [s.m, s.q]]), sp.eye(1))
    v = gaussian_average(sp.expand(residual**2), (channel.u0, channel.omega, channel.xi), moments)
    # min over x of (1 - sqrt(2) x)^2 + x^2/(2 V): the envelope at residual one.
    x = sp.Symbol("x", real=True)
    goal = (1 - sp.sqrt(2) * x) ** 2 + x**2 / (2 * s.V)
    (at,) = sp.solve(sp.diff(goal, x), x)
    return _zero(stated - v * goal.subs(x, at))


def _softmax_average(channel: SoftmaxChannel, stated: sp.Expr) -> bool:
    averages = list(stated.atoms(ChannelAverage))
    if len(averages) != 1 or stated.coeff(averages[0]) != 1:
        return False
    kind, Q, *others = averages[0].args
    u0, noise = sp.symbols("u0 noise")
    inside = channel.noise_at == "inside"
    label = u0 + (sp.sqrt(s.Delta / 2) * noise if inside else 0)
    if str(kind) != "moreau" or tuple(others) != (s.m, s.q, s.V):
        return False
    if not _zero(Q - gaussian_average(label**2, (u0, noise), sp.diag(s.Q0, 1))):
        return False
    rest = sp.expand(stated - averages[0])
    # The part of a row's noise along (1, ..., 1)/sqrt(T), row by row.
    for tokens in (2, 3):
        xi = sp.symbols(f"xi1:{tokens + 1}")
        along = gaussian_average(sp.expand(s.Delta * sum(xi) ** 2 / tokens), xi, sp.eye(tokens))
        unfit = 0 if inside else tokens * along
        number = channel.tokens if channel.tokens.is_number else tokens
        if number == tokens and not _zero(rest.subs(channel.tokens, tokens) - unfit):
            return False
    return True


# --- the spectrum ---------------------------------------------------------------------------------


def goe(definition: sp.Expr, result: sp.Expr) -> bool:
    """The Gaussian average of exp(c Tr(G X)) for an explicit 2 x 2 matrix X."""
    g1, g2, g12 = sp.symbols("g1 g2 g12")
    matrix, variance = sp.Matrix([[g1, g12], [g12, g2]]), sp.diag(2, 2, 1) / d
    total = next(iter(definition.atoms(Tr))).args[0]
    values = {total: _ONE, G: matrix}

    def log(expression: sp.Expr) -> sp.Expr:
        return explicit(sp.expand_log(sp.log(expression), force=True), values)

    if not isinstance(result, Mean):
        return False
    field = log(result.args[0])
    # log E[exp(x)] of a Gaussian is half its variance.
    spread = gaussian_average(sp.expand(field**2), (g1, g2, g12), variance) / 2
    return _zero(spread - log(definition))


def conjugates(definition: sp.Expr, result: sp.Expr) -> bool:
    """The two exponents at random rational points, with the conjugates inserted."""
    names = {symbol: sp.Rational(3 + 2 * k, 7 + k) for k, symbol in enumerate((s.A, s.M, s.C, d))}
    numbers = {S0: sp.Rational(5, 3), S: sp.Rational(7, 2), G: sp.Rational(11, 13)}

    def number(expression: sp.Expr) -> sp.Expr:
        scalar = expression.replace(Tr, lambda *x: sp.Mul(*(numbers[name] for name in x)))
        return scalar.subs(names)

    return _zero(number(definition.subs(CONJUGATES)) - number(result))


def ground(penalty_name: str) -> Callable[[Any, Any], bool]:
    """The integrand is the least value of the objective over the eigenvalues that are allowed."""
    allowed = PENALTIES[penalty_name].factorised  # S >= 0

    def check(definition: sp.Tuple, result: sp.Eq) -> bool:
        field, objective = definition
        (functional,) = result.rhs.atoms(SpectralIntegral) or (None,)
        if functional is None or functional.args[1:] != (s.M, s.C):
            return False
        prefactor = sp.cancel(result.rhs / functional)
        integrand = (prefactor * functional.integrand).replace(
            PositivePart, lambda y, k: sp.Max(y, 0) ** k
        )
        eigenvalue = next(x for x in objective.free_symbols if x.name == "s")
        points = product((sp.Rational(1, 3), 2), (sp.Rational(1, 5), 3), (-1, sp.Rational(1, 7), 4))
        for curvature, lam, x in points:
            at = {s.A: curvature, s.lam: lam, s.x: x}
            goal = objective.subs(at)
            (free,) = sp.solve(sp.diff(goal, eigenvalue), eigenvalue)
            best = sp.Max(free, 0) if allowed else free
            if not _zero(integrand.subs(at) - goal.subs(eigenvalue, best)):
                return False
        return bool(field.rhs == s.M * S0 + sp.sqrt(s.C) * G)

    return check


# --- the potential --------------------------------------------------------------------------------


def legendre(definition: sp.Expr, result: sp.Eq) -> bool:
    """Coefficients of n_r and of b in place of the limits; what grows like b^2 cancels."""
    linear = sp.expand(definition.subs(CONJUGATES).subs(r, s.q + s.V / b)).coeff(n_r, 1)
    return _zero(linear.coeff(b, 2)) and _zero(linear.coeff(b, 1) + result.rhs)


def potential(channel: Channel, penalty_name: str) -> Callable[[Any, Any], bool]:
    """Identical with the potential of `derive.potential`, whose parts come from the classical route."""

    def check(definition: sp.Basic, result: sp.Eq) -> bool:
        own = chain(channel, penalty_name)["potential"].result.rhs
        return bool(sp.expand(own - result.rhs) == 0)

    return check
