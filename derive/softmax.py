"""The softmax channel of single-head tied attention, for any number of tokens T.

One row of the attention matrix is P_b = exp(beta h_b)/sum_c exp(beta h_c); everything is derived from
dP_b/dh_k for symbolic T and instantiated at a number of tokens when code is generated (THEORY.md
sections 1, 2 and 5).
"""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import sympy as sp

from derive import symbols as s
from derive.exact import ProblemError, exact
from derive.gaussian import average, gaussian_average
from derive.steps import Step

__all__ = [
    "NOISE_AT",
    "RowFunctions",
    "SoftmaxChannel",
    "attention_jacobian",
    "difference_covariance",
    "explicit_row",
    "preactivation_covariance",
    "reduced_basis",
    "row_functions",
]

NOISE_AT = ("inside", "outside")
T, b, c, j, k = sp.symbols("T b c j k", integer=True, positive=True)
beta, beta0 = sp.symbols("beta beta0", positive=True)
P, y, h = sp.IndexedBase("P"), sp.IndexedBase("y"), sp.IndexedBase("h")


# --- one row, symbolic T --------------------------------------------------------------------------


def _sum(expression: sp.Expr) -> sp.Expr:
    """Sum over b = 1..T, constants in front, Kronecker deltas carried out, sum of P equal to one."""
    total = sp.Integer(0)
    for term in sp.Add.make_args(sp.expand(expression)):
        constant, core = term.as_independent(b, as_Add=False)
        done = sp.Sum(core, (b, 1, T)).doit()
        # k and l are tokens: the condition 1 <= k <= T that SymPy keeps is always met.
        total += constant * done.replace(sp.Piecewise, lambda *branches: branches[0][0])
    return total.subs(sp.Sum(P[b], (b, 1, T)), 1)


def _softmax_derivative() -> sp.Expr:
    """dP_b/dh_k by differentiating exp(beta h_b)/sum_c exp(beta h_c), written in P again."""
    partition = sp.Sum(sp.exp(beta * h[c]), (c, 1, T))
    slope = sp.diff(sp.exp(beta * h[b]) / partition, h[k]).doit()
    slope = slope.replace(sp.Piecewise, lambda *branches: branches[0][0])
    z = sp.Symbol("Z", positive=True)
    in_p = slope.subs(partition, z).subs({sp.exp(beta * h[i]): P[i] * z for i in (b, k)})
    return sp.factor(sp.expand(in_p))


def _along(expression: sp.Expr, i: sp.Symbol, rule: sp.Expr) -> sp.Expr:
    """Derivative in h_i by the chain rule through every P."""
    sums = {total: sp.Dummy() for total in expression.atoms(sp.Sum)}
    outer = expression.subs(sums)
    slope = sp.diff(outer, P[k]) * rule.subs(b, k, simultaneous=True).subs(_target, i)
    for total, dummy in sums.items():
        inside = sp.diff(total.function, P[b]) * rule.subs(_target, i)
        slope += sp.diff(outer, dummy) * _sum(inside)
    return sp.expand(slope.subs({dummy: total for total, dummy in sums.items()}))


_target = sp.Symbol("target", integer=True, positive=True)


@dataclass(frozen=True)
class RowFunctions:
    """One row for symbolic T, in P_k, y_k and beta.

    Attributes
    ----------
    jacobian : sympy.Expr
        dP_b/dh_k.
    loss : sympy.Expr
        sum_b (P_b - y_b)^2.
    gradient, hessian : sympy.Expr
        Derivatives of the loss in h_k and in h_k, h_j.
    gauss_newton : sympy.Expr
        The part 2 sum_b (dP_b/dh_k) (dP_b/dh_j) of the Hessian, which is never negative.
    """

    jacobian: sp.Expr
    loss: sp.Expr
    gradient: sp.Expr
    hessian: sp.Expr
    gauss_newton: sp.Expr


@cache
def row_functions() -> RowFunctions:
    """Derive loss, gradient and Hessian of one row for symbolic T."""
    jacobian = _softmax_derivative()
    rule = jacobian.subs(k, _target)
    loss = sp.Sum((P[b] - y[b]) ** 2, (b, 1, T))
    gradient = _along(loss, k, rule)
    hessian = _along(gradient, j, rule)
    gauss_newton = 2 * _sum(jacobian * jacobian.subs(k, j))
    return RowFunctions(jacobian, loss, sp.factor(gradient), *map(_tidy, (hessian, gauss_newton)))


def _tidy(expression: sp.Expr) -> sp.Expr:
    """Factor the diagonal part (with the Kronecker delta) and the rest: less code to generate."""
    delta = sp.KroneckerDelta(k, j)
    parts = sp.collect(sp.expand(expression), delta, evaluate=False)
    return sp.Add(*(sp.factor(part) * base for base, part in parts.items()))


def _along_shift() -> sp.Expr:
    """sum_b (dP_k/dh_b) v_b, with y in the place of v."""
    jacobian = row_functions().jacobian.subs({k: b, b: k}, simultaneous=True)
    return sp.factor(_sum(jacobian * y[b]))


@dataclass(frozen=True)
class ExplicitRow:
    """One row at a number of tokens, for code generation.

    ``probabilities`` are in ``fields``; the rest is in ``symbols`` (P_1..P_T) and ``labels``.
    """

    fields: tuple[sp.Symbol, ...]
    symbols: tuple[sp.Symbol, ...]
    labels: tuple[sp.Symbol, ...]
    probabilities: tuple[sp.Expr, ...]
    loss: sp.Expr
    gradient: tuple[sp.Expr, ...]
    hessian: tuple[tuple[sp.Expr, ...], ...]
    gauss_newton: tuple[tuple[sp.Expr, ...], ...]


@cache
def explicit_row(tokens: int) -> ExplicitRow:
    """`row_functions` at T = tokens.

    P_b = 1/sum_c exp(beta (h_c - h_b)) depends on differences only and cannot overflow to NaN.
    """
    row, indices = row_functions(), range(1, tokens + 1)
    fields, probabilities, labels = (sp.symbols(f"{n}1:{tokens + 1}", real=True) for n in "hPy")
    names = {P[i]: probabilities[i - 1] for i in indices} | {y[i]: labels[i - 1] for i in indices}

    def at(expression: sp.Expr, first: int, second: int = 1) -> sp.Expr:
        placed = expression.subs({k: first, j: second, T: tokens}).doit()
        return placed.subs(names)

    softmax = tuple(1 / sp.Add(*(sp.exp(beta * (other - own)) for other in fields)) for own in fields)
    return ExplicitRow(
        fields,
        probabilities,
        labels,
        softmax,
        at(row.loss, 1),
        tuple(at(row.gradient, i) for i in indices),
        tuple(tuple(at(row.hessian, i, j) for j in indices) for i in indices),
        tuple(tuple(at(row.gauss_newton, i, j) for j in indices) for i in indices),
    )


# --- all rows: redundancy and reduced variables ------------------------------------------------------


def preactivation_covariance(a: int, b_: int, c_: int, d_: int) -> sp.Integer:
    """E[h_ab h_cd] per unit variance of u: delta_ac delta_bd + delta_ad delta_bc.

    h_ab = sqrt(1 + delta_ab) u_ab with one independent u for each pair a <= b.
    """
    same = {a, b_} == {c_, d_}
    return sp.Integer((1 + (a == b_)) if same else 0)


def _pairs(tokens: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(tokens) for j in range(i, tokens)]


@cache
def attention_jacobian(tokens: int) -> sp.ImmutableMatrix:
    """Derivatives of the T^2 entries of the attention matrix in the T(T+1)/2 variables u_ab, at h = 0.

    Its rank is the same at every h: P_b > 0, so the kernel of one row is the constant shift
    (`SoftmaxChannel.steps`, "redundancy").
    """
    pairs = _pairs(tokens)
    rule = row_functions().jacobian.subs({beta: 1, P[b]: sp.Rational(1, tokens)})
    rows = []
    for first in range(tokens):
        for second in range(tokens):
            row = [sp.Integer(0)] * len(pairs)
            for third in range(tokens):
                scale = sp.sqrt(2) if third == first else sp.Integer(1)
                place = pairs.index((min(first, third), max(first, third)))
                value = rule.subs({b: second + 1, k: third + 1}).subs(
                    P[third + 1], sp.Rational(1, tokens)
                )
                row[place] += scale * value
            rows.append(row)
    return sp.ImmutableMatrix(rows)


@cache
def difference_covariance(tokens: int) -> sp.ImmutableMatrix:
    """Covariance of the differences h_ab - h_aa (b != a, row by row) per unit variance of u.

    Of rank L_eff; at T = 2 it is [[3, 1], [1, 3]].
    """
    cov = preactivation_covariance
    pairs = [(i, j) for i in range(tokens) for j in range(tokens) if i != j]
    return sp.ImmutableMatrix(
        len(pairs),
        len(pairs),
        lambda p, r: (
            cov(*pairs[p], *pairs[r])
            - cov(*pairs[p], pairs[r][0], pairs[r][0])
            - cov(pairs[p][0], pairs[p][0], *pairs[r])
            + cov(pairs[p][0], pairs[p][0], pairs[r][0], pairs[r][0])
        ),
    )


@cache
def reduced_basis(tokens: int) -> sp.ImmutableMatrix:
    """The map v -> h (row by row, T^2 x L_eff), v orthonormal coordinates of u without the shift.

    The components of v are independent with the second moments of one component of u, because
    (u0, omega) is invariant under rotations. Helmert contrasts within the diagonal and within the
    off-diagonal entries, and one between them: at T = 2 exchanging the tokens flips the sign of the
    first coordinate.
    """
    pairs = _pairs(tokens)
    diagonal = [i for i, pair in enumerate(pairs) if pair[0] == pair[1]]
    others = [i for i in range(len(pairs)) if i not in diagonal]

    def vector(entries: dict[int, sp.Expr]) -> sp.Matrix:
        return sp.Matrix([entries.get(i, sp.Integer(0)) for i in range(len(pairs))])

    directions = []
    for group in (diagonal, others):
        for n in range(1, len(group)):
            contrast = {i: sp.Integer(1) for i in group[:n]} | {group[n]: sp.Integer(-n)}
            directions.append(vector(contrast))
    # Orthogonal to the shift, which is 1/sqrt(2) on the diagonal and 1 off it.
    shares = {i: sp.Integer(tokens - 1) for i in diagonal} | {i: -sp.sqrt(2) for i in others}
    directions.append(vector(shares))
    basis = sp.Matrix.hstack(*(direction / direction.norm() for direction in directions))
    to_h = sp.zeros(tokens**2, len(pairs))
    for first in range(tokens):
        for second in range(tokens):
            place = pairs.index((min(first, second), max(first, second)))
            to_h[first * tokens + second, place] = sp.sqrt(2) if first == second else 1
    return sp.ImmutableMatrix((to_h * basis).applyfunc(sp.radsimp))


# --- the channel ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftmaxChannel:
    """Labels and losses of seq2lab and seq2seq attention (THEORY.md section 1).

    Parameters
    ----------
    task : {"seq2lab", "seq2seq"}
        Attention matrix as the label, or the attended tokens; the same channel as d -> infinity.
    tokens : int or sympy.Symbol
        T >= 2, or the symbol ``T``.
    beta, beta0 : sympy.Expr
        Inverse temperatures of student and target.
    noise_at : {"inside", "outside"}
        Noise on the pre-activations (variance Delta/(2 - delta_ab)), or on the label's entries.

    Raises
    ------
    ProblemError
        A value outside its range.
    """

    tasks: ClassVar[tuple[str, ...]] = ("seq2lab", "seq2seq")
    task: str = "seq2lab"
    tokens: sp.Expr = T
    beta: sp.Expr = beta
    beta0: sp.Expr = beta0
    noise_at: str = "inside"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", exact(self.tokens, "tokens"))
        if self.tokens.is_number and not (self.tokens.is_Integer and 2 <= self.tokens <= 64):
            raise ProblemError(f"tokens must be a whole number from 2 to 64, not {self.tokens}")
        for name in ("beta", "beta0"):
            value = exact(getattr(self, name), name)
            object.__setattr__(self, name, value)
            if value.is_number and not value.is_positive:
                raise ProblemError(f"{name} must be positive, not {value}")
        if self.noise_at not in NOISE_AT:
            raise ProblemError(
                f"unknown place of the noise {self.noise_at!r}: choose from {', '.join(NOISE_AT)}"
            )

    @property
    def name(self) -> str:
        """The task."""
        return self.task

    @property
    def directions(self) -> sp.Expr:
        """L_eff: pre-activations that the loss sees, all but the common shift (THEORY.md section 5)."""
        first = sp.Symbol("a", integer=True, positive=True)
        pairs = sp.summation(sp.summation(1, (b, first, self.tokens)), (first, 1, self.tokens))
        return sp.factor(pairs) - 1

    @property
    def target_variance(self) -> sp.Expr:
        """Second moment of one component of the labelled pre-activation u0 (u0' with noise inside).

        Noise of variance Delta/(2 - delta_ab) on h_ab = sqrt(1 + delta_ab) u_ab is one of variance
        Delta/2 on every u_ab.
        """
        return s.Q0 + _noise_on_u() if self.noise_at == "inside" else s.Q0

    @property
    def interpolates(self) -> bool:
        """Whether a student exists that fits every label: not if noise leaves the softmax's range."""
        return self.noise_at == "inside"

    @property
    def offset(self) -> sp.Expr:
        """Loss that no student can avoid: noise outside has one component per row along (1, ..., 1)."""
        if self.noise_at == "inside":
            return sp.Integer(0)
        squares = sp.Sum(sp.KroneckerDelta(b, c), (b, 1, self.tokens), (c, 1, self.tokens)).doit()
        # c is a token: the condition c <= T that SymPy keeps is always met.
        squares = squares.replace(sp.Piecewise, lambda *branches: branches[0][0])
        per_row = sp.simplify(squares / self.tokens)
        return s.Delta * per_row * self.tokens

    def describe(self) -> str:
        """Parameters of the channel in one line."""
        return (
            f"{self.task} task with T = {self.tokens}, beta = {self.beta}, beta0 = {self.beta0}, "
            f"noise {self.noise_at}"
        )

    def steps(self) -> list[Step]:
        """Loss, derivatives, redundancy, noise and averages, in order."""
        reduction = _outputs_steps() if self.task == "seq2seq" else []
        return [*reduction, *_row_steps(), *self._field_steps(), *self._average_steps()]

    def _field_steps(self) -> list[Step]:
        a = sp.Symbol("a", integer=True, positive=True)
        d = sp.Symbol("d", integer=True, positive=True)
        steps = [
            Step(
                "redundancy",
                sp.Eq(_along_shift(), 0),
                "with v = y: as P > 0 a row's Jacobian vanishes only on constants v_k = sum_b P_b v_b; "
                "symmetry of h makes it the same in every row: one of T(T+1)/2 variables is not seen",
                sp.Eq(sp.Symbol("L_eff"), self.directions),
            ),
            Step(
                "covariance of differences",
                sp.Symbol("E[(h_ab - h_aa)*(h_cd - h_cc)]"),
                "E[h_ab h_cd] = delta_ac delta_bd + delta_ad delta_bc, for a != b and c != d",
                self._covariance(a, d),
            ),
        ]
        noise = sp.Symbol("noise")
        if self.noise_at == "inside":
            return [
                *steps,
                Step(
                    "noise inside the softmax",
                    sp.Symbol("Delta/(2 - delta_ab)"),
                    "divide by the variance 1 + delta_ab of h_ab per unit of u_ab, on and off the "
                    "diagonal: u0' = u0 + noise, independent of omega",
                    sp.Eq(sp.Symbol("E[u0'^2]"), self.target_variance),
                ),
            ]
        return [
            *steps,
            Step(
                "noise outside the softmax",
                sp.Eq(y[b], P[b] + sp.sqrt(s.Delta) * sp.Symbol("xi")),
                "rows of the attention matrix sum to one, so the part of the noise along (1, ..., 1) "
                "is a loss that nothing can fit: Delta for each row",
                sp.Eq(noise, self.offset),
            ),
        ]

    def _covariance(self, a: sp.Symbol, d: sp.Symbol) -> sp.Expr:
        if self.tokens.is_number:
            return difference_covariance(int(self.tokens))
        delta = sp.KroneckerDelta

        def cov(i: sp.Symbol, j: sp.Symbol, m: sp.Symbol, n: sp.Symbol) -> sp.Expr:
            return delta(i, m) * delta(j, n) + delta(i, n) * delta(j, m)

        full = cov(a, b, c, d) - cov(a, b, c, c) - cov(a, a, c, d) + cov(a, a, c, c)
        # delta_ac delta_bc and delta_ac delta_ad vanish where a != b and c != d.
        zero = {delta(a, c) * delta(b, c): 0, delta(a, c) * delta(a, d): 0}
        return sp.expand(full).subs(delta(a, c) ** 2, delta(a, c)).subs(zero)

    def _average_steps(self) -> list[Step]:
        rows, components = sp.Symbol("sum_rows"), sp.Symbol("sum_components")
        u, omega = sp.symbols("u omega", real=True)
        row = row_functions()
        objective = rows * row.loss + components * (u - omega) ** 2 / (2 * s.V)
        variables = (self.target_variance, s.m, s.q, s.V)
        steps = [
            Step(
                "proximal operator",
                objective,
                "the derivative in u_k vanishes; h = sqrt(1 + delta) u, so the chain rule brings the "
                "gradient of the rows that hold h_k. Not convex: the global minimum is meant",
                sp.Eq(rows * row.gradient + components * (u - omega) / s.V, 0),
            )
        ]
        names = {"averaged Moreau envelope": "moreau", "train loss": "train", "test loss": "test"}
        shown = {"moreau": "E[Moreau]", "train": "train_loss", "test": "test_loss"}
        for name, kind in names.items():
            steps.append(
                Step(
                    name,
                    sp.Symbol({"moreau": "Moreau_V", "train": "loss(u*)", "test": "loss(omega)"}[kind]),
                    "average over (u0, omega) with the moments [[Q, m], [m, q]], "
                    f"Q = {self.target_variance}, by quadrature",
                    sp.Eq(sp.Symbol(shown[kind]), average(kind, *variables) + self.offset),
                )
            )
        return steps


def _noise_on_u() -> sp.Expr:
    """Variance on u_ab of noise Delta/(2 - delta_ab) on h_ab, the same on and off the diagonal."""
    on, off = (s.Delta / (2 - delta) / (1 + delta) for delta in (sp.Integer(1), sp.Integer(0)))
    if on != off:
        raise ValueError("the noise is not isotropic in u")
    return on


def _row_steps() -> list[Step]:
    row = row_functions()
    softmax = sp.exp(beta * h[b]) / sp.Sum(sp.exp(beta * h[c]), (c, 1, T))
    chain = "chain rule through P"
    return [
        Step(
            "softmax derivative",
            sp.Eq(P[b], softmax),
            "differentiate in h_k",
            sp.Eq(sp.Symbol("dP_b/dh_k"), row.jacobian),
        ),
        Step("row gradient", row.loss, chain, sp.Eq(sp.Symbol("dloss/dh_k"), row.gradient)),
        Step("row Hessian", row.gradient, chain, sp.Eq(sp.Symbol("d2loss/dh_kdh_j"), row.hessian)),
    ]


def _outputs_steps() -> list[Step]:
    """Why seq2seq is seq2lab: the Gram matrix of the tokens concentrates (symbolic d)."""
    d = sp.Symbol("d", integer=True, positive=True)
    xa, xb = sp.symbols("x_a x_b", real=True)

    def moments(product: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        """Mean and variance of sum_i product_i/d over d independent coordinates."""
        mean, second = (gaussian_average(product**n, (xa, xb), sp.eye(2)) for n in (1, 2))
        return mean, sp.factor((second - mean**2) / d)

    off, on = moments(xa * xb), moments(xa**2)
    gram = sp.Matrix([[on[0], off[0]], [off[0], on[0]]])
    variances = sp.Tuple(on[1], off[1], *(sp.limit(v[1], d, sp.oo) for v in (on, off)))
    noise = gaussian_average(xa**2, (xa,), sp.eye(1)) * s.Delta * T
    return [
        Step(
            "Gram matrix of the tokens",
            sp.Symbol("X*X'/d"),
            "mean over d independent coordinates (diagonal, off-diagonal), by Wick's theorem",
            gram,
        ),
        Step(
            "concentration",
            sp.Symbol("Var[X*X'/d]"),
            "variance on and off the diagonal, and its limit d -> oo: norm(D X)^2/d = tr(D X X'/d D') "
            "becomes norm(D)^2 for D = Y - A_beta(h), which is the loss of seq2lab",
            variances,
        ),
        Step(
            "noise on the outputs",
            sp.Symbol("norm(D*X + sqrt(Delta)*Z)^2/d"),
            "expand: norm(D)^2 + 2 sqrt(Delta) tr(D X Z'/d) + Delta tr(Z Z'/d); the entries of X Z'/d "
            "have the variance (effective label noise over Delta), the last term averages to",
            sp.Tuple(off[1], noise),
        ),
    ]
