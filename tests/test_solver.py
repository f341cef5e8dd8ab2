"""The solver: reference values, closed forms, identities at the saddle, limits, precision."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive import Atoms, MarchenkoPastur, PowerLaw, Problem, ProblemError, exact
from derive import symbols as s
from derive.limit_laws import edge_exponents, limit_laws
from numerics import NotConverged, solve, solve_optimal
from numerics.convolution import FreeConvolution
from numerics.float_solver import FloatSolver
from numerics.laws import float_law
from numerics.precision import context
from numerics.solution import KEYS, magnitude
from numerics.thresholds import collapse

HALF = MarchenkoPastur("1/2")
RATIO = st.fractions(min_value="1/20", max_value=3, max_denominator=60)
SMALL = st.fractions(min_value="1/200", max_value=2, max_denominator=400)
TARGETS = st.one_of(
    st.builds(MarchenkoPastur, st.fractions(min_value="1/10", max_value=2, max_denominator=30)),
    st.builds(
        lambda values: Atoms(tuple(values)),
        st.lists(st.fractions(min_value=0, max_value=4, max_denominator=9), min_size=1, max_size=4),
    ).filter(lambda target: target.Q0 > 0),
    st.builds(PowerLaw, st.sampled_from(["3/5", "1", "7/4"]), st.integers(3, 30)),
)
PROBLEMS = st.builds(Problem, target=TARGETS, alpha=RATIO, lam=SMALL, noise=SMALL)


def test_reference_of_the_theory(reference_problem):
    """THEORY.md "Checked": linear, kappa0 = 0.5, Delta = 0.1, lam = 0.2, alpha = 0.3."""
    found = solve(reference_problem)
    expected = {
        "tau": 0.794982480183,
        "theta": 0.681427039440,
        "q": 1.020097685885,
        "m": 1.095449699803,
        "psi": 0.453249145966,
        "V": 0.772140559160,
    }
    for key, value in expected.items():
        assert found.values[key] == pytest.approx(value, abs=6e-13), key
    assert found.error_estimate < 1e-12
    assert set(found.values) == set(KEYS)


def test_thirty_digits_by_plain_quadrature(reference_problem):
    """A second route: rho from the cubic for g, q and the trace as integrals over x by mpmath.quad."""
    found = solve(reference_problem, digits=30)
    ctx = context(40)
    q, trace, theta, tau = (ctx.mpf(found.values[k]) for k in ("q", "trace", "theta", "tau"))
    r, top = ctx.sqrt(ctx.mpf(1) / 2), FreeConvolution(float_law(HALF), float(tau) ** 2).top_edge()

    def density(x):
        # x = 1/g + tau2 g + r/(1 - g/r), cleared of denominators: a cubic in g.
        cubic = [-(tau**2) / r, tau**2 + x / r, r - x - 1 / r, 1]
        roots = ctx.polyroots(cubic, maxsteps=200, extraprec=80)
        return max(abs(root.imag) for root in roots) / ctx.pi

    def integrate(power):
        # x = top - (top - theta) u^2 removes the square root at the edge.
        width = ctx.mpf(top) - theta
        return ctx.quad(
            lambda u: (
                density(theta + width * (1 - u * u)) * (width * (1 - u * u)) ** power * 2 * u * width
            ),
            [0, 1],
        )

    assert abs(integrate(2) - q) < 1e-13
    assert abs(integrate(1) - trace) < 1e-13


@given(PROBLEMS)
def test_identities_at_every_solution(problem):
    found = solve(problem)
    v = found.values
    R, alpha, lam, noise = (
        v["excess_risk"],
        float(problem.alpha),
        float(problem.lam),
        float(problem.noise),
    )
    assert found.residual < 1e-11
    assert float(problem.target.Q0) - 2 * v["m"] + v["q"] == pytest.approx(R, rel=1e-7, abs=1e-9)
    assert v["q"] * float(problem.target.Q0) >= v["m"] ** 2 * (1 - 1e-9)
    assert v["energy"] == pytest.approx(alpha * v["train_loss"] + lam * v["trace"], rel=1e-10)
    assert v["test_loss"] == pytest.approx(2 * R + noise, rel=1e-9)
    assert v["train_loss"] <= v["test_loss"] * (1 + 1e-12)
    assert v["A"] == pytest.approx(4 * alpha / (1 + 4 * v["V"]), rel=1e-9)
    assert v["C"] == pytest.approx(8 * alpha * (R + noise / 2) / (1 + 4 * v["V"]) ** 2, rel=1e-8)
    assert v["psi"] == pytest.approx(2 * v["A"] * v["V"], rel=1e-7, abs=1e-12)
    assert 0 <= v["rank_fraction"] <= 1 + 1e-12


@settings(max_examples=12)
@given(PROBLEMS)
def test_float64_is_within_its_error_of_40_digits(problem):
    fast, exact = solve(problem), solve(problem, digits=40)
    assert fast.phase == exact.phase
    for key in KEYS:
        error = abs(exact.values[key] - fast.values[key])
        assert error <= fast.error_estimate * magnitude(exact.values, key), key


@settings(max_examples=8)
@given(PROBLEMS)
def test_envelope_theorem_by_high_precision_differences(problem):
    """de/dlam = Tr S/d and de/dalpha = E[Moreau] = (2R + Delta)/(1 + 4V)."""
    h = Fraction(1, 10**12)
    centre = solve(problem, digits=40)

    def energy(**changes):
        return solve(problem.at(**changes), digits=40).energy

    dlam = (
        (energy(lam=problem.lam + h) - energy(lam=problem.lam - h)) / (2 * h.numerator) * h.denominator
    )
    dalpha = (energy(alpha=problem.alpha + h) - energy(alpha=problem.alpha - h)) * h.denominator / 2
    moreau = centre.test_loss / (1 + 4 * centre.V)
    assert abs(dlam - centre.trace) < 1e-15 * (1 + 1e4 * abs(centre.trace))
    assert abs(dalpha - moreau) < 1e-15 * (1 + 1e4 * abs(moreau))


@given(PROBLEMS, st.fractions(min_value="1/5", max_value=5, max_denominator=10))
def test_scale_covariance(problem, c):
    """S0 -> c S0 with Delta -> c^2 Delta and lam -> c lam gives S -> c S."""
    if not isinstance(problem.target, Atoms):
        problem = problem.at(target=Atoms((0, "1/2", 2)))
    values = tuple(v * c for v in problem.target.values)
    scaled = problem.at(
        target=Atoms(values, problem.target.weights), lam=problem.lam * c, noise=problem.noise * c**2
    )
    one, other, c = solve(problem), solve(scaled), float(c)
    for key, power in {
        "q": 2,
        "m": 2,
        "excess_risk": 2,
        "train_loss": 2,
        "trace": 1,
        "psi": 0,
        "V": 0,
    }.items():
        assert other.values[key] == pytest.approx(c**power * one.values[key], rel=1e-8, abs=1e-10), key


@settings(max_examples=10)
@given(PROBLEMS)
def test_train_loss_grows_with_the_penalty(problem):
    losses = [solve(problem.at(lam=problem.lam * factor)).train_loss for factor in (1, 2, 4, 8)]
    assert all(b >= a * (1 - 1e-10) for a, b in pairwise(losses))


@pytest.mark.parametrize("kappa0", ["1/10", "1/2", "1", "2"])
@pytest.mark.parametrize("noise", ["0", "1/10", "1"])
@pytest.mark.parametrize("lam", ["0", "1e-8", "1e-3", "1"])
@pytest.mark.parametrize("alpha", ["1/1000", "1/10", "1/3", "2", "1000"])
def test_extreme_corners_end_in_a_number(kappa0, noise, lam, alpha):
    problem = Problem(MarchenkoPastur(kappa0), alpha=alpha, lam=lam, noise=noise)
    try:
        found = solve(problem)
    except NotConverged:
        if (noise, lam, alpha) != ("0", "1e-8", "1000"):
            raise
        # R is about 1e-26 here: float64 says that it does not know, and more digits find it.
        found = solve(problem, digits=20)
    finite = [float(found.values[k]) for k in KEYS if k != "V"]
    assert all(math.isfinite(v) for v in finite)
    assert 0 <= found.excess_risk < 30
    assert found.error_estimate < 1e-3


@pytest.mark.parametrize("noise", ["0", "1/10"])
@pytest.mark.parametrize("alpha", ["1/10", "3/10", "2/5", "43/100", "1/2", "3"])
def test_small_lam_tends_to_the_limit(noise, alpha):
    """lam -> 0+ on both sides of the interpolation and of the perfect-recovery threshold."""
    problem = Problem(HALF, alpha=alpha, lam=0, noise=noise)
    limit = solve(problem)
    gaps = []
    for lam in ("1e-4", "1e-5", "1e-6"):
        near = solve(problem.at(lam=lam))
        gaps.append(abs(near.excess_risk - limit.excess_risk) + abs(near.psi - limit.psi))
    assert gaps[2] < gaps[1] < gaps[0]
    assert gaps[2] < 2e-3


def test_phases():
    assert solve(Problem(HALF, alpha="1/10", lam=0, noise="1/10")).phase == "interpolating"
    assert math.isinf(solve(Problem(HALF, alpha="1/10", lam=0, noise="1/10")).V)
    assert solve(Problem(HALF, alpha=1, lam=0, noise="1/10")).phase == "unpenalised"
    recovered = solve(Problem(HALF, alpha="1/2", lam=0, noise=0))
    assert (recovered.phase, recovered.excess_risk, recovered.q) == ("recovered", 0, 1.5)
    collapsed = solve(Problem(HALF, alpha="1/10", lam=100, noise="1/10"))
    assert (collapsed.phase, collapsed.excess_risk, collapsed.rank_fraction) == ("collapsed", 1.5, 0)


def test_alpha_to_zero_collapses():
    found = solve(Problem(HALF, alpha="1e-9", lam="1/10", noise="1/10"))
    assert found.phase == "collapsed"
    assert found.excess_risk == 1.5


def test_collapse_is_continuous():
    threshold = collapse(HALF, exact("1/10"), exact("3/10")).value
    below = solve(Problem(HALF, alpha="3/10", lam=str(float(threshold) * (1 - 1e-4)), noise="1/10"))
    above = solve(Problem(HALF, alpha="3/10", lam=str(float(threshold) * (1 + 1e-9)), noise="1/10"))
    assert above.phase == "collapsed"
    assert below.phase == "regular"
    assert 0 < below.trace < 1e-5
    assert below.excess_risk == pytest.approx(1.5, abs=1e-4)


def test_pure_noise_laws_with_their_derived_constants():
    """THEORY.md section 7: 0.3832 Delta alpha^(2/5), Delta/(8 alpha - 2), Delta/(4 alpha - 2)."""
    zero = Atoms((0,))
    _, interpolating, half, resolved = limit_laws()
    assert [law.f for law in limit_laws()] == [0, Fraction(-2, 5), 1, 1]
    assert float(interpolating.risk.subs({s.Delta: 1, s.alpha: 1})) == pytest.approx(0.3832, abs=5e-5)
    assert [power for _, power in edge_exponents().values()] == [Fraction(k, 2) for k in (5, 7, 3)]
    assert all(law.risk.free_symbols == {s.Delta, s.alpha} for law in (interpolating, half, resolved))

    def value(law, alpha):
        return float(law.risk.subs({s.Delta: 0.1, s.alpha: alpha}))

    for alpha in ("1/3", "1", "20"):
        found = solve(Problem(zero, alpha=alpha, lam=0, noise="1/10")).excess_risk
        assert found == pytest.approx(value(half, float(Fraction(alpha))), rel=1e-11)
    tiny = solve(Problem(zero, alpha="1e-9", lam=0, noise="1/10")).excess_risk
    assert tiny == pytest.approx(value(interpolating, 1e-9), rel=1e-3)
    wide = solve(Problem(Atoms((1000,)), alpha="3", lam=0, noise="1/10")).excess_risk
    assert wide == pytest.approx(value(resolved, 3), rel=1e-9)


def test_interpolation_peak_diverges_without_signal():
    with pytest.raises(NotConverged, match="alpha = 1/4"):
        solve(Problem(Atoms((0,)), alpha="1/4", lam=0, noise="1/10"))


@pytest.mark.parametrize(
    ("kappa0", "factorised", "direct"), [("1/10", 0.0411, 0.500), ("1/2", 0.292, 0.663)]
)
def test_best_penalty_of_both_trainings(kappa0, factorised, direct):
    """THEORY.md "Checked": best-lam R at Delta = 0.1, alpha = 0.3."""
    problem = Problem(MarchenkoPastur(kappa0), alpha="3/10", lam=0, noise="1/10")
    best = solve_optimal(problem)
    assert best.excess_risk == pytest.approx(factorised, abs=6e-4)
    frobenius = solve_optimal(problem.at(penalty="frobenius"))
    assert frobenius.excess_risk == pytest.approx(direct, abs=6e-4)
    assert frobenius.problem.lam == Fraction(1, 10) / (1 + Fraction(kappa0))
    for factor in ("9/10", "11/10"):
        for found in (best, frobenius):
            worse = solve(found.problem.at(lam=found.problem.lam * Fraction(factor)))
            assert worse.excess_risk > found.excess_risk


def test_best_penalty_to_30_digits_is_stationary():
    problem = Problem(HALF, alpha="3/10", lam=0, noise="1/10")
    best = solve_optimal(problem, digits=30)
    h = Fraction(1, 10**8)
    down, here, up = (
        solve(best.problem.at(lam=best.problem.lam + k * h), 40).excess_risk for k in (-1, 0, 1)
    )
    assert abs(up - down) * 10**8 / 2 < 1e-12
    assert up - 2 * here + down > 0


def test_no_noise_prefers_no_penalty():
    assert solve_optimal(Problem(HALF, alpha="1/3", lam=1, noise=0)).problem.lam == 0


def test_frobenius_closed_form_agrees_with_ridge_in_the_large_alpha_limit():
    found = solve(Problem(HALF, alpha=1000, lam=0, noise="1/10", penalty="frobenius"))
    assert found.excess_risk == pytest.approx(0.1 / (4000 - 2), rel=1e-12)
    with pytest.raises(NotConverged, match="1/2"):
        solve(Problem(HALF, alpha="1/2", lam=0, noise="1/10", penalty="frobenius"))


def test_width_limits():
    """A width above the rank changes nothing; width one of a power law keeps its first mode."""
    target = PowerLaw("5/4", 40)
    problem = Problem(target, alpha=1, lam="1/2", noise="1/10")
    full = solve(problem)
    rank = round(full.rank_fraction * 40)
    wide = solve(problem.at(width=rank + 2))
    assert wide.excess_risk == pytest.approx(full.excess_risk, rel=1e-11)
    one = solve(problem.at(width=1))
    assert one.rank_fraction == pytest.approx(1 / 40, abs=1e-12)
    assert one.energy > full.energy
    precise = solve(problem.at(width=3), digits=30)
    assert float(precise.excess_risk) == pytest.approx(solve(problem.at(width=3)).excess_risk, rel=1e-11)


def test_width_jacobian_by_differences():
    """The boundary term of a cut inside a band."""
    solver = FloatSolver(Problem(HALF, alpha="3/10", lam="1/5", noise="1/10", d=100, width=20))
    state = solver.at(0.7, 0.3, "shrinkage")
    assert state.capped
    jacobian, h = solver.jacobian(state), 1e-5
    for column, (d_log, d_t) in enumerate(((h, 0), (0, h))):

        def moved(sign, d_log=d_log, d_t=d_t):
            tau2 = 0.7 * np.exp(sign * d_log)
            return solver.residuals(
                solver.at(tau2, (0.3 / 0.7**0.5 + sign * d_t) * tau2**0.5, "shrinkage")
            )

        assert (moved(1) - moved(-1)) / (2 * h) == pytest.approx(jacobian[:, column], rel=1e-7)


def test_continuation_reaches_the_same_point(reference_problem):
    start = solve(reference_problem.at(alpha="1/3"))
    assert solve(reference_problem, start=start).q == pytest.approx(
        solve(reference_problem).q, rel=1e-12
    )


def test_digits_and_symbols_are_checked(reference_problem):
    for digits in (0, -3, 10**9):
        with pytest.raises(ProblemError, match="digits"):
            solve(reference_problem, digits)
    with pytest.raises(ProblemError, match="lam"):
        solve(Problem(HALF, alpha=1, noise=0))
    with pytest.raises(ProblemError, match="range"):
        solve(reference_problem.at(alpha="1e100"))


def test_two_hundred_digits_nest(reference_problem):
    """The same call at two precisions agrees to the smaller one."""
    few, many = solve(reference_problem, 60), solve(reference_problem, 200)
    for key in KEYS:
        assert abs(few.values[key] - many.values[key]) < mpmath.mpf(10) ** -59 * abs(many.values[key])
