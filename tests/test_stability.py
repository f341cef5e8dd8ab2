"""The replicon is derived, computed by two routes, and is what message passing measures."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from derive import Atoms, MarchenkoPastur, PowerLaw, Problem
from derive.spectra import SquaredPair
from derive.stability import linear_replicon, replicon, spread, stability_steps
from derive.steps import mutations
from numerics import solve
from numerics.convolution import FreeConvolution
from numerics.laws import float_law
from numerics.overlaps import band_nodes
from numerics.spread import squared_differences
from numerics.stability import record, stability, warning

PROBLEMS = {
    "linear": Problem(),
    "frobenius": Problem(penalty="frobenius"),
    "seq2lab": Problem(task="seq2lab", tokens=2),
}
SOLVED = Problem(Atoms((0, 2)), alpha="3/10", lam="1/5", noise="1/10")
SOFTMAX = replace(SOLVED, alpha="1/2", lam="1/10", task="seq2lab", tokens=2)
JUMPING = Problem(
    MarchenkoPastur("1/2"),
    *("1/5", "1/200", "1/10"),
    task="seq2lab",
    tokens=2,
    noise_at="outside",
)


# --- derived --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_step_holds(name):
    for step in stability_steps(PROBLEMS[name]):
        assert step.verify(), step.name


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_step_holds_with_a_wrong_coefficient(name):
    for step in stability_steps(PROBLEMS[name]):
        for changed in mutations(step.result):
            assert not replace(step, result=changed).verify(), (step.name, changed)


def test_linear_replicon():
    """What the derivation arrives at: the share of divided differences over 2 alpha."""
    A, alpha = sp.symbols("A alpha", positive=True)
    assert sp.simplify(linear_replicon("nuclear") - spread / (2 * alpha)) == 0
    assert sp.simplify(linear_replicon("frobenius") - (A - 4 * alpha) ** 2 / (8 * alpha)) == 0
    assert not any(replicon(name).has(SquaredPair) for name in ("nuclear", "frobenius"))


# --- the spectrum's part --------------------------------------------------------------------------

LAWS = {
    "one band": (MarchenkoPastur("1/2"), 0.63, 0.68),
    "two bands": (Atoms((0, 2)), 0.1, 0.5),
    "cut in a gap": (Atoms((0, 2)), 0.1, 1.0),
    "full rank": (MarchenkoPastur(2), 1.0, 0.3),
    "semicircle": (Atoms((0,)), 1.0, -0.3),
}


def _by_quadrature(nu, theta, cut=None, fewer=500):
    """Over pairs of eigenvalues, band by band, split at the cut (theta if not stated).

    1500 points on the lowest band, ``fewer`` on those above.
    """
    cut = theta if cut is None else cut
    ends = [
        part
        for low, high in nu.bands()
        for part in ([(low, cut), (cut, high)] if low < cut < high else [(low, high)])
    ]
    nodes = [band_nodes(*end, fewer if i else 1500) for i, end in enumerate(ends)]
    x = np.concatenate([own for own, _ in nodes])
    mass = np.concatenate([weights * nu.density(own) for own, weights in nodes])
    kept, run = np.where(x > cut, x - theta, 0), x[:, None] - x
    np.fill_diagonal(run, 1)
    differences = (kept[:, None] - kept) / run
    np.fill_diagonal(differences, x > cut)
    return float(mass @ differences**2 @ mass)


@pytest.mark.parametrize("name", LAWS)
def test_spread_against_a_double_quadrature(name):
    law, tau2, theta = LAWS[name]
    nu = FreeConvolution(float_law(law), tau2)
    assert squared_differences(nu, theta) == pytest.approx(_by_quadrature(nu, theta), rel=1e-11)


def test_spread_of_a_width():
    """Half of two equal bands kept; a third of the eigenvalues would cut the upper band."""
    nu = FreeConvolution(float_law(Atoms((0, 2))), 0.1)
    assert squared_differences(nu, 0.1, 0.5) == pytest.approx(_by_quadrature(nu, 0.1, 1), rel=1e-11)
    assert squared_differences(nu, 0.1, 0.3) == math.inf


@pytest.mark.parametrize("p", [1, 9, 31, 48])
def test_width_among_separate_modes(p):
    """Every gap between modes is found; the cut is finite there and infinite in the bulk."""
    nu = FreeConvolution(float_law(PowerLaw(1, 1000)), 0.01)
    bands = nu.bands()
    cut = (bands[-p][0] + bands[-p - 1][1]) / 2
    # The quadrature is the less exact of the two: 500 points miss by 7e-4, 1500 by 9e-6.
    expected = _by_quadrature(nu, 0.15, cut, 40)
    assert squared_differences(nu, 0.15, p / 1000) == pytest.approx(expected, rel=3e-5)
    assert squared_differences(nu, 0.15, 60 / 1000) == math.inf


# --- every solve ----------------------------------------------------------------------------------


@given(
    kappa0=st.fractions("1/20", 2, max_denominator=20),
    alpha=st.fractions("1/20", 2, max_denominator=20),
    lam=st.sampled_from(["0", "1/50", "1/5", "2"]),
    noise=st.sampled_from(["0", "1/10", "1"]),
)
def test_the_linear_task_is_stable(kappa0, alpha, lam, noise):
    """Lambda is positive and below psi/(2 alpha) <= 1 (the proof in `derive stability`)."""
    solution = solve(Problem(MarchenkoPastur(kappa0), alpha, lam, noise))
    found = stability(solution)
    bound = float(solution.values["psi"]) / (2 * float(solution.problem.alpha))
    assert 0 <= found.replicon <= bound + 1e-9
    assert found.replicon < 1 - found.error
    assert found.error < 1e-6
    assert warning(record(solution)) is None


def test_recovered_phase_is_the_limit_of_small_penalties():
    problem = Problem(MarchenkoPastur("1/2"), "1/2", 0, 0)
    limit, near = (stability(solve(problem.at(lam=lam))).replicon for lam in (0, sp.Rational(1, 10**7)))
    assert near == pytest.approx(limit, rel=1e-5)


def test_where_jumps_break_replica_symmetry():
    """THEORY.md section 3: theory R = 1.884 there, training 1.847(23); a larger lam has no jumps."""
    found = stability(solve(JUMPING, tolerance=1e-2))
    assert found.margin > 10 * found.error
    assert 0.03 < found.distance < 0.15
    assert "jumps of the minimiser" in warning(found.to_dict())
    calm = stability(solve(JUMPING.at(lam="1/10"), tolerance=1e-2))
    assert calm.distance < 1e-6
    assert warning(calm.to_dict()) is None


def test_a_width_in_a_band_is_warned_of():
    solution = solve(Problem(MarchenkoPastur("1/2"), "3/10", "1/10", 0, d=10, width=3))
    row = record(solution)
    assert row["margin"] == "-inf"
    assert "width cuts inside a band" in warning(row)


@pytest.mark.parametrize(
    "problem",
    [SOLVED, replace(SOLVED, penalty="frobenius"), SOFTMAX, replace(SOFTMAX, noise_at="outside")],
)
def test_message_passing_contracts_by_the_replicon(problem):
    """Within four standard errors at d = 60."""
    pytest.importorskip("torch")
    from validate.amp import contraction

    theory = stability(solve(problem, tolerance=1e-4))
    found = [contraction(problem, 60, seed, 20) for seed in range(8)]
    error = statistics.stdev(found) / len(found) ** 0.5
    assert abs(statistics.fmean(found) - theory.replicon) < 4 * error
    assert error < 0.05 * theory.replicon
