"""Message passing is the state evolution is the saddle point, and no check of a step is idle."""

import shutil
import subprocess
from dataclasses import replace

import pytest
import sympy as sp

from derive import Problem
from derive.amp import amp_steps, fixed_point
from derive.saddle import saddle_equations
from derive.steps import mutations, render

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
