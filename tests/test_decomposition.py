"""The four terms of the excess risk."""

import math
from itertools import pairwise

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from derive import Atoms, MarchenkoPastur, PowerLaw, Problem, ProblemError
from derive import symbols as s
from derive.modes import mode, strength
from derive.overlaps import INTEGRALS, in_m, in_q, linear_slopes, terms
from numerics import solve, solve_optimal
from numerics.decomposition import decompose
from numerics.laws import float_law
from numerics.loss_slopes import loss_slopes
from numerics.spectrum import learned_spectrum
from validate.eigenvectors import Eigenvectors


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


@given(
    st.one_of(
        st.floats(0.03, 1.5).map(lambda kappa0: MarchenkoPastur(repr(kappa0))),
        st.lists(st.floats(0, 4), min_size=1, max_size=5, unique=True).map(
            lambda values: Atoms(tuple(map(repr, values)))
        ),
    ),
    st.floats(0.05, 3.0),
    st.floats(0.0, 2.0),
    st.floats(1e-3, 1.0),
    st.sampled_from(["nuclear", "frobenius"]),
)
def test_the_terms_add_up_over_bands(target, alpha, lam, noise, penalty):
    solution = solve(Problem(target, repr(alpha), repr(lam), repr(noise), penalty=penalty))
    found = decompose(solution)
    # The bound the decomposition states, which at narrow bands is that of their quadrature.
    near = 1e-10 + 10 * found.error_estimate
    assert near < 1e-6
    assert math.isclose(found.total, solution.excess_risk, rel_tol=near, abs_tol=near)
    assert min(found.over, found.mismatch) >= 0
    assert found.approx >= -near


def test_one_recovered_mode_is_the_mode_of_the_scaling_laws():
    """approx and mismatch of one eigenvector against the residues of `derive.modes`."""
    shape = mode()
    seen, kept = strength * shape.overlap, shape.position - s.theta
    one = {"FF": kept**2, "Fy": kept * seen, "yy": seen**2, "found": strength**2}
    e_q, e_m = linear_slopes()
    values = {sp.Symbol(name, real=True): one.get(name, 0) for name in INTEGRALS}
    at = values | {in_q: e_q, in_m: e_m}
    assert sp.expand(terms()["approx"].subs(at) - shape.misaligned) == 0
    assert sp.expand(terms()["mismatch"].subs(at) - shape.mismatched) == 0


@pytest.mark.parametrize("alpha", ["1/10", "3"])
def test_bands_against_sampled_eigenvectors(alpha):
    """The four terms of S = (S0 + tau G - theta)_+ at d = 400 from its own eigenvectors.

    One band at the smaller alpha, a separate signal band at the larger.
    """
    target, d = MarchenkoPastur("1/10"), 400
    solution = solve(Problem(target, alpha, "1/5", "1/10"))
    found = decompose(solution)
    assert found.outliers == (alpha == "3")
    tau, theta = solution.values["tau"], solution.values["theta"]
    rng, runs = np.random.default_rng(2), []
    for _ in range(8):
        W, G = rng.normal(size=(d, d // 10)), rng.normal(size=(d, d))
        S0 = W @ W.T / (d * d / 10) ** 0.5
        values, vectors = np.linalg.eigh(S0 + tau * (G + G.T) / (2 * d) ** 0.5)
        S = (vectors * np.maximum(values - theta, 0)) @ vectors.T
        runs.append(Eigenvectors.of(S, S0).terms(d // 10))
    for name in ("over", "under", "approx", "mismatch"):
        sample = [run[name] for run in runs]
        error = np.std(sample, ddof=1) / len(sample) ** 0.5
        assert abs(np.mean(sample) - getattr(found, name)) < 4 * error + 4 / d**1.5, name


@pytest.mark.parametrize("noise_at", ["inside", "outside"])
def test_softmax_slopes_against_sampled_fields(noise_at):
    """d test loss/dq and /dm by finite differences over one sample of fields, in standard errors."""
    problem = Problem(
        MarchenkoPastur("1/2"), 1, "1/10", "1/2", task="seq2lab", tokens=2, noise_at=noise_at
    )
    solution = solve(problem, tolerance=1e-3)
    slopes, (q, m) = loss_slopes(solution), (solution.q, solution.m)
    Q = 1.5 + (0.25 if noise_at == "inside" else 0)
    rng = np.random.default_rng(3)
    z0, z = rng.normal(size=(2, 400_000, 3))

    def attention(u):
        h = np.empty((len(u), 2, 2))
        h[:, 0, 0], h[:, 1, 1] = 2**0.5 * u[:, 0], 2**0.5 * u[:, 1]
        h[:, 0, 1] = h[:, 1, 0] = u[:, 2]
        e = np.exp(h - h.max(axis=2, keepdims=True))
        return e / e.sum(axis=2, keepdims=True)

    label = attention(Q**0.5 * z0)

    def losses(q, m):
        omega = m / Q**0.5 * z0 + (q - m**2 / Q) ** 0.5 * z
        return ((label - attention(omega)) ** 2).sum((1, 2))

    step = 0.02
    for found, up, down in (
        (slopes.in_q, (q + step, m), (q - step, m)),
        (slopes.in_m, (q, m + step), (q, m - step)),
    ):
        sample = (losses(*up) - losses(*down)) / (2 * step)
        error = sample.std() / len(sample) ** 0.5
        assert abs(sample.mean() - found) < 4 * error + 1e-3 * abs(found)


def test_softmax_terms_make_up_the_test_loss():
    solution = solve(
        Problem(MarchenkoPastur("1/10"), 1, "1/10", "1/10", task="seq2lab", tokens=2), tolerance=1e-3
    )
    found = decompose(solution)
    assert math.isclose(found.total, solution.test_loss, rel_tol=1e-10)
    assert min(found.over, found.approx, found.mismatch, found.offset) > 0
    assert 0 < found.fit < 1
    assert found.recovered == pytest.approx(0.1)


def test_over_is_what_the_noise_band_holds():
    """E_over against the density of the bulk: they differ by the modes' finite weight only."""
    gaps = []
    for d in (300, 1000):
        solution = solve(Problem(PowerLaw("3/2", d), "1/5", "1/100", "1/2"))
        (band,) = learned_spectrum(solution).bands
        nodes, weights = np.polynomial.legendre.leggauss(band.x.size)
        half = (band.high - band.low) / 2
        direct = (weights * band.x**2 * band.density * np.sin(np.pi * (nodes + 1) / 2)).sum()
        gaps.append(abs(direct * half * np.pi / 2 / decompose(solution).over - 1))
    assert gaps[1] < 0.08
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


def test_more_recovered_outliers_lower_error():
    """What the paper states: with more samples more outliers leave the bulk, and the error falls."""
    outliers, errors, missed = [], [], []
    for alpha in ("1/50", "1/10", "1/2", "2"):
        found = decompose(solve_optimal(Problem(PowerLaw("3/2", 200), alpha, 0, "1/10")))
        outliers.append(found.outliers)
        errors.append(found.total)
        missed.append(found.under)
    assert outliers[0] <= 2
    assert outliers[-1] >= 8
    assert all(a < b for a, b in pairwise(outliers))
    assert all(a > b for a, b in pairwise(errors))
    assert all(a > b for a, b in pairwise(missed))


def test_a_merged_tail_is_refused():
    with pytest.raises(ProblemError, match="at most 4000"):
        decompose(solve(Problem(PowerLaw(1, 10**5), 1, "1/10", 1)))
