"""The law of S0 + tau G: mass, free moments, edges, functionals, against mpmath and sampled matrices."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad_vec

from derive import Atoms, MarchenkoPastur, PowerLaw
from numerics.convolution import CutValues, FreeConvolution
from numerics.laws import float_law, mp_law
from numerics.mp_convolution import MPConvolution
from numerics.precision import context

TARGETS = {
    "wide bulk": MarchenkoPastur("1/2"),
    "thin": MarchenkoPastur("1/20"),
    "square": MarchenkoPastur(1),
    "full rank": MarchenkoPastur("5/2"),
    "zero": Atoms((0,)),
    "atoms": Atoms((0, 1, "5/2"), (3, 2, 1)),
    "power law": PowerLaw("5/4", 40),
    "cut power law": PowerLaw("3/4", 40, cutoff=5),
}
CASES = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
NAMES = [f.name for f in fields(CutValues) if f.name != "point"]


def moments(nu, orders):
    """Int x^n dnu over the bands, adaptively, with the square-root edges substituted away."""
    total = np.zeros(len(orders))
    for low, high in nu.bands():

        def integrand(angle, low=low, high=high):
            x = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
            rho = nu.density(np.array([x]))[0]
            return rho * (high - low) / 2 * np.sin(angle) * np.array([x**n for n in orders])

        total += quad_vec(integrand, 0, np.pi, epsabs=1e-9, epsrel=1e-9)[0]
    return total


@CASES
@pytest.mark.parametrize("tau2", [0.02, 0.5, 3.0])
def test_mass_and_first_four_free_moments(target, tau2):
    law = float_law(target)
    nu = FreeConvolution(law, tau2)
    if isinstance(target, MarchenkoPastur):
        r = float(target.kappa0) ** 0.5
        k = [0, r, 1, 1 / r, 1 / r**2]  # R-transform r/(1 - w/r)
        m3 = k[3] + 3 * k[2] * k[1] + k[1] ** 3
        m4 = k[4] + 4 * k[3] * k[1] + 2 * k[2] ** 2 + 6 * k[2] * k[1] ** 2 + k[1] ** 4
    else:
        m3 = float(law.weights @ law.values**3)
        m4 = float(law.weights @ law.values**4)
    m1, m2 = law.mean, law.Q0
    # Free convolution with a semicircle: add tau2 to the second free cumulant.
    expected = [
        1,
        m1,
        m2 + tau2,
        m3 + 3 * tau2 * m1,
        m4 + 4 * tau2 * m2 + 2 * tau2 * m1**2 + 2 * tau2**2,
    ]
    assert moments(nu, range(5)) == pytest.approx(expected, rel=1e-7)


@CASES
def test_edges_are_zeros_of_the_density(target):
    nu = FreeConvolution(float_law(target), 0.05)
    bands = nu.bands()
    assert bands == sorted(bands)
    assert bands[-1][1] == pytest.approx(nu.top_edge())
    for low, high in bands:
        width = high - low
        inside = nu.density(np.array([low + 1e-3 * width, high - 1e-3 * width]))
        outside = nu.density(np.array([low - 1e-7 * width, high + 1e-7 * width]))
        assert np.all(inside > 0)
        assert np.all(outside < 1e-2 * inside.max())


@CASES
@pytest.mark.parametrize("tau2", [1e-4, 0.3, 10.0])
def test_contour_agrees_with_closed_primitives(target, tau2):
    """float64 quadrature against mpmath closed forms, at cuts in bands, in gaps and outside."""
    nu = FreeConvolution(float_law(target), tau2)
    low, high = nu.bottom_edge(), nu.top_edge()
    ctx = context(60)
    reference = MPConvolution(mp_law(target, ctx), ctx.mpf(tau2), ctx)
    for share in (-0.05, 1e-3, 0.2, 0.5, 0.8, 0.999, 1.05):
        cut = low + share * (high - low)
        theta = cut - 0.1
        point = nu.preimage(cut)
        fast = nu.cut_at(point, theta)
        exact_point = reference.preimage(ctx.mpf(cut), ctx.mpc(point))
        exact = reference.cut_at(exact_point, ctx.mpf(theta))
        for name in NAMES:
            scale = max(1.0, abs(high)) ** 2
            scale *= tau2**-1.0 if name in ("hilbert", "cube") else 1.0
            assert getattr(fast, name) == pytest.approx(
                float(getattr(exact, name)), rel=1e-9, abs=2e-13 * scale
            ), (
                name,
                share,
            )


@CASES
@given(tau2=st.floats(1e-3, 20.0), share=st.floats(-0.2, 1.2))
def test_preimage_inverts_the_subordination_map(target, tau2, share):
    nu = FreeConvolution(float_law(target), tau2)
    x = nu.bottom_edge() + share * (nu.top_edge() - nu.bottom_edge())
    w = nu.preimage(x)
    assert w.imag >= 0
    z = w + tau2 * complex(nu.law.stieltjes(w)[0])
    assert abs(z - x) < 1e-9 * max(1.0, abs(x))


@CASES
def test_bracketing_agrees_with_newton(target):
    nu = FreeConvolution(float_law(target), 0.2)
    for share in (-0.1, 0.1, 0.45, 0.9, 1.1):
        x = nu.bottom_edge() + share * (nu.top_edge() - nu.bottom_edge())
        assert nu._bracketed(x) == pytest.approx(nu.preimage(x), abs=1e-9)


@CASES
@given(mass=st.floats(0.01, 0.99))
def test_quantile_has_the_mass(target, mass):
    nu = FreeConvolution(float_law(target), 0.4)
    w = nu.quantile(mass)
    assert nu.mass_above(w) == pytest.approx(mass, abs=1e-10)
    assert nu.cut_at(w, 0.0).mass == pytest.approx(mass, abs=1e-10)


@pytest.mark.parametrize("name", ["wide bulk", "atoms"])
def test_density_matches_sampled_matrices(name):
    """Moments of the positive part of sampled matrices at d = 600, in standard errors over draws."""
    target, d, tau2, theta = TARGETS[name], 600, 0.3, 0.5
    rng = np.random.default_rng(0)
    law = float_law(target)
    samples = []
    for _ in range(8):
        if isinstance(target, MarchenkoPastur):
            W0 = rng.standard_normal((d, d // 2))
            S0 = W0 @ W0.T / (d * d / 2) ** 0.5
        else:
            S0 = np.diag(np.repeat(law.values, np.rint(law.weights * d).astype(int)))
        G = rng.standard_normal((d, d))
        B = S0 + (tau2 / (2 * d)) ** 0.5 * (G + G.T)
        eig = np.linalg.eigvalsh(B)
        above = np.maximum(eig - theta, 0)
        gaps = np.subtract.outer(eig, eig) + np.eye(d)
        psi = np.sum(np.subtract.outer(above, above) / gaps) + np.sum(eig > theta)
        samples.append([np.mean(eig > theta), np.mean(above), np.mean(above**2), psi / d**2])
    mean, error = np.mean(samples, axis=0), np.std(samples, axis=0, ddof=1) / len(samples) ** 0.5
    at = FreeConvolution(law, tau2).cut(theta)
    theory = np.array([at.mass, at.I1, at.I2, at.psi])
    # The law at size d is off by O(1/d); allow that besides four standard errors.
    assert np.all(np.abs(mean - theory) < 4 * error + 2 / d)
