"""From the replicated partition function to the replica-symmetric potential, step by step.

E[Z^n_r] -> Gaussian equivalence of the pre-activations (Wick contractions) -> order parameters ->
replica-symmetric ansatz -> n_r -> 0 -> b -> oo with V = b (r - q) -> channel (Moreau envelope) and
spectrum (GOE field) -> the potential of `derive.potential`. Every step carries a check of its own, by
another way than the one that made it (`derive.replica_checks`).
"""

import sympy as sp

from derive import replica_checks as checks
from derive import symbols as s
from derive.channels import Channel
from derive.linear import LinearChannel
from derive.model import Problem
from derive.penalties import PENALTIES, denoiser
from derive.potential import chain, spectral_term
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
    h,
    loss,
    m_hat,
    mu,
    n_r,
    omega,
    penalty,
    q_hat,
    r,
    r_hat,
    u,
)
from derive.replica_symmetric import overlap_determinant, overlap_inverse
from derive.steps import Step
from derive.wick import Form, Tr, gaussian_moment

__all__ = ["replica_potential", "replica_steps"]


def replica_steps(problem: Problem) -> list[Step]:
    """The chain from the partition function to the potential for a task and a penalty."""
    channel, penalty = problem.channel, problem.penalty
    return [
        _replicated(),
        *_fields(),
        *_order_parameters(),
        *_overlaps(),
        *_output(),
        *(_linear_output() if isinstance(channel, LinearChannel) else []),
        *_channel(channel, penalty),
        *_spectral(penalty),
        *_assembly(channel, penalty),
    ]


def replica_potential(problem: Problem) -> sp.Expr:
    """The potential at which the replica route arrives."""
    return replica_steps(problem)[-1].result.rhs


i, j, k, l = sp.symbols("i j k l", integer=True, positive=True)


# --- the replicated partition function ------------------------------------------------------------


def _replicated() -> Step:
    objective = sp.Sum(loss(mu, S), (mu, 1, s.alpha * d**2)) + penalty(S)
    single = sp.exp(-b * sp.Sum(loss(mu, Replica[a]), (a, 1, n_r)))
    penalties = sp.exp(-b * sp.Sum(penalty(Replica[a]), (a, 1, n_r)))
    return Step(
        "replicated partition function",
        sp.Eq(sp.Symbol("Z"), Over(sp.exp(-b * objective))),
        "raise to the power n_r, one integral for each replica S_a, and average over the alpha d^2 "
        "independent samples at a given target",
        sp.Eq(
            Mean(sp.Symbol("Z") ** n_r),
            Over(penalties * Mean(single) ** (s.alpha * d**2)),
            evaluate=False,
        ),
        ("log Z is self-averaging, so that E[log Z] = lim (E[Z^n_r] - 1)/n_r",),
        checks.replicated,
    )


# --- Gaussian equivalence -------------------------------------------------------------------------


def _field(first: sp.Expr, second: sp.Expr, matrix: sp.Expr) -> sp.Expr:
    """h_ab of THEORY.md section 1."""
    removed = sp.KroneckerDelta(first, second) * Tr(matrix)
    return (Form(first, second, matrix) - removed) / sp.sqrt(d)


def _fields() -> list[Step]:
    definition = sp.Eq(h(i, j, S), _field(i, j, S))
    other = sp.Symbol("S'")
    covariance = gaussian_moment(_field(i, j, S) * _field(k, l, other))
    powers = [gaussian_moment(_field(1, 1, S) ** power) for power in (2, 3, 4)]
    cumulants = sp.Tuple(powers[1], sp.factor(sp.expand(powers[2] - 3 * powers[0] ** 2)))
    delta = sp.KroneckerDelta
    ordered = delta(i, k) * delta(j, l) * Tr(S, other) / d
    return [
        Step(
            "covariance of the pre-activations",
            definition,
            "average the product of two over tokens x ~ N(0, 1_d): Wick contractions; the trace that is "
            "removed cancels those within one form",
            sp.Eq(Mean(h(i, j, S) * h(k, l, other)), covariance),
            (),
            checks.covariance,
        ),
        Step(
            "Gaussian equivalence",
            definition,
            "third and fourth cumulant of h_11 from the same contractions: of the order d^(-1/2) and "
            "d^(-1), where every trace is of the order d. What is left as d -> oo is the covariance",
            cumulants,
            ("the eigenvalues of S stay of order one, up to a finite number",),
            checks.cumulants,
        ),
        Step(
            "normalised pre-activations",
            sp.Eq(h(i, j, S), sp.sqrt(1 + delta(i, j)) * u(i, j, S)),
            "divide the covariance by sqrt((1 + delta_ij)(1 + delta_kl)), for i <= j and k <= l: one "
            "independent Gaussian u_ij for each pair, with the overlap Tr(S S')/d",
            sp.Eq(Mean(u(i, j, S) * u(k, l, other)), ordered),
            (),
            checks.normalised,
        ),
    ]


# --- order parameters and the replica-symmetric ansatz --------------------------------------------


def _over_pairs(symmetric: sp.Expr) -> sp.Expr:
    """Sum over a < c: half of all pairs but those of a replica with itself."""
    everything = sp.Sum(symmetric, (c, 1, n_r), (a, 1, n_r))
    return (everything - sp.Sum(symmetric.subs(c, a), (a, 1, n_r))) / 2


def _order_parameters() -> list[Step]:
    Q, Q_hat, m, mh = (sp.IndexedBase(name) for name in ("Q", "Qhat", "m", "mhat"))
    own = sp.Rational(1, 2)
    legendre = sp.Sum(own * Q_hat[a, a] * Q[a, a] - mh[a] * m[a], (a, 1, n_r)) - _over_pairs(
        Q_hat[a, c] * Q[a, c]
    )
    weights = (
        sp.Sum(-own * Q_hat[a, a] * Tr(Replica[a], Replica[a]), (a, 1, n_r))
        + sp.Sum(mh[a] * Tr(S0, Replica[a]), (a, 1, n_r))
        + _over_pairs(Q_hat[a, c] * Tr(Replica[a], Replica[c]))
    ) * d
    symmetric = (
        sp.Sum(own * r_hat * r - m_hat * s.m, (a, 1, n_r)).doit() - _over_pairs(q_hat * s.q).doit()
    )
    square = Tr(sp.Sum(Replica[a], (a, 1, n_r)), sp.Sum(Replica[a], (a, 1, n_r)))
    exponent = (
        -own * (r_hat + q_hat) * sp.Sum(Tr(Replica[a], Replica[a]), (a, 1, n_r))
        + own * q_hat * square
        + m_hat * sp.Sum(Tr(S0, Replica[a]), (a, 1, n_r))
    ) * d
    return [
        Step(
            "order parameters",
            sp.Tuple(
                sp.Eq(Q[a, c], Tr(Replica[a], Replica[c]) / d), sp.Eq(m[a], Tr(S0, Replica[a]) / d)
            ),
            "fix them by delta functions with conjugates Qhat, mhat: E[Z^n_r] is the integral over all "
            "of exp(d^2 first), the channel's average to the power alpha d^2, and the integral over the "
            "S_a of exp(second) and the penalties",
            sp.Tuple(legendre, weights),
            ("all exponents are of the order d^2, so that the integral is its saddle point",),
            checks.order_parameters,
        ),
        Step(
            "replica-symmetric ansatz",
            sp.Tuple(legendre, weights),
            "Q_aa = r, Q_ac = q, m_a = m, the same for the conjugates; n_r (n_r - 1)/2 pairs, and twice "
            "the sum over pairs is Tr (sum S_a)^2 - sum Tr S_a^2",
            sp.Tuple(sp.expand(symmetric), exponent),
            ("the saddle point is symmetric under permutations of the replicas (`onehead stability`)",),
            checks.symmetric,
        ),
    ]


def _overlaps() -> list[Step]:
    Q0, m, _, q = OVERLAPS
    K = sp.IndexedBase("Q")
    delta = sp.KroneckerDelta
    matrix = sp.Tuple(sp.Eq(K[0, 0], Q0), sp.Eq(K[0, a], m), sp.Eq(K[a, c], q + (r - q) * delta(a, c)))
    z = sp.IndexedBase("z")
    decoupled = omega + sp.sqrt(r - q) * z[a]
    return [
        Step(
            "determinant of the overlaps",
            matrix,
            "Schur complement of the replicas; 1 and J with J^2 = n_r J for symbolic n_r",
            sp.Eq(sp.Symbol("det(Q)"), overlap_determinant()),
            (),
            checks.determinant,
        ),
        Step(
            "inverse of the overlaps",
            matrix,
            "solve in the same algebra: entries (0, 0), (0, a), (a, a) and (a, c)",
            sp.Tuple(*overlap_inverse()),
            (),
            checks.inverse,
        ),
        Step(
            "decoupling of the replicas",
            sp.Tuple(*overlap_inverse()),
            "the off-diagonal part of the inverse is a square in (u0, sum u_a): given a field omega of "
            "E[omega^2] = q and E[omega u0] = m the replicas are independent, z_a standard normal",
            sp.Eq(sp.IndexedBase("u")[a], decoupled),
            (),
            checks.decoupled,
        ),
    ]


# --- the output channel ---------------------------------------------------------------------------


def _output() -> list[Step]:
    X, Y, V = sp.Symbol("X", positive=True), sp.Symbol("Y"), s.V
    u1 = sp.Symbol("u", real=True)
    cost = loss(Y, u1) + (u1 - omega) ** 2 / (2 * V)
    return [
        Step(
            "output channel at n_r -> 0",
            sp.Eq(sp.Symbol("G_out"), Mean(X**n_r)),
            "X is the average of exp(-b loss(Y, omega + sqrt(r - q) z)) over z, the outer average over "
            "u0, omega and label noise; log(G)/n_r as n_r -> 0",
            sp.Eq(sp.Limit(sp.log(sp.Symbol("G_out")) / n_r, n_r, 0), Mean(sp.log(X)), evaluate=False),
            ("n_r continues from the integers to zero",),
            checks.small_power,
        ),
        Step(
            "Moreau envelope by Laplace",
            sp.Eq(X, sp.Integral(sp.sqrt(b / (2 * sp.pi * V)) * sp.exp(-b * cost), (u1, -sp.oo, sp.oo))),
            "r - q = V/b turns the average over z into one over u; -log(X)/b as b -> oo is the minimum, "
            "one such integral for each component of u",
            sp.Eq(sp.Symbol("Moreau_V"), Least(u1, cost)),
            ("b (r - q) stays finite as b -> oo",),
            checks.laplace,
        ),
    ]


def _linear_output() -> list[Step]:
    """All replicas of the linear channel at once: the Gaussian integral for symbolic n_r."""
    channel = LinearChannel()
    diagonal, ones = checks.residual_block(channel)
    factor = 1 + 2 * b * diagonal
    all_n = (factor ** (n_r - 1) * (factor + 2 * b * n_r * ones)) ** sp.Rational(-1, 2)
    log = sp.expand_log(sp.log(all_n), force=True)
    small = sp.limit(log / n_r, n_r, 0)
    V_in = {r: s.q + s.V / b}
    energy = sp.factor(sp.limit(-sp.simplify(small.subs(V_in)) / b, b, sp.oo))
    y = channel.y
    residual = y - sp.sqrt(2) * sp.IndexedBase("u")[a]
    return [
        Step(
            "linear channel for every n_r",
            sp.Eq(
                sp.Symbol("G_out"),
                Mean(sp.exp(-b * sp.Sum(residual**2, (a, 1, n_r)))),
            ),
            "the residuals are Gaussian with a replica-symmetric covariance x 1 + y J: the integral is "
            "det(1 + 2 b covariance)^(-1/2)",
            sp.Eq(sp.Symbol("G_out"), all_n),
            (),
            checks.linear_integrals,
        ),
        Step(
            "linear channel at zero temperature",
            sp.Eq(sp.Symbol("G_out"), all_n),
            "-log(G)/(n_r b) as n_r -> 0, then r - q = V/b and b -> oo: the averaged Moreau envelope "
            "without any minimisation",
            sp.Eq(sp.Symbol("E[Moreau]"), energy),
            (),
            checks.linear_limit,
        ),
    ]


def _channel(channel: Channel, penalty: str) -> list[Step]:
    step = chain(channel, penalty)["averaged Moreau envelope"]
    return [
        Step(
            step.name,
            step.definition,
            f"{step.operation}; {channel.describe()}",
            step.result,
            (),
            checks.averaged(channel),
        )
    ]


# --- the spectrum ---------------------------------------------------------------------------------


def _spectral(penalty: str) -> list[Step]:
    total = sp.Symbol("X")  # the sum of the replicas
    cost = PENALTIES[penalty]
    field = {
        "replica": -(r_hat + q_hat) * Tr(S, S) / 2 + sp.sqrt(q_hat / 2) * Tr(G, S) + m_hat * Tr(S0, S),
        "B": s.M * S0 + sp.sqrt(s.C) * G,
    }
    scaled = -b * d * (s.A * Tr(S, S) / 2 - s.M * Tr(S0, S) - sp.sqrt(s.C) * Tr(G, S))
    eigenvalue = sp.Symbol("s", real=True)
    objective = s.A * eigenvalue**2 / 2 - s.x * eigenvalue + cost.cost(eigenvalue)
    return [
        Step(
            "field of the GOE",
            sp.exp(d * q_hat * Tr(total, total) / 2),
            "X = sum S_a: the square is an average over a GOE matrix G with variance 1/d off the "
            "diagonal and 2/d on it, Var Tr(G X) = (2/d) Tr X^2; the replicas are independent given G",
            Mean(sp.exp(d * sp.sqrt(q_hat / 2) * Tr(G, total))),
            (),
            checks.goe,
        ),
        Step(
            "conjugates at zero temperature",
            d * field["replica"],
            "rhat + qhat = b A, qhat = 2 b^2 C, mhat = b M: one replica in the field of "
            "the target and of G",
            scaled,
            ("the conjugates grow with b as the Gibbs measure condenses on the minimum",),
            checks.conjugates,
        ),
        Step(
            "spectral integral",
            sp.Tuple(sp.Eq(sp.Symbol("B"), field["B"]), objective),
            "b -> oo: the maximum over S. Tr(B S) is largest where S shares the eigenvectors of B, so "
            "every eigenvalue s of S meets one x of B alone; insert its minimum "
            f"F(x) = {denoiser(cost)} and average over nu, the law of B",
            sp.Eq(sp.Symbol("P"), spectral_term(penalty)),
            ("the spectral law of B converges to the free convolution nu",),
            checks.ground(penalty),
        ),
    ]


# --- the potential --------------------------------------------------------------------------------


def _assembly(channel: Channel, penalty: str) -> list[Step]:
    legendre = n_r * r_hat * r / 2 - n_r * (n_r - 1) * q_hat * s.q / 2 - n_r * m_hat * s.m
    placed = legendre.subs(CONJUGATES).subs(r, s.q + s.V / b)
    energy = sp.expand(-sp.limit(sp.limit(sp.expand(placed / n_r), n_r, 0) / b, b, sp.oo))
    found = chain(channel, penalty)
    moreau = found["averaged Moreau envelope"].result.rhs
    total = s.alpha * moreau + spectral_term(penalty) + energy
    parts = sp.Symbol("alpha*E[Moreau] + P + Legendre")
    return [
        Step(
            "Legendre terms",
            legendre,
            "insert the conjugates and r = q + V/b; -(1/(n_r b)) times it as n_r -> 0 and b -> oo",
            sp.Eq(sp.Symbol("Legendre"), energy),
            (),
            checks.legendre,
        ),
        Step(
            "potential",
            sp.Eq(sp.Symbol("e"), parts),
            "-log E[Z^n_r]/(n_r b d^2): alpha times the channel, the spectral integral and the Legendre "
            "terms; its extremum is the ground-state energy per d^2",
            sp.Eq(sp.Symbol("e"), total),
            ("the limits d -> oo, n_r -> 0 and b -> oo may be taken in this order",),
            checks.potential(channel, penalty),
        ),
    ]
