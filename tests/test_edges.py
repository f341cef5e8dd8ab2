"""Edges, splitting, singular values: derived, sharpened, and where a solve shows them."""

import json
import math

import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from derive import Atoms, MarchenkoPastur, PowerLaw, Problem, ProblemError, exact
from derive import symbols as s
from derive.edges import edge_polynomial, marchenko_pastur_splitting
from derive.spectrum_steps import spectrum_steps
from derive.steps import render
from numerics import solve
from numerics.convolution import FreeConvolution
from numerics.edges import band_edges, gaps, touching
from numerics.laws import float_law, mp_law
from numerics.precision import context
from numerics.sharpen import sharpen
from numerics.softmax import softmax_splitting
from numerics.spectrum import learned_spectrum
from numerics.thresholds import splitting
from numerics.views import view

kappas = st.fractions(min_value="1/50", max_value="9/10", max_denominator=50)


def test_splitting_of_the_marchenko_pastur_target():
    """The typed-in forms, and the discriminant, which has a double root there."""
    kappa0 = sp.Symbol("kappa0", positive=True)
    tau2, g = marchenko_pastur_splitting(kappa0)
    c = sp.cbrt(kappa0)
    assert sp.simplify(tau2 - (1 - c) ** 3 / kappa0) == 0
    assert sp.simplify(g - sp.sqrt(kappa0) / (1 - c)) == 0
    third = sp.Rational(1, 8)  # 1/2 is its cube root
    quartic = sp.Poly(edge_polynomial(third).subs(s.tau2, tau2.subs(kappa0, third)), s.x, extension=True)
    assert quartic.degree() == 4
    assert sp.simplify(quartic.discriminant()) == 0


@settings(max_examples=15)
@given(kappas, st.fractions(min_value="1/20", max_value=4, max_denominator=20))
def test_edges_are_roots_of_the_discriminant(kappa0, tau2):
    target, ctx = MarchenkoPastur(str(kappa0)), context(30)
    near = FreeConvolution(float_law(target), float(tau2))
    width = ctx.mpf(tau2.numerator) / tau2.denominator
    edges = [e for pair in band_edges(mp_law(target, ctx), near, width, ctx) for e in pair]
    with mpmath.workdps(60):
        quartic = sp.Poly(edge_polynomial(target.kappa0).subs(s.tau2, exact(str(tau2))), s.x)
        roots = mpmath.polyroots(
            [mpmath.mpf(str(sp.N(c, 60))) for c in quartic.all_coeffs()], maxsteps=500, extraprec=300
        )
        real = sorted(r.real for r in roots if abs(r.imag) < 1e-20)
        assert len(edges) in (2, 4)
        for edge in edges:
            assert min(abs(mpmath.mpf(edge) - r) for r in real) < mpmath.mpf(10) ** -22


@settings(max_examples=15)
@given(kappas)
def test_the_closed_form_is_where_the_gap_closes(kappa0):
    target, ctx = MarchenkoPastur(str(kappa0)), context(30)
    tau2, x = touching(target, gaps(target)[0], mp_law(target, ctx))
    closed = marchenko_pastur_splitting(target.kappa0)[0].evalf(40)
    assert abs(tau2 / ctx.mpf(str(closed)) - 1) < 1e-27
    for factor, bands in ((0.99, 2), (1.01, 1)):
        found = FreeConvolution(float_law(target), float(tau2) * factor).bands()
        assert len(found) == bands
        if bands == 2:
            assert (found[0][1] + found[1][0]) / 2 == pytest.approx(float(x), rel=0.02)


@pytest.mark.parametrize("lam", ["0", "1/100", "1/5"])
@pytest.mark.parametrize(
    "target", [MarchenkoPastur("1/10"), MarchenkoPastur("1/2"), Atoms((0, 0, 0, 3)), Atoms((0, 1, 3))]
)
def test_the_learned_spectrum_splits_at_its_threshold(target, lam):
    noise = exact("1/10")
    for gap in gaps(target):
        few, many = (splitting(target, gap, noise, exact(lam), digits) for digits in (15, 30))
        assert abs(few.value / many.value - 1) < 1e-15
        counts = []
        for factor in (0.99, 1.01):
            alpha = str(float(few.value) * factor)
            found = learned_spectrum(solve(Problem(target, alpha, lam, noise)), 20)
            counts.append(len(found.bands))
            place = float(few.unknown["eigenvalue"])
        assert counts[1] == counts[0] + 1
        upper = next(b for b in found.bands if b.low > 0.9 * place)
        assert upper.low == pytest.approx(place, abs=0.2 * max(place, 0.5))


def test_no_splitting_to_be_found():
    target = MarchenkoPastur("1/10")
    assert splitting(target, gaps(target)[0], exact("1/10"), exact(100)) is None
    assert gaps(MarchenkoPastur(1)) == []


def test_a_softmax_spectrum_splits_at_its_threshold():
    problem = Problem(
        MarchenkoPastur("1/10"), lam="1/10", noise="1/10", task="seq2lab", tokens=2, alpha=1
    )
    found = softmax_splitting(problem, gaps(problem.target)[0])
    assert found.error_estimate < 1e-3
    for factor, bands in ((0.98, 1), (1.02, 2)):
        at = solve(problem.at(alpha=exact(repr(float(found.value) * factor))), tolerance=1e-4)
        assert len(learned_spectrum(at, 20).bands) == bands


PROBLEMS = [
    Problem(MarchenkoPastur("1/10"), alpha=3, lam="1/5", noise="1/10"),
    Problem(MarchenkoPastur("1/10"), alpha=3, lam="1/5", noise="1/10", penalty="frobenius"),
    Problem(PowerLaw("3/2", 60), alpha="1/10", lam="1/100", noise="1/10"),
    Problem(PowerLaw("3/2", 60), alpha="1/10", lam="1/100", noise="1/10", width=20),
    Problem(Atoms((0, 1, 3)), alpha=1, lam=0, noise="1/10"),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_digits_sharpen_the_same_spectrum(problem):
    rough = learned_spectrum(solve(problem))
    few, many = (sharpen(rough, solve(problem, digits)) for digits in (20, 40))
    for one, two, near in zip(few.bands, many.bands, rough.bands, strict=True):
        for name in ("low", "high"):
            a, b, c = (getattr(band, name) for band in (one, two, near))
            assert abs(a - b) < mpmath.mpf(10) ** -18
            assert float(b) == pytest.approx(c, abs=1e-9)
    for one, two, near in zip(few.outliers, many.outliers, rough.outliers, strict=True):
        assert abs(one.eigenvalue - two.eigenvalue) < mpmath.mpf(10) ** -18
        assert abs(one.overlap - two.overlap) < mpmath.mpf(10) ** -18
        assert float(two.eigenvalue) == pytest.approx(near.eigenvalue, abs=1e-9)
    text = many.to_dict(40)["bands"][-1]["high"]
    assert len(text.replace(".", "").lstrip("0")) >= 38


def test_float_solutions_have_no_more_digits():
    solution = solve(PROBLEMS[0])
    with pytest.raises(ProblemError, match="more than 15"):
        sharpen(learned_spectrum(solution), solution)


@pytest.mark.parametrize("width", [None, 20])
def test_singular_values_of_w_against_a_matrix(width):
    """S = W W'/sqrt(p d), so that norm(W)_F^2 = sqrt(p d) Tr S; and each value is that of its matrix."""
    d = 60
    problem = Problem(PowerLaw("3/2", d), alpha="1/10", lam="1/100", noise="1/10", width=width)
    solution = solve(problem)
    found = learned_spectrum(solution)
    p = width or d
    S = np.diag(np.r_[[o.eigenvalue for o in found.outliers], [found.bands[0].high]])
    W = (p * d) ** 0.25 * np.sqrt(S)
    singular = view(found, solution, "weights")
    mine = sorted([o.eigenvalue for o in singular.outliers] + [singular.bands[0].high], reverse=True)
    assert np.allclose(mine, np.linalg.svd(W, compute_uv=False)[: len(mine)])
    for band, before in zip(singular.bands, found.bands, strict=True):
        slope = np.gradient(before.x, band.x)
        inner = slice(20, -20)
        assert np.allclose(band.density[inner], (before.density * slope)[inner], rtol=1e-2)


@given(st.floats(0.05, 0.9), st.floats(0.1, 3.0), st.floats(0.01, 0.5))
def test_the_folded_map_keeps_its_mass_and_square(kappa0, alpha, noise):
    problem = Problem(MarchenkoPastur(repr(kappa0)), alpha, "1/5", noise, penalty="frobenius")
    solution = solve(problem)
    found = view(learned_spectrum(solution, 400), solution, "map")
    error = sum(b.error for b in found.bands)
    assert math.isclose(sum(b.mass for b in found.bands), 1, abs_tol=1e-8)
    assert error < 1e-3
    assert all(b.low >= 0 for b in found.bands)
    total = 0.0
    for band in found.bands:
        nodes, weights = np.polynomial.legendre.leggauss(band.x.size)
        measure = weights * np.sin(np.pi * (nodes + 1) / 2) * (band.high - band.low) * np.pi / 4
        total += float((measure * band.x**2 * band.density).sum())
    top = found.bands[-1].high
    assert math.isclose(total, solution.values["q"], rel_tol=1e-6, abs_tol=20 * error * top**2 + 1e-8)


def test_direct_training_has_no_weights():
    solution = solve(PROBLEMS[1])
    with pytest.raises(ProblemError, match="no W"):
        view(learned_spectrum(solution), solution, "weights")


def test_the_steps_print():
    names = [step.name for step in spectrum_steps()]
    assert {"subordination", "edges", "splitting", "BBP transition", "overlap kernel"} <= set(names)
    assert json.loads(render(spectrum_steps(), "json"))[-1]["result"] == "Eq(R, Q0 - 2*m + q)"
    assert r"\text{" in render(spectrum_steps(), "latex")
