"""Trained networks against theory, in standard errors; published rows; broken tables."""

from pathlib import Path

import numpy as np
import pytest

from derive import Atoms, MarchenkoPastur, PowerLaw, Problem, ProblemError
from numerics import solve
from numerics.spectrum import learned_spectrum
from validate.compare import compare_row, read_table, standardise, summarise

torch = pytest.importorskip("torch")

from validate.data import draw_sample, draw_target  # noqa: E402
from validate.simulate import simulate  # noqa: E402
from validate.spectrum import compare_spectrum  # noqa: E402
from validate.train import train  # noqa: E402

TABLE = Path(__file__).parent / "reference" / "width_quadratic.csv"
PROBLEM = Problem(MarchenkoPastur("1/2"), alpha="3/10", lam="1/5", noise="1/10")


@pytest.mark.parametrize("sensing", ["tokens", "gaussian"])
def test_fields_have_the_variance_of_the_model(sensing):
    """E h^2 = 2 Tr S^2/d and E h = 0, so the label variance is 2 Q0 + Delta."""
    generator = torch.Generator().manual_seed(0)
    S0 = draw_target(PROBLEM, 20, generator)
    data = draw_sample(PROBLEM.at(noise="3/10"), S0, 40_000, sensing, generator)
    expected = 2 * float(S0.square().sum() / 20) + 0.3
    h = data.matrix_field(S0)
    assert abs(float(h.mean())) < 4 * float(h.std()) / 200
    spread = float((data.labels**2).std()) / 200
    assert abs(float((data.labels**2).mean()) - expected) < 4 * spread


@pytest.mark.parametrize("sensing", ["tokens", "gaussian"])
def test_factor_field_is_the_matrix_field(sensing):
    generator = torch.Generator().manual_seed(1)
    S0 = draw_target(PROBLEM, 10, generator)
    data = draw_sample(PROBLEM, S0, 30, sensing, generator)
    W = torch.randn(10, 4, generator=generator, dtype=torch.float64)
    direct = data.matrix_field(W @ W.T / 40**0.5)
    assert torch.allclose(data.factor_field(W), direct, atol=1e-12)


def test_targets_are_realised():
    generator = torch.Generator().manual_seed(2)
    S0 = draw_target(Problem(PowerLaw("5/4", 12), alpha=1, lam=1, noise=0), 12, generator)
    assert float(S0.square().sum() / 12) == pytest.approx(1, abs=1e-12)
    S0 = draw_target(Problem(Atoms((0, 2), (3, 1)), alpha=1, lam=1, noise=0), 8, generator)
    assert sorted(torch.diagonal(S0).tolist()) == [0] * 6 + [2] * 2
    for target, d in ((MarchenkoPastur("1/3"), 10), (Atoms((0, 2), (3, 1)), 6), (PowerLaw(1, 9), 8)):
        with pytest.raises(ProblemError):
            draw_target(Problem(target, alpha=1, lam=1, noise=0), d, generator)


def test_gaussian_sensing_agrees_with_theory():
    """Every quantity within four standard errors at d = 40; the spectrum in distance and rank."""
    theory = solve(PROBLEM)
    runs = list(simulate(PROBLEM, 40, 20, sensing="gaussian"))
    assert all(run["converged"] for run in runs)
    for row in standardise(theory.values, [run["measured"] for run in runs]):
        assert abs(row.z) < 4, row
    match = compare_spectrum(theory, [tuple(run["spectrum"]) for run in runs])
    assert match.ks < 0.05
    assert match.rank_simulated == pytest.approx(match.rank_theory, abs=0.03)


def test_direct_training_agrees_with_theory():
    problem = PROBLEM.at(penalty="frobenius")
    theory = solve(problem)
    runs = list(simulate(problem, 40, 12, sensing="gaussian"))
    for row in standardise(theory.values, [run["measured"] for run in runs]):
        assert abs(row.z) < 4, row
    assert compare_spectrum(theory, [tuple(run["spectrum"]) for run in runs]).ks < 0.04


def test_width_limited_training_agrees_with_theory():
    problem = Problem(PowerLaw("5/4", 40), alpha=1, lam="1/5", noise="1/10", width=4)
    runs = list(simulate(problem, 40, 10, sensing="gaussian"))
    rows = standardise(solve(problem).values, [run["measured"] for run in runs])
    for row in rows:
        assert abs(row.z) < 4, row


def test_adam_reaches_the_minimum_of_lbfgs():
    one = train(PROBLEM, 20, 3, optimizer="lbfgs", sensing="gaussian")
    other = train(PROBLEM, 20, 3, optimizer="adam", sensing="gaussian")
    for key, value in one.measured.items():
        assert other.measured[key] == pytest.approx(value, rel=2e-3), key


def test_seeds_are_reproducible():
    assert train(PROBLEM, 16, 5).measured == train(PROBLEM, 16, 5).measured
    assert train(PROBLEM, 16, 5).measured != train(PROBLEM, 16, 6).measured


def test_simulate_refuses_bad_input():
    bad = ({"optimizer": "sgd"}, {"sensing": "photons"}, {"device": "tpu9"}, {"seeds": 1}, {"d": 1})
    for options in bad:
        arguments = {"d": 20, "seeds": 2} | options
        with pytest.raises(ProblemError):
            simulate(PROBLEM, arguments.pop("d"), arguments.pop("seeds"), **arguments)


@pytest.mark.slow
def test_real_tokens_approach_theory_as_d_grows():
    """The gap at d = 60 shrinks at d = 160 (THEORY.md "Checked": h is not yet Gaussian)."""
    theory = solve(PROBLEM)
    gaps = []
    for d, seeds in ((60, 24), (160, 8)):
        runs = [run["measured"] for run in simulate(PROBLEM, d, seeds)]
        train_loss = standardise(theory.values, runs)[3]
        gaps.append(train_loss.simulation / train_loss.theory - 1)
    assert 0 < gaps[1] < gaps[0] / 2


def test_published_rows():
    """THEORY.md "Checked": within 4 % everywhere, 1 % in the median."""
    summary = summarise([compare_row(row) for row in read_table(TABLE)])
    assert set(summary["rows"][0]) >= {"theory", "ratio", "z", "mse_mean"}
    assert summary["worst"] < 0.04
    assert summary["median"] < 0.011


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("mse_std", "sigma", 1), "lacks the column 'mse_std'"),
        (lambda text: text.replace("87884", "many", 1), "line 5: n must be"),
        (lambda text: text.replace(",800.0,", ",8.5,", 1), "line 2: width must be a whole number"),
        (lambda text: text.replace(",1.25,", ",0.5,", 1), "line 2: gamma must exceed 1/2"),
        (lambda text: text.replace(",0.1,", ",-0.1,", 1), "line 2: noise must not be negative"),
        (lambda text: text.splitlines()[0], "has no rows"),
        (lambda text: text + "1,2,3\n", "line 11: noise must be"),
        (lambda text: text + "1,2,3,4,5,6,7,8,9\n", "line 11: too many fields"),
    ],
)
def test_broken_tables_name_the_line(tmp_path, change, message):
    path = tmp_path / "table.csv"
    path.write_text(change(TABLE.read_text()))
    with pytest.raises(ProblemError, match=message):
        read_table(path)


def test_one_seed_has_no_standard_error():
    with pytest.raises(ProblemError, match="two seeds"):
        standardise({}, [{}])


# --- softmax attention ----------------------------------------------------------------------------

SOFTMAX = Problem(
    MarchenkoPastur("1/2"), alpha="1/2", lam="1/10", noise="1/10", task="seq2lab", tokens=2
)


@pytest.mark.parametrize(
    ("changes", "sensing"),
    [
        ({"task": "linear", "tokens": None}, "tokens"),
        ({}, "tokens"),
        ({"tokens": 3}, "gaussian"),
        ({"task": "seq2seq", "noise_at": "outside"}, "tokens"),
    ],
)
def test_written_out_gradients(changes, sensing):
    """Both gradients against automatic differentiation of the fields' formulas."""
    problem, generator = SOFTMAX.at(**changes), torch.Generator().manual_seed(4)
    S0 = draw_target(problem, 8, generator)
    data = draw_sample(problem, S0, 20, sensing, generator)
    W = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    D = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    step = 1e-6
    for gradient, at, along in (
        (data.factor_gradient, W, D),
        (data.matrix_gradient, W @ W.T, D @ D.T),
    ):
        slope = (gradient(at + step * along)[0] - gradient(at - step * along)[0]) / (2 * step)
        assert float(slope) == pytest.approx(float((gradient(at)[1] * along).sum()), rel=1e-6)


@pytest.mark.parametrize("sensing", ["tokens", "gaussian"])
def test_preactivations_have_the_covariance_of_the_model(sensing):
    """E h_ab h_cd = (delta_ac delta_bd + delta_ad delta_bc) Tr S^2/d."""
    generator = torch.Generator().manual_seed(5)
    S0 = draw_target(SOFTMAX, 20, generator)
    h = draw_sample(SOFTMAX, S0, 20_000, sensing, generator).matrix_field(S0)
    flat = torch.stack([h[:, 0, 0], h[:, 0, 1], h[:, 1, 1]], 1) / (S0.square().sum() / 20).sqrt()
    covariance = flat.T @ flat / len(flat)
    assert torch.allclose(covariance, torch.diag(torch.tensor([2.0, 1.0, 2.0]).double()), atol=0.12)


@pytest.mark.parametrize("changes", [{}, {"noise_at": "outside"}, {"penalty": "frobenius"}])
def test_softmax_training_agrees_with_theory(changes):
    """Gaussian sensing at d = 40, every quantity within four standard errors."""
    problem = SOFTMAX.at(**changes)
    theory = solve(problem, tolerance=1e-3)
    runs = list(simulate(problem, 40, 10, sensing="gaussian"))
    for row in standardise(theory.values, [run["measured"] for run in runs]):
        assert abs(row.z) < 4, row
    assert compare_spectrum(theory, [tuple(run["spectrum"]) for run in runs]).ks < 0.05


def test_sequence_outputs_train_like_labels():
    """seq2seq with real tokens: the loss through X X'/d tends to that of seq2lab."""
    theory = solve(SOFTMAX, tolerance=1e-3)
    runs = list(simulate(SOFTMAX.at(task="seq2seq"), 60, 4))
    for row in standardise(theory.values, [run["measured"] for run in runs]):
        assert row.simulation == pytest.approx(row.theory, rel=0.15), row


def test_adam_batches_and_lbfgs_reach_one_minimum():
    """Random start, L-BFGS and Adam (full batch, mini-batches) agree: the global minimum is one."""
    one = train(SOFTMAX, 20, 3, sensing="gaussian")
    full = train(SOFTMAX, 20, 3, optimizer="adam", sensing="gaussian")
    batches = train(SOFTMAX, 20, 3, optimizer="adam", sensing="gaussian", batch=100)
    for key, value in one.measured.items():
        assert full.measured[key] == pytest.approx(value, rel=2e-3), key
        assert batches.measured[key] == pytest.approx(value, rel=2e-2), key


PUBLISHED = Path(__file__).parent / "reference" / "SE_kappa_0.5_lreg_0.01_noise_0.5.csv"


def test_published_state_evolution():
    """Rows of the authors' SE at T = 2 (Monte Carlo, 1-3 %), every letter."""
    from validate.published import compare_published, is_published, read_published

    assert is_published(PUBLISHED)
    assert not is_published(TABLE)
    rows = read_published(PUBLISHED, {})
    assert {str(row.problem.lam) for row in rows} == {"1/100"}
    lines = [line for found in compare_published(rows, 1e-3, lambda _, f: f()) for line in found]
    assert {line["quantity"] for line in lines} == {"q", "m", "V", "A", "M", "C", "test_loss", "energy"}
    assert summarise(lines)["worst"] < 0.03
    assert summarise(lines)["median"] < 0.006


def test_broken_published_files_name_the_line(tmp_path):
    from validate.published import read_published

    path = tmp_path / "SE_kappa_0.5_lreg_0.01_noise_0.5.csv"
    lines = PUBLISHED.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace(lines[1].split(",")[0], "many", 1)]))
    with pytest.raises(ProblemError, match="line 2: alpha must be a number"):
        read_published(path, {})
    path.write_text("\n".join([lines[0], "0.5,1,2"]))
    with pytest.raises(ProblemError, match="line 2: fields are missing"):
        read_published(path, {})
    unnamed = tmp_path / "table.csv"
    unnamed.write_text("\n".join(lines[:3]))
    with pytest.raises(ProblemError, match="state it"):
        read_published(unnamed, {})


# --- learned spectra ------------------------------------------------------------------------------

REFERENCE = PUBLISHED.parent
NAMED = "kappa_0.5_lreg_0.01_noise_0.5.csv"


def test_published_spectrum():
    """Every sixteenth eigenvalue of the authors' networks (Adam, which leaves small ones behind)."""
    from validate.published_spectrum import is_published_spectrum, read_spectrum, spectrum_rows

    path = REFERENCE / f"spectrum_alpha_0.5_{NAMED}"
    assert is_published_spectrum(path)
    assert not is_published_spectrum(PUBLISHED)
    problem, eigenvalues = read_spectrum(path, {})
    assert (str(problem.alpha), str(problem.lam), problem.task) == ("1/2", "1/100", "seq2lab")
    rows = {row["quantity"]: row for row in spectrum_rows(solve(problem, tolerance=1e-3), eigenvalues)}
    assert rows["trace"]["ratio"] == pytest.approx(1, abs=0.002)
    for name, near in (("q", 0.01), ("rank_fraction", 0.02), ("largest eigenvalue", 0.03)):
        assert rows[name]["ratio"] == pytest.approx(1, abs=near), name
    assert rows["KS distance"]["published"] < 0.025
    # Another alpha is told apart.
    other = spectrum_rows(solve(problem.at(alpha="1/5"), tolerance=1e-3), eigenvalues)
    assert next(r for r in other if r["quantity"] == "KS distance")["published"] > 0.05


@pytest.mark.parametrize(
    ("name", "quantities", "worst"),
    [
        (f"theory_spectra_{NAMED}", {"q", "m", "V", "A", "M", "C", "excess_risk"}, 0.02),
        (f"rank_{NAMED}", {"rank_fraction"}, 0.001),
    ],
)
def test_published_parameters_of_the_spectra(name, quantities, worst):
    from validate.published import compare_published, read_published

    rows = read_published(REFERENCE / name, {})
    lines = [line for found in compare_published(rows, 1e-3, lambda _, f: f()) for line in found]
    assert {line["quantity"] for line in lines} == quantities
    assert summarise(lines)["worst"] < worst
    assert all(line["deviation"] is None for line in lines)  # too few rows for a roughness


def test_broken_spectra(tmp_path):
    from validate.published_spectrum import read_spectrum

    stated = {"alpha": "1", "kappa0": "1/2", "lam": "1/10", "noise": "0"}
    path = tmp_path / "eigenvalues.csv"
    for content, words in (("1.0\nx", "line 3"), ("-1\n2", "line 2"), ("nan\n2", "line 2"), ("1", "no")):
        path.write_text("eigenvalue\n" + content + "\n")
        with pytest.raises(ProblemError, match=words):
            read_spectrum(path, stated)
    with pytest.raises(ProblemError, match="alpha is not in the file's name"):
        read_spectrum(path, stated | {"alpha": None})


def test_trained_networks_with_more_outliers_err_less():
    """Power-law target at d = 40: eigenvalues above the predicted edge of the noise, and the error."""
    counts, predicted, errors = [], [], []
    for alpha in ("1/20", "1/5", "1/2"):
        problem = Problem(PowerLaw("3/2", 40), alpha, lam="1/20", noise="1/10")
        runs = list(simulate(problem, 40, 3, sensing="gaussian"))
        spectrum = learned_spectrum(solve(problem), 2)
        (noise,) = spectrum.bands
        above = [(np.array(run["spectrum"]) > noise.high).sum() for run in runs]
        counts.append(np.mean(above))
        predicted.append(sum(one.eigenvalue > noise.high for one in spectrum.outliers))
        errors.append(np.mean([run["measured"]["excess_risk"] for run in runs]))
    assert counts[0] < counts[1] < counts[2]
    assert errors[0] > errors[1] > errors[2]
    assert np.allclose(counts, predicted, atol=1)
