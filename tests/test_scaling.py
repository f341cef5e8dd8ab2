"""The scaling law: derivation against THEORY.md section 7, exact tiling, variants."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from derive import Atoms, Problem, ProblemError
from derive.balance import a, delta, gamma, l, linear_balance, monomial, r, w
from derive.lasso import lasso, lasso_balance, soft_mass, soft_risk, u, y
from derive.locate import locate, read_point
from derive.modes import mode, mode_share, strength
from derive.polyhedra import evaluate_form, interior_point, rational_form
from derive.prefactors import c, laws, mode_integral
from derive.regions import region, stated
from derive.scaling import VARIABLES, best_cells, cells, possible, regimes
from derive.symbols import Delta, lam, tau2, theta
from derive.tiling import discontinuities, tiles
from derive.variants import along, best, direct_regimes, interpolation_peak, noiseless
from numerics import solve

R = sp.Rational
GAMMAS = [R(3, 5), R(3, 4), R(1), R(3, 2), R(2)]
BOX = (R(1, 10), R(6), R(-6), R(4))


def by_name(table):
    return {regime.name: regime for regime in table}


# --- the table ----------------------------------------------------------------------------------

# THEORY.md section 7, as typed there: the exponent of R and f(gamma).
THEORY = {
    "nothing recovered": (0, 0),
    "data-limited": (-(2 * gamma - 1) * (a - 1), 2 * gamma - 1),
    "noise-limited": (-(1 - 1 / (2 * gamma)) * (a - 1 - delta), 1 - 1 / (2 * gamma)),
    "over-regularised": ((2 - 1 / gamma) * (l + R(3, 2) - a), 2 - 1 / gamma),
    "over-regularised, every mode recovered": (2 * (l + 2 - a), 2),
    "interpolating bulk": (delta + R(2, 5) * (a - 2), -R(2, 5)),
    "half the bulk passes": (delta + 2 - a, 1),
    "every mode resolved": (delta + 2 - a, 1),
}


def test_the_derived_table_is_the_one_of_the_theory_page():
    derived = by_name(regimes())
    assert set(derived) == set(THEORY)
    for name, (exponent, f) in THEORY.items():
        assert sp.simplify(derived[name].exponent - exponent) == 0, name
        assert sp.simplify(derived[name].f - f) == 0, name


def test_a_narrow_student_adds_its_floor():
    narrow = by_name(regimes(None, wide=False))
    assert sp.expand(narrow["width-limited"].exponent + (2 * gamma - 1) * w) == 0
    assert narrow["width-limited"].dominant == "width"
    for name in ("data-limited", "noise-limited", "over-regularised", "interpolating bulk"):
        assert narrow[name].exponent == by_name(regimes())[name].exponent


def test_terms_that_balance_are_named():
    derived = by_name(regimes())
    assert (derived["data-limited"].dominant, derived["data-limited"].ties) == (
        "under",
        ("bias", "variance"),
    )
    assert derived["interpolating bulk"].dominant == "over"
    assert derived["every mode resolved"].dominant == "variance"
    assert derived["over-regularised, every mode recovered"].dominant == "bias"


# --- tiling -------------------------------------------------------------------------------------


def _on_wall(point, tau, noise_scale):
    """The two walls: theta at the edge of the noise, and n = d^2 where R >> Delta."""
    level = noise_scale if tau == "noise" else None
    if level is None:
        return point[0] == 2
    return 2 * (point[1] - point[0] + 2) == level + 2 - point[0]


def _check_walls(found, scale):
    for jump in discontinuities(found):
        at_edge = all(_on_wall(end, "noise", scale) for end in jump.ends)
        at_threshold = all(_on_wall(end, "data", scale) for end in jump.ends)
        assert at_edge or at_threshold, jump
        assert at_edge or "data-limited" in jump.regimes, jump


@pytest.mark.parametrize("value", GAMMAS)
@pytest.mark.parametrize("scale", [R(0), R(-1), R(1, 2), R(-7, 3)])
def test_regimes_tile_the_plane_and_the_exponent_jumps_at_two_walls_only(value, scale):
    found = tiles(regimes(), {gamma: value, delta: scale}, BOX)
    _check_walls(found, scale)


@given(
    st.fractions(Fraction(7, 12), 3, max_denominator=12),
    st.fractions(-3, 2, max_denominator=12),
    st.fractions(Fraction(1, 12), Fraction(11, 12), max_denominator=12),
)
@settings(max_examples=15, deadline=None)
def test_tiling_holds_for_any_gamma_noise_and_width(value, scale, width):
    at = {gamma: R(value), delta: R(scale), w: R(width)}
    _check_walls(tiles(regimes(), at, BOX), R(scale))
    # A narrow student's floor lies under the data-limited law, so n = d^2 is no wall of its own.
    for jump in discontinuities(tiles(regimes(None, wide=False), at, BOX)):
        assert all(_on_wall(end, "noise", R(scale)) for end in jump.ends), jump


@pytest.mark.parametrize("value", [R(3, 5), R(3, 2)])
def test_lasso_regimes_tile_the_plane(value):
    tiles(regimes(lasso_balance()), {gamma: value, delta: R(-1, 3)}, BOX)


def test_a_gap_and_an_overlap_are_found():
    table = regimes()
    with pytest.raises(ValueError, match="no regime"):
        tiles(table[1:], {gamma: R(1), delta: R(0)}, BOX)
    bad = by_name(table)["noise-limited"]
    loose = replace(bad, cells=(replace(bad.cells[0], conditions=bad.cells[0].conditions[:2]),))
    wrong = [loose if regime is bad else regime for regime in table]
    with pytest.raises(ValueError, match=" and "):
        tiles(wrong, {gamma: R(1), delta: R(0)}, BOX)


# --- against an iteration in floats -----------------------------------------------------------------


def max_plus(a, l, delta, w, gamma):
    """The fixed point of R's exponent by bisection, written out independently of the engine."""

    def image(r):
        t = (max(r, delta) + 2 - a) / 2
        th = l - a + 2
        penalised = th > t
        cut = th if penalised else t
        kappa = (0.5 - cut) / gamma
        if kappa <= 0:
            terms = [0.0]
        elif kappa < w:
            terms = [kappa * (1 - 2 * gamma), kappa + 2 * cut - 1]
        else:
            shrink = th if penalised or a > 2 else t
            terms = [w - 1 + 2 * t, w - 1 + 2 * min(shrink, cut)]
            if w < 1:
                terms.append(w * (1 - 2 * gamma))
        if not penalised and kappa < w:
            cap = w - 1
            eps = min(0.0, max(0.4 * (a - 2), a - 2 - cap))
            terms.append(2 * t + 2 * eps + min(1.5 * eps, cap))
        return max(terms)

    low, high = -60.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if image(middle) > middle else (low, middle)
    return low


@given(
    st.fractions(Fraction(11, 20), 3, max_denominator=20),
    st.fractions(Fraction(1, 10), 6, max_denominator=97),
    st.fractions(-5, 4, max_denominator=89),
    st.fractions(-3, 2, max_denominator=83),
    st.one_of(st.just(1), st.fractions(Fraction(1, 20), Fraction(19, 20), max_denominator=30)),
)
@settings(max_examples=300, deadline=None)
def test_table_agrees_with_a_float_max_plus_fixed_point(value, samples, penalty, scale, width):
    point = {"a": R(samples), "l": R(penalty), "delta": R(scale), "w": R(width)}
    try:
        place = locate(regimes(None, wide=width == 1), point, R(value))
    except ProblemError:
        return  # on a boundary
    if place.exponent < -50:
        return
    expected = max_plus(*(float(point[k]) for k in ("a", "l", "delta", "w")), float(value))
    assert math.isclose(float(place.exponent), expected, abs_tol=1e-9)


# --- geometry -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(*[st.integers(-4, 4)] * 4), min_size=1, max_size=7))
@settings(max_examples=100, deadline=None)
def test_interior_points_are_interior(rows):
    forms = [tuple(map(Fraction, row)) for row in rows]
    point = interior_point(forms)
    if point is not None:
        assert all(evaluate_form(form, point) > 0 for form in forms)
    else:
        # Farkas: a non-negative combination of the forms is a constant that is not positive.
        from scipy.optimize import linprog

        matrix = [[float(row[i]) for row in rows] for i in range(3)] + [[1.0] * len(rows)]
        found = linprog([float(row[3]) for row in rows], A_eq=matrix, b_eq=[0, 0, 0, 1])
        assert found.status == 0
        assert found.fun < 1e-9


def test_regions_in_words_hold_where_the_cells_do():
    for regime in regimes():
        for value in GAMMAS:
            short = region(regime, value)
            for cell in regime.cells:
                forms = [rational_form(x.subs(gamma, value), VARIABLES) for x in cell.conditions]
                inside = interior_point(forms)
                if inside is not None:
                    assert any(
                        all(
                            evaluate_form(rational_form(x.subs(gamma, value), VARIABLES), inside) > 0
                            for x in part
                        )
                        for part in short
                    )
    assert stated(a - delta - 1) == "n > Delta d"
    assert monomial(2 * l + 4 - 2 * a) == "lam^2 d^4/n^2"


# --- modes --------------------------------------------------------------------------------------


def test_a_mode_far_above_the_noise_costs_bias_and_variance():
    shape = mode()
    assert sp.limit(shape.risk, strength, sp.oo) == theta**2 + 2 * tau2
    assert shape.overlap == 1 - tau2 / strength**2  # THEORY.md section 4
    assert sp.simplify(shape.transition - sp.sqrt(tau2)) == 0
    # Risk through the overlap: s^2 - 2 s w x + x^2 with x = position - theta.
    x = shape.position - theta
    direct = strength**2 - 2 * strength * shape.overlap * x + x**2
    assert sp.simplify(shape.risk - direct) == 0
    for k in (0, 1, 2):
        assert sp.simplify(mode_share(1, k) - (shape.position - theta) ** k) == 0


def test_data_limited_threshold_stays_at_the_edge():
    """psi of the recovered modes is below 2 alpha at theta = 2 tau, so lam -> 0+ needs the bulk too."""
    risk, psi = mode_integral(sp.Integer(2))
    assert sp.factor(psi / risk) == (2 * gamma - 1) / (6 * gamma)


# --- variants -----------------------------------------------------------------------------------


def test_the_envelope_over_lam_is_the_least_exponent():
    value, scale = R(3, 2), R(0)
    for samples in (R(1, 2), R(13, 10), R(19, 10), R(27, 10), R(41, 10)):
        reached = []
        for i in range(-40, 20):
            point = {"a": samples, "l": R(2 * i + 1, 20) + R(1, 977), "delta": scale, "w": R(1)}
            reached.append(locate(regimes(), point, value).exponent)
        own = [
            b
            for b in best()
            for cell in b.regime.cells
            if all(x.subs({gamma: value, a: samples, delta: scale}) > 0 for x in cell.conditions)
            or (b.regime.name == "nothing recovered" and samples < 1)
        ]
        least = own[0].regime.exponent.subs({gamma: value, a: samples, delta: scale})
        assert least <= min(reached) <= least + R(1, 10) * 2
        if own[0].penalty is not None:
            at = own[0].penalty.subs({gamma: value, a: samples, delta: scale})
            near = {"a": samples, "l": at + R(1, 10**6), "delta": scale, "w": R(1)}
            close = locate(regimes(), near, value).exponent
            assert abs(close - least) < R(1, 10**4)


def test_lam_that_grows_with_n():
    x = sp.Rational(1, 4)
    moved = by_name(along(regimes(), x))["over-regularised"]
    assert sp.simplify(moved.f - (1 - x) * (2 - 1 / gamma)) == 0


def test_without_noise_R_sets_tau():
    table = by_name(noiseless(regimes()))
    assert set(table) == {
        "nothing recovered",
        "data-limited",
        "over-regularised",
        "over-regularised, every mode recovered",
    }
    assert not any(cell.exponent.has(delta) for regime in table.values() for cell in regime.cells)


def test_lasso_obeys_the_same_law_with_n_over_d():
    """Universality: a -> a - 1 and l -> l + 1/2 turn the regimes of S into those of the LASSO."""
    ours, theirs = by_name(regimes()), by_name(regimes(lasso_balance()))
    shift = {a: a + 1, l: l - R(1, 2)}
    shared = [n for n in theirs if n != "interpolating bulk"]
    assert len(shared) == 6
    for name in shared:
        moved = ours[name].exponent.subs(shift, simultaneous=True)
        assert sp.simplify(moved - theirs[name].exponent) == 0, name
    # The exception: a Gaussian tail in place of the square-root edge, Delta/log(d/n).
    assert theirs["interpolating bulk"].exponent == delta
    assert theirs["interpolating bulk"].log_power == -1
    for one, other in zip(best(), best(lasso_balance()), strict=True):
        moved = one.regime.exponent.subs(shift, simultaneous=True)
        assert sp.simplify(moved - other.regime.exponent) == 0


def test_lasso_state_evolution():
    equations = lasso()
    assert equations.tau2.has(Delta)
    # No signal and no threshold: the risk is the variance of the noise, every coordinate is selected.
    assert sp.simplify(soft_risk().subs({y: 0, u: 0})) == 1
    assert soft_mass().subs({y: 0, u: 0}) == 1
    z = np.random.default_rng(0).normal(size=400_000)
    eta = np.sign(1.3 + z) * np.maximum(np.abs(1.3 + z) - 0.7, 0)
    sampled = (eta - 1.3) ** 2
    exact = float(soft_risk().subs({y: R(13, 10), u: R(7, 10)}))
    assert abs(sampled.mean() - exact) < 4 * sampled.std() / len(z) ** 0.5


def test_direct_training_knows_no_gamma():
    table = by_name(direct_regimes())
    assert not any(regime.exponent.has(gamma) for regime in table.values())
    assert table["every direction resolved"].exponent == delta + 2 - a
    assert table["shrunk"].f == 2
    assert table["nothing learned"].exponent == 0


def test_interpolation_peak_against_the_solver():
    """R ~ lam^(-2/3) at alpha = 1/4 (sibling paper, in its normalisation)."""
    peak = interpolation_peak()
    assert sp.simplify(sp.diff(sp.log(peak), lam) * lam) == -R(2, 3)
    target = Atoms((0,))
    gaps = []
    for power in (6, 9):
        point = Problem(target, alpha="1/4", lam=R(1, 10**power), noise=1)
        ours = float(peak.subs({Delta: 1, lam: R(1, 10**power)}))
        gaps.append(abs(solve(point).excess_risk / ours - 1))
    assert gaps[1] < gaps[0] / 5
    assert gaps[1] < 1e-2


def test_constants_of_the_laws():
    d, n = sp.symbols("d n", positive=True)
    found = laws()
    # Over-regularised: R = sum_i min(s_i, theta)^2/d with theta = lam d^2/(4 n).
    at = {gamma: R(3, 2), c: 1, d: 10**6, n: 10**8, lam: R(4, 10**6)}
    cut = 0.01
    exact = sum(min(1e3 * i**-1.5, cut) ** 2 for i in range(1, 400_000)) / 1e6
    assert math.isclose(float(found["over-regularised"].subs(at)), exact, rel_tol=1e-3)
    assert sp.simplify(found["every mode resolved"] * (4 * n / d**2 - 2) / Delta) == 1
    assert sp.simplify(found["half the bulk passes"] * (8 * n / d**2 - 2) / Delta) == 1


# --- where a point is -------------------------------------------------------------------------------


def test_locate_without_gamma_where_it_does_not_matter():
    place = locate(regimes(), read_point("a=1.5,l=-0.2,delta=0"), None)
    assert place.regime.name == "over-regularised"
    assert sp.simplify(place.exponent + (2 - 1 / gamma) / 5) == 0
    assert all(margin.subs(gamma, g) > 0 for _, margin in place.conditions for g in GAMMAS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=1,l=-5", "boundary of 'nothing recovered' and"),
        ("a=1.5", "depends on gamma"),
        ("l=1", "needs a"),
        ("a=1,b=2", "a point reads"),
        ("a=nan", "finite number"),
        ("a=1,w=2", "w lies above 0"),
    ],
)
def test_points_that_have_no_answer(text, words):
    with pytest.raises(ProblemError, match=words):
        locate(regimes(), read_point(text), None)


def test_impossible_cells_are_dropped():
    model = linear_balance()
    kept = [cell for cell in cells(model, wide=True) if possible(cell)]
    assert len(kept) < len(list(cells(model, wide=True)))
    assert all(possible(cell) for regime in regimes() for cell in regime.cells)
    assert all(not cell.exponent.has(r) for cell in best_cells(model))
