"""The softmax channel: derivation, prox, quadrature, solves, thresholds, training."""

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize

from derive import MarchenkoPastur, Problem, ProblemError
from derive import symbols as s
from derive.gaussian import ChannelAverage, average, gaussian_average, stein_derivatives
from derive.linear import LinearChannel
from derive.saddle import saddle_equations
from derive.softmax import (
    SoftmaxChannel,
    attention_jacobian,
    beta,
    difference_covariance,
    explicit_row,
    reduced_basis,
)
from derive.thresholds import effective_samples, exact_fit_envelope
from numerics import NotConverged, solve, solve_optimal
from numerics.channel import channel_averages, prox_failures
from numerics.label_lattice import label_lattice
from numerics.nodes import Geometry, gauss_hermite, lattice, sobol
from numerics.prox import SoftmaxRows

TARGET = MarchenkoPastur("1/2")


def problem(**changes):
    stated = {"alpha": "1/2", "lam": "1/10", "noise": "1/10", "task": "seq2lab", "tokens": 2}
    return Problem(TARGET, **(stated | changes))


# --- derivation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [2, 3])
def test_row_derivatives_are_those_of_the_explicit_loss(tokens):
    """The symbolic-T formulas at T = tokens against direct differentiation, at a rational point."""
    row = explicit_row(tokens)
    loss = sp.Add(*((p - y) ** 2 for p, y in zip(row.probabilities, row.labels, strict=True)))
    point = {f: sp.Rational(i * i - 2, 3) for i, f in enumerate(row.fields)}
    point |= {y: sp.Rational(i + 1, 7) for i, y in enumerate(row.labels)} | {beta: sp.Rational(3, 2)}
    weights = dict(zip(row.symbols, row.probabilities, strict=True))

    def gap(derived, direct):
        return abs(sp.N((derived.subs(weights) - direct).subs(point), 30))

    for i, h in enumerate(row.fields):
        assert gap(row.gradient[i], sp.diff(loss, h)) < 1e-25
        for j, other in enumerate(row.fields):
            assert gap(row.hessian[i][j], sp.diff(loss, h, other)) < 1e-25


@pytest.mark.parametrize("tokens", [2, 3, 4])
def test_one_direction_is_redundant(tokens):
    directions = SoftmaxChannel(tokens=tokens).directions
    assert directions == tokens * (tokens + 1) // 2 - 1
    assert attention_jacobian(tokens).rank() == directions
    assert difference_covariance(tokens).rank() == directions
    basis = reduced_basis(tokens)
    assert basis.shape == (tokens**2, directions)
    # h = K v reproduces the covariance of the differences of h.
    pairs = [(i, j) for i in range(tokens) for j in range(tokens) if i != j]
    rows = sp.Matrix([basis.row(i * tokens + j) - basis.row(i * tokens + i) for i, j in pairs])
    assert sp.simplify(rows * rows.T - difference_covariance(tokens)) == sp.zeros(len(pairs))


def test_covariance_of_two_tokens():
    assert difference_covariance(2) == sp.Matrix([[3, 1], [1, 3]])


def test_stein_rules_hold_on_the_linear_channel():
    """dE[Moreau]/dm and /dq from E[f.u0], E[f.omega] equal those of the closed form."""
    channel = LinearChannel()
    steps = {step.name: step.result.rhs for step in channel.steps()}
    f = (steps["proximal operator"] - channel.omega) / s.V
    kinds = {"field": channel.average(f * channel.u0), "student": channel.average(f * channel.omega)}
    derived = stein_derivatives(s.Q0, s.m, s.q, s.V)
    closed = steps["averaged Moreau envelope"]
    for rule, variable in zip(derived, (s.m, s.q), strict=True):
        value = rule.replace(lambda e: isinstance(e, ChannelAverage), lambda e: kinds[str(e.args[0])])
        assert sp.simplify(value - sp.diff(closed, variable)) == 0
    square = channel.average(f**2)
    assert sp.simplify(sp.diff(closed, s.V) + square / 2) == 0


def test_saddle_point_of_the_theory():
    """E[f.u0] = (Q M - m A)/alpha, E[f.omega] = (m M - q A)/alpha, C = alpha E[f.f]/2 (section 3)."""
    channel = SoftmaxChannel(tokens=2)
    eqs = saddle_equations(channel, "nuclear")
    Q = channel.target_variance
    assert sp.expand(Q - s.Q0 - s.Delta / 2) == 0
    arguments = (Q, s.m, s.q, s.V)
    A, M = eqs[s.A], eqs[s.M]
    assert sp.simplify(Q * M - s.m * A - s.alpha * average("field", *arguments)) == 0
    assert sp.simplify(s.m * M - s.q * A - s.alpha * average("student", *arguments)) == 0
    assert eqs[s.C] == s.alpha * average("square", *arguments) / 2
    outside = SoftmaxChannel(tokens=3, noise_at="outside")
    assert outside.target_variance == s.Q0
    assert outside.offset == 3 * s.Delta


def test_outputs_concentrate():
    """Gram matrix of the tokens: variance (1 + delta_ab)/d; output noise adds T Delta."""
    steps = {step.name: step.result for step in SoftmaxChannel("seq2seq").steps()}
    d = sp.Symbol("d", integer=True, positive=True)
    assert steps["concentration"] == sp.Tuple(2 / d, 1 / d, 0, 0)
    assert steps["noise on the outputs"][1] == s.Delta * sp.Symbol("T", integer=True, positive=True)
    x = sp.Symbol("x")
    assert gaussian_average(x**4, (x,), sp.eye(1)) == 3


def test_exact_fit_limit_counts_directions():
    assert (
        sp.simplify(
            exact_fit_envelope(LinearChannel()) - (s.R + s.Delta / 2).subs(s.R, s.Q0 - 2 * s.m + s.q) / 2
        )
        == 0
    )
    T = sp.Symbol("T", integer=True, positive=True)
    assert sp.simplify(effective_samples(SoftmaxChannel()) - s.alpha * (T * (T + 1) / 2 - 1)) == 0
    with pytest.raises(ValueError, match="leaves its range"):
        exact_fit_envelope(SoftmaxChannel(noise_at="outside"))


# --- prox and quadrature --------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "V"), [(2, 3.0), (2, 40.0), (3, 10.0)])
def test_prox_is_the_global_minimum(tokens, V):
    """Certificate on a random subset: no minimisation from eight random starts does better."""
    rows, rng = SoftmaxRows(tokens, 1.0), np.random.default_rng(1)
    u0, omega = rng.normal(size=(2, rows.size, 60)) * 1.5
    y = rows.probabilities(u0)
    found = rows.minimise(omega, y, V, u0, None)

    def value(v, i):
        fit = rows.loss(rows.probabilities(v[:, None]), y[..., i : i + 1])[0]
        return V * fit + ((v - omega[:, i]) ** 2).sum() / 2

    for i in range(60):
        own = value(omega[:, i] + found.shift[:, i], i)
        others = [minimize(value, rng.normal(size=rows.size) * 3, args=(i,)).fun for _ in range(8)]
        assert own <= min(others) + 1e-6


def test_stein_equals_pointwise_derivatives_where_nothing_jumps():
    """A = -alpha sum E[df/domega] with df/domega = ((1 + V H)^-1 - 1)/V by the implicit function."""
    solution = solve(problem(lam="1/5"), tolerance=1e-5)
    assert solution.extras["jump_fraction"] == 0
    v, Q = solution.values, 1.55
    rows, nodes = SoftmaxRows(2, 1.0), lattice(0.5, 6.2)
    b = (v["q"] - v["m"] ** 2 / Q) ** 0.5
    u0 = Q**0.5 * nodes.z0
    omega, y = v["m"] / Q**0.5 * nodes.z0 + b * nodes.z, rows.probabilities(u0)
    found = rows.minimise(omega, y, v["V"], u0, None)
    a, c, d = rows.slopes(rows.probabilities(omega + found.shift), y)[1] * v["V"]
    trace = (2 + a + d) / ((1 + a) * (1 + d) - c * c) - 2
    pointwise = -0.5 * float(nodes.weights @ trace) / v["V"]
    assert pointwise == pytest.approx(v["A"], rel=1e-5)


def test_certificate_of_the_prox():
    """The reported certificate: no lower minimum on a random subset; a local prox fails it."""
    assert solve(problem(lam="1/100", noise="1/2"), tolerance=1e-2).extras["prox_failures"] == 0
    rows, nodes, at = SoftmaxRows(2, 1.0), sobol(8, 2, 0, 1), Geometry(9.0, 0.5, 3.0, 50.0)
    missed = prox_failures(rows, nodes, at, 1.0, 0.0, 8)
    rows.minimise = lambda omega, y, V, label, near: SoftmaxRows.minimise(rows, omega, y, V, omega, near)
    assert missed < 0.01 < prox_failures(rows, nodes, at, 1.0, 0.0, 8)


def test_probabilities_never_overflow():
    rows = SoftmaxRows(3, 1e3)
    P = rows.probabilities(np.random.default_rng(0).normal(size=(5, 50)) * 1e3)
    assert np.all(np.isfinite(P))
    assert np.allclose(P.sum(0), 1)


@given(shift=st.floats(-5, 5), size=st.floats(0.1, 3))
def test_shift_and_permutation_invariance(shift, size):
    """A common shift of h changes nothing; exchanging the tokens flips the first coordinate."""
    rows = SoftmaxRows(2, 1.0)
    v = size * np.random.default_rng(3).normal(size=(2, 5))
    P = rows.probabilities(v)
    h = (rows.basis @ v).reshape(2, 2, -1) + shift
    e = np.exp(h)
    assert np.allclose(P, (e / e.sum(1, keepdims=True)).transpose(1, 0, 2))
    assert np.allclose(rows.probabilities(v * [[-1], [1]]), P[::-1, ::-1])
    # Flipping the second one is that and h -> -h, which exchanges the weights of a row.
    assert np.allclose(rows.probabilities(v * [[1], [-1]]), P[:, ::-1])


def test_three_quadratures_agree():
    """Gauss-Hermite, the folded lattice and quasi-Monte Carlo at T = 2."""
    rows, at = SoftmaxRows(2, 1.0), Geometry(1.75, 1.38, (1.46 - 1.38**2 / 1.75) ** 0.5, 2.3)

    def averages(nodes):
        found = channel_averages(rows, nodes, at, 1.0, 0.0, None)
        return np.array([found.along, found.across, found.square, found.moreau, found.test])

    fine = averages(lattice(0.36, 6.5))
    assert np.allclose(averages(gauss_hermite(16, 2)), fine, rtol=5e-3)
    replicas = np.array([averages(sobol(11, 2, 0, seed)) for seed in range(8)])
    error = replicas.std(0, ddof=1) / 8**0.5
    assert np.all(np.abs(replicas.mean(0) - fine) < 4 * error + 1e-7)


def test_label_lattice_has_the_moments_of_its_fields():
    """Weights and conditional means of u0, against moments known in closed form or in one dimension."""
    rows, noise, beta0 = SoftmaxRows(2, 1.0), 0.1, 1.5
    at = Geometry(1.5, 0.94, (0.72 - 0.94**2 / 1.5) ** 0.5, 0.9)
    nodes = label_lattice(rows, at, beta0, noise, 0.5)
    w, z0 = nodes.weights(rows, at, beta0, noise)
    y, omega = nodes.labels(), nodes.fields()
    assert w.sum() == pytest.approx(1)
    assert w @ (omega**2).sum(0) == pytest.approx(2 * 0.72, rel=1e-8)
    assert w @ (omega * z0).sum(0) == pytest.approx(2 * 0.94 / 1.5**0.5, rel=1e-8)
    spread = beta0 * (3 * at.Q) ** 0.5  # h_11 - h_12 has the variance 3 Q

    def square(x):
        return (1 / (1 + np.exp(-spread * x)) - 0.5) ** 2 * np.exp(-(x**2) / 2) / (2 * np.pi) ** 0.5

    expected = quad(square, -12, 12, epsabs=1e-13, limit=400)[0] + noise / 2
    # The fold leaves only functions even under the two symmetries.
    both = ((y[0] - 0.5) ** 2).sum(0)
    assert w @ both == pytest.approx(2 * expected, rel=1e-8)


def test_label_lattice_agrees_with_points():
    rows, at = SoftmaxRows(2, 1.0), Geometry(1.5, 0.94, 0.36, 0.9)

    def averages(nodes):
        found = channel_averages(rows, nodes, at, 1.0, 0.1, None)
        return np.array([found.along, found.across, found.square, found.moreau, found.test])

    fine = averages(label_lattice(rows, at, 1.0, 0.1, 0.5))
    assert np.allclose(averages(label_lattice(rows, at, 1.0, 0.1, 0.7)), fine, rtol=1e-5)
    replicas = np.array([averages(sobol(12, 2, 4, seed)) for seed in range(8)])
    error = replicas.std(0, ddof=1) / 8**0.5
    assert np.all(np.abs(replicas.mean(0) - fine) < 4 * error)


def test_small_beta_is_the_linearised_channel():
    """beta -> 0: loss = sum_i k_i (v_i - v0_i)^2, so A, M, C have a closed form; A = M."""
    b, V = 1e-3, 5e5
    rows, at = SoftmaxRows(2, b), Geometry(1.7, 1.2, 0.7, V)
    found = channel_averages(rows, lattice(0.5, 6.0), at, b, 0.0, None)
    curvature = b**2 / 8 * np.array([2.0, 4.0])  # eigenvalues 2 and 4 of [[3, 1], [1, 3]]
    gain = 2 * curvature / (1 + 2 * curvature * V)
    assert found.across == pytest.approx(-(gain * at.b).sum(), rel=1e-5)
    assert found.along == pytest.approx((gain * (at.Q - at.m)).sum() / at.Q**0.5, rel=1e-5)
    risk = at.Q - 2 * at.m + at.m**2 / at.Q + at.b**2
    assert found.square == pytest.approx((gain**2).sum() * risk, rel=1e-5)


# --- solves ---------------------------------------------------------------------------------------


def test_reference_solve_noise_outside():
    """THEORY.md "Checked": T = 2, kappa0 = 0.5, Delta = 0.1, lam = 0.1, alpha = 0.5."""
    values = solve(problem(noise_at="outside"), tolerance=1e-3).values
    expected = {"m": 0.9425, "q": 0.7252, "train_loss": 0.3592, "test_loss": 0.4879}
    for key, value in expected.items():
        assert values[key] == pytest.approx(value, rel=1e-3), key
    assert values["excess_risk"] == pytest.approx(0.3403, rel=3e-3)


def test_noise_outside_reaches_six_digits():
    rough, fine = (solve(problem(noise_at="outside"), tolerance=t) for t in (1e-3, None))
    assert fine.error_estimate < 1e-6
    for key in ("q", "m", "V", "excess_risk"):
        assert abs(rough.values[key] / fine.values[key] - 1) < rough.error_estimate, key


def test_reference_solve_noise_inside():
    """The authors' state evolution at lam = 0.01, Delta = 0.5 (Monte Carlo, 1-3 %)."""
    solution = solve(problem(lam="1/100", noise="1/2"), tolerance=1e-4)
    published = {"q": 1.462, "m": 1.3804, "V": 2.307, "test_loss": 0.1362}
    for key, value in published.items():
        assert solution.values[key] == pytest.approx(value, rel=5e-3), key
    assert solution.error_estimate < 2e-4


@pytest.mark.parametrize("penalty", ["nuclear", "frobenius"])
@pytest.mark.parametrize("noise_at", ["inside", "outside"])
def test_energy_is_the_direct_sum(penalty, noise_at):
    """The potential at the saddle equals alpha train + lam penalty."""
    p = problem(penalty=penalty, noise_at=noise_at)
    v = solve(p, tolerance=1e-2).values
    cost = v["trace"] if penalty == "nuclear" else v["q"] / 2
    assert v["energy"] == pytest.approx(0.5 * v["train_loss"] + 0.1 * cost, rel=1e-8)
    assert v["train_loss"] <= v["test_loss"]


def test_error_estimate_bounds_the_change_under_refinement():
    coarse, fine = (solve(problem(), tolerance=t) for t in (1e-2, 1e-6))
    for key in ("q", "m", "V", "excess_risk"):
        gap = abs(coarse.values[key] / fine.values[key] - 1)
        assert gap < coarse.error_estimate + fine.error_estimate
    assert fine.error_estimate < 1e-6


def test_beta_covariance():
    """Only beta S matters: at beta = 2 and twice the lam the student is half as large."""
    one = solve(problem(lam="1/10", noise="1/10"), tolerance=1e-5).values
    other = solve(problem(lam="1/5", noise="1/10", beta=2), tolerance=1e-5).values
    assert other["q"] == pytest.approx(one["q"] / 4, rel=1e-4)
    assert other["m"] == pytest.approx(one["m"] / 2, rel=1e-4)
    assert other["V"] == pytest.approx(one["V"] / 4, rel=1e-4)
    assert other["train_loss"] == pytest.approx(one["train_loss"], rel=1e-4)
    assert other["energy"] == pytest.approx(one["energy"], rel=1e-4)


def test_width_of_the_full_solution_changes_nothing():
    free = solve(problem(d=10), tolerance=1e-2)
    wide = solve(problem(d=10, width=9), tolerance=1e-2)
    narrow = solve(problem(d=10, width=2), tolerance=1e-2)
    assert wide.values["q"] == pytest.approx(free.values["q"], rel=1e-8)
    assert narrow.values["rank_fraction"] == pytest.approx(0.2)
    assert narrow.values["energy"] > free.values["energy"]


def test_recovery_turns_at_the_threshold():
    """Delta = 0, lam -> 0+: alpha_rec/2 = 0.2111; R falls with lam above, and stays below."""

    def risks(alpha):
        lams = ("1e-3", "1e-4")
        points = [problem(noise=0, lam=lam, alpha=alpha) for lam in lams]
        return [solve(point, tolerance=1e-2).excess_risk for point in points]

    above, below = risks("0.3"), risks("0.12")
    assert above[1] < above[0] / 10
    assert below[1] > 0.5 * below[0] > 0.05


def test_collapse():
    collapsed = solve(problem(lam=10), tolerance=1e-3)
    assert collapsed.phase == "collapsed"
    assert collapsed.values["q"] == 0
    assert collapsed.values["excess_risk"] == pytest.approx(1.5)


def test_best_penalty_beats_its_neighbours():
    best = solve_optimal(problem(alpha=1), tolerance=1e-3)
    lam = best.problem.lam
    for factor in (sp.Rational(1, 2), sp.Integer(2)):
        other = solve(problem(alpha=1, lam=lam * factor), tolerance=1e-3)
        assert other.test_loss > best.test_loss


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": "1e3"},
        {"beta": "1e3", "beta0": "1e3"},
        {"alpha": "1e-3"},
        {"alpha": "1e3"},
        {"lam": "1e3"},
        {"penalty": "frobenius", "lam": "1e-8"},
        {"noise": "1e3", "noise_at": "outside", "lam": 1},
    ],
    ids=str,
)
def test_extremes_end_in_a_number_or_not_converged(changes):
    try:
        solution = solve(problem(**changes), tolerance=3e-3)
    except NotConverged:
        return
    assert all(np.isfinite(v) for v in solution.values.values())
    assert solution.error_estimate < 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 1}, "tokens must be"),
        ({"tokens": "5/2"}, "tokens must be"),
        ({"beta": 0}, "beta must be positive"),
        ({"noise_at": "nowhere"}, "unknown place of the noise"),
        ({"task": "linear"}, "one token"),
    ],
)
def test_bad_channels_are_refused(changes, message):
    with pytest.raises(ProblemError, match=message):
        problem(**changes)


def test_limits_that_need_a_closed_channel_are_refused():
    for call, message in (
        (lambda: solve(problem(lam=0)), "lam > 0"),
        (lambda: solve(problem(), digits=30), "15 digits"),
        (lambda: solve(problem(tokens=None)), "state --tokens"),
    ):
        with pytest.raises(ProblemError, match=message):
            call()
