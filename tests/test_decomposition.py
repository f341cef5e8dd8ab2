"""The four terms of the excess risk."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from derive import PowerLaw, Problem, ProblemError
from numerics import solve
from numerics.decomposition import decompose
from numerics.laws import float_law
from numerics.spectrum import learned_spectrum


@given(
    st.floats(0.6, 2.5),
    st.integers(20, 400),
    st.floats(0.01, 3.0),
    st.floats(1e-3, 1.0),
    st.floats(1e-6, 1.0),
)
def test_the_terms_add_up_to_the_risk(gamma, d, alpha, lam, noise):
    solution = solve(Problem(PowerLaw(repr(gamma), d), alpha, lam, noise))
    found = decompose(solution)
    assert math.isclose(found.total, solution.excess_risk, rel_tol=1e-9, abs_tol=1e-10)
    assert found.approx >= 0
    assert found.mismatch >= 0


def test_over_is_what_the_noise_band_holds():
    """E_over against the density of the bulk: they differ by the modes' finite weight only."""
    gaps = []
    for d in (500, 2000):
        solution = solve(Problem(PowerLaw("3/2", d), "1/5", "1/100", "1/2"))
        (band,) = learned_spectrum(solution).bands
        nodes, weights = np.polynomial.legendre.leggauss(band.x.size)
        half = (band.high - band.low) / 2
        direct = (weights * band.x**2 * band.density * np.sin(np.pi * (nodes + 1) / 2)).sum()
        gaps.append(abs(direct * half * np.pi / 2 / decompose(solution).over - 1))
    assert gaps[1] < 0.05
    assert gaps[1] < gaps[0]


def test_terms_against_sampled_eigenvectors():
    """Approx and mismatch of S = (S0 + tau G - theta)_+ at d = 400, in standard errors."""
    target, d = PowerLaw("3/2", 400), 400
    solution = solve(Problem(target, "1/10", "1/100", "1/10"))
    found = decompose(solution)
    tau, theta = solution.values["tau"], solution.values["theta"]
    strengths = np.sort(float_law(target).values)[::-1]
    rng, runs = np.random.default_rng(1), []
    for _ in range(12):
        G = rng.normal(size=(d, d))
        values, vectors = np.linalg.eigh(np.diag(strengths) + tau * (G + G.T) / (2 * d) ** 0.5)
        x, v, k = values[::-1] - theta, vectors[:, ::-1], found.outliers - 1
        # The last recovered mode sits at its transition, where finite d matters most: leave it out.
        w = np.array([v[i, i] ** 2 for i in range(k)])
        own = strengths[:k]
        runs.append([(own**2 * (1 - w**2)).sum() / d, ((x[:k] - own * w) ** 2).sum() / d])
    last = strengths[found.outliers - 1]
    w = 1 - tau**2 / last**2
    tail = [last**2 * (1 - w**2) / d, (last + tau**2 / last - theta - last * w) ** 2 / d]
    mean, error = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1) / len(runs) ** 0.5
    for i, theory in enumerate((found.approx, found.mismatch)):
        assert abs(mean[i] + tail[i] - theory) < 4 * error[i] + 0.1 * theory


def test_a_merged_tail_is_refused():
    with pytest.raises(ProblemError, match="at most 4000"):
        decompose(solve(Problem(PowerLaw(1, 10**5), 1, "1/10", 1)))
