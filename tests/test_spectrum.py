"""The spectrum of the learned S: masses, sum rules, edges, outliers."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import onehead
from derive import Atoms, MarchenkoPastur, PowerLaw, Problem
from numerics import solve
from numerics.convolution import FreeConvolution
from numerics.laws import float_law
from numerics.sharpen import sharpen
from numerics.spectrum import learned_spectrum
from numerics.views import view


def moment(spectrum, power, d=1):
    """Int x^power over the spectrum, by the density."""
    total = sum(o.eigenvalue**power for o in spectrum.outliers) / d
    for band in spectrum.bands:
        # Gauss nodes in phi: their weights are those of the band's own integral.
        nodes, weights = np.polynomial.legendre.leggauss(band.x.size)
        half = (band.high - band.low) / 2
        total += (weights * band.x**power * band.density * np.sin(np.pi * (nodes + 1) / 2)).sum() * (
            half * np.pi / 2
        )
    return total


@given(
    st.floats(0.05, 1.5),
    st.floats(0.05, 3.0),
    st.floats(0.01, 0.5),
    st.floats(0.01, 1.0),
    st.sampled_from(["nuclear", "frobenius"]),
)
def test_mass_trace_and_q(kappa0, alpha, lam, noise, penalty):
    solution = solve(Problem(MarchenkoPastur(kappa0), alpha, lam, noise, penalty=penalty))
    spectrum = learned_spectrum(solution)
    assert math.isclose(spectrum.atom + sum(b.mass for b in spectrum.bands), 1, abs_tol=1e-9)
    # Bands about to split need more points; the band's own error says so, and bounds its moments.
    error = sum(b.error for b in spectrum.bands)
    assert error < 1e-4
    top = max((abs(b.high) for b in spectrum.bands), default=0)
    for power, name in ((1, "trace"), (2, "q")):
        near = 20 * error * top**power + 1e-9
        assert math.isclose(moment(spectrum, power), solution.values[name], rel_tol=1e-8, abs_tol=near)


def test_edges_are_zeros_of_the_density():
    solution = solve(Problem(MarchenkoPastur("1/10"), alpha=3, lam="1/5", noise="1/10"))
    low, high = learned_spectrum(solution).bands
    assert low.low == 0  # the cut, where the density does not vanish
    tau, theta = solution.values["tau"], solution.values["theta"]
    nu = FreeConvolution(float_law(solution.problem.target), tau**2)
    for edge in (low.high, high.low, high.high):
        assert nu.density(np.array([edge + theta]))[0] < 1e-5
    assert high.mass == pytest.approx(0.1, abs=1e-12)  # the signal band holds the rank of the target


def test_outliers_against_sampled_matrices():
    """Positions and overlaps of S0 + tau G at d = 400, in standard errors."""
    target = PowerLaw("3/2", 400)
    solution = solve(Problem(target, alpha="1/10", lam="1/100", noise="1/10"))
    spectrum = learned_spectrum(solution)
    tau, theta = solution.values["tau"], solution.values["theta"]
    strengths = np.sort(float_law(target).values)[::-1]
    rng = np.random.default_rng(0)
    places, overlaps = [], []
    for _ in range(12):
        G = rng.normal(size=(400, 400))
        values, vectors = np.linalg.eigh(np.diag(strengths) + tau * (G + G.T) / (2 * 400) ** 0.5)
        places.append(values[::-1][:3] - theta)
        overlaps.append([vectors[k, -1 - k] ** 2 for k in range(3)])
    for samples, name in ((places, "eigenvalue"), (overlaps, "overlap")):
        mean, error = np.mean(samples, axis=0), np.std(samples, axis=0, ddof=1) / len(samples) ** 0.5
        for k in range(3):
            # The neighbours of a mode shift it by 1/d.
            assert abs(mean[k] - getattr(spectrum.outliers[k], name)) < 4 * error[k] + 2 / 400


def test_a_width_keeps_the_largest():
    target = PowerLaw("3/2", 400)
    solution = solve(Problem(target, alpha="1/10", lam="1/100", noise="1/10", width=20))
    spectrum = learned_spectrum(solution)
    kept = sum(b.mass for b in spectrum.bands) + len(spectrum.outliers) / 400
    assert math.isclose(kept, 20 / 400, rel_tol=1e-9)


def test_a_collapsed_solution_is_an_atom():
    solution = solve(Problem(MarchenkoPastur("1/2"), alpha="1/10", lam=50, noise="1/10"))
    spectrum = learned_spectrum(solution)
    assert (spectrum.atom, spectrum.bands, spectrum.outliers) == (1, (), ())


@pytest.mark.parametrize(
    "target", [MarchenkoPastur("1/2"), MarchenkoPastur(2), Atoms((0, 1, 3)), PowerLaw("3/2", 20)]
)
@pytest.mark.parametrize("of", ["S", "weights", "map"])
def test_a_recovered_target_is_the_spectrum(target, of):
    """No noise, R = 0: the law of S0 itself, to digits."""
    solution = solve(Problem(target, alpha=3, lam=0, noise=0), 30)
    assert solution.phase == "recovered"
    rough = learned_spectrum(solution)
    assert math.isclose(rough.atom + sum(b.mass for b in rough.bands), 1, abs_tol=1e-9)
    assert math.isclose(rough.atom, 1 - float(target.rank_fraction), abs_tol=1e-12)
    found = view(sharpen(rough, solution), solution, of)
    ends = sorted(float(high) for _, high in float_law(target).support if high > 0)
    power = 0.5 if of == "weights" else 1
    scale = math.sqrt(solution.problem.d or 1) if of == "weights" else 1
    mine = [float(band.high) for band in found.bands]
    assert np.allclose(mine, scale * np.array(ends) ** power)
    assert all(
        len(text.replace(".", "").lstrip("0")) >= 20 or float(text).is_integer()
        for text in (band["high"] for band in found.to_dict(30)["bands"])
    )


def test_command_line(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "spectrum.png"
    problem = ["--kappa0", "1/2", "--alpha", "1/2", "--lam", "1/5", "--noise", "1/10"]
    monkeypatch.setattr(
        "sys.argv", ["onehead", "spectrum", *problem, "--format", "json", "--plot", str(picture)]
    )
    with pytest.raises(SystemExit) as stop:
        onehead.main()
    found = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert found["bands"][0]["error"] < 1e-9
    assert picture.stat().st_size > 10_000
