"""Message passing is the state evolution is the saddle point, and no check of a step is idle."""

import shutil
import statistics
import subprocess
from dataclasses import replace

import pytest
import sympy as sp

from derive import Atoms, Problem, ProblemError
from derive.amp import amp_steps, fixed_point
from derive.saddle import saddle_equations
from derive.steps import mutations, render
from numerics import solve
from numerics.message_passing import iterates
from validate.compare import standardise

PROBLEMS = {
    "linear": Problem(),
    "frobenius": Problem(penalty="frobenius"),
    "seq2lab": Problem(task="seq2lab", tokens=2),
    "outside": Problem(task="seq2seq", noise_at="outside"),
}
# Steps whose content depends on the task or the penalty.
OWN = {"output side of the state evolution", "fixed points are saddle points"}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_fixed_points_are_the_saddle_points(name):
    problem = PROBLEMS[name]
    own = saddle_equations(problem.channel, problem.penalty)
    found = fixed_point(problem)
    assert set(found) == set(own)
    for symbol, value in found.items():
        assert sp.simplify(sp.expand(value - own[symbol])) == 0, symbol


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_step_holds(name):
    for step in amp_steps(PROBLEMS[name]):
        assert step.verify(), step.name


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_step_holds_with_a_wrong_coefficient(name):
    for step in amp_steps(PROBLEMS[name]):
        if name != "linear" and step.name not in OWN:
            continue  # the same step as that of the linear task
        # The last step ends in zeros: its equations stand in the premise.
        side = "definition" if step.name == "fixed points are saddle points" else "result"
        for changed in mutations(getattr(step, side)):
            assert not replace(step, **{side: changed}).verify(), (step.name, changed)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a TeX engine")
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_document_compiles(name, tmp_path):
    (tmp_path / "chain.tex").write_text(render(amp_steps(PROBLEMS[name]), "latex"))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "chain.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


# --- run on data ----------------------------------------------------------------------------------

PROBLEM = Problem(Atoms((0, 2)), alpha="3/10", lam="1/5", noise="1/10")
SOFTMAX = replace(PROBLEM, alpha="1/2", lam="1/10", task="seq2lab", tokens=2)


@pytest.mark.parametrize("penalty", ["nuclear", "frobenius"])
def test_state_evolution_settles_on_the_saddle_point(penalty):
    problem = replace(PROBLEM, penalty=penalty)
    *_, last = iterates(problem, 80)
    values = solve(problem).values
    for name in ("q", "m", "V", "A", "M", "C", "excess_risk", "trace"):
        assert last[name] == pytest.approx(float(values[name]), rel=1e-9), name


@pytest.mark.parametrize("penalty", ["nuclear", "frobenius"])
def test_iterates_follow_the_state_evolution(penalty):
    """Within four standard errors at d = 80, iteration by iteration."""
    pytest.importorskip("torch")
    from validate.amp import message_passing

    problem = replace(PROBLEM, penalty=penalty)
    names = ("q", "m", "excess_risk", "trace")
    if penalty == "nuclear":
        names += ("V",)  # without a threshold it does not fluctuate
    runs = [message_passing(problem, 80, seed, 6) for seed in range(12)]
    for t, theory in enumerate(iterates(problem, 6)):
        for row in standardise(theory, [run[t] for run in runs], names):
            assert abs(row.z) < 4, (t, row)


@pytest.mark.parametrize("noise_at", ["inside", "outside"])
def test_state_evolution_of_softmax_settles_on_the_saddle_point(noise_at):
    problem = replace(SOFTMAX, noise_at=noise_at)
    *_, last = iterates(problem, 25)
    solution = solve(problem, tolerance=1e-4)
    for name in ("q", "m", "V", "A", "M", "C", "excess_risk", "trace"):
        bound = 5 * (last["error"] + solution.error_estimate)
        assert last[name] == pytest.approx(float(solution.values[name]), rel=bound), name


@pytest.mark.parametrize("noise_at", ["inside", "outside"])
def test_iterates_of_softmax_follow_the_state_evolution(noise_at):
    """Within four standard errors at d = 60, iteration by iteration."""
    pytest.importorskip("torch")
    from validate.amp import message_passing

    problem = replace(SOFTMAX, noise_at=noise_at)
    runs = [message_passing(problem, 60, seed, 6) for seed in range(10)]
    for t, theory in enumerate(iterates(problem, 6)):
        names = ("q", "m", "excess_risk", "trace", "V")
        for row in standardise(theory, [run[t] for run in runs], names):
            assert abs(row.z) < 4, (t, row)


@pytest.mark.parametrize("problem", [PROBLEM, replace(PROBLEM, penalty="frobenius"), SOFTMAX])
def test_the_fixed_point_is_the_trained_matrix(problem):
    """At every d, since A drops out of B = A S + gradient at a fixed point."""
    pytest.importorskip("torch")
    from validate.amp import message_passing
    from validate.train import train

    run = message_passing(problem, 30, 5, 200)
    trained = train(problem, 30, 5, sensing="gaussian")
    for name in ("q", "m", "excess_risk", "trace"):
        assert run[-1][name] == pytest.approx(trained.measured[name], abs=1e-4), name


def test_the_divergence_is_that_of_the_denoiser():
    """Against random directions G: E Tr G DF[G]/d = 2 V for G of the semicircle law."""
    torch = pytest.importorskip("torch")
    from validate.amp import denoise

    d, generator, step = 60, torch.Generator().manual_seed(0), 1e-6
    raw = torch.randn(201, d, d, generator=generator, dtype=torch.float64)
    B, *directions = (raw + raw.transpose(1, 2)) / (2 * d) ** 0.5
    F, V = denoise(B, 0.7, 0.3, "nuclear")
    found = [
        float((G * (denoise(B + step * G, 0.7, 0.3, "nuclear")[0] - F)).sum()) / step / d / 2
        for G in directions
    ]
    error = statistics.stdev(found) / len(found) ** 0.5
    # The diagonal pairs, which the limit drops, are 1/d of all.
    assert abs(statistics.fmean(found) - V) < 4 * error + 1 / (0.7 * d)


@pytest.mark.parametrize(
    "problem",
    [
        replace(PROBLEM, lam=0),
        replace(PROBLEM, d=10, width=5),
        replace(PROBLEM, task="seq2lab", tokens=None),
    ],
)
def test_what_it_is_not_written_for_is_refused(problem):
    with pytest.raises(ProblemError, match=r"message passing|number of tokens"):
        next(iterates(problem, 1))
