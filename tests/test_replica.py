"""The replica route arrives at the potential, every step can be checked alone, and no check is idle."""

import shutil
import subprocess
from dataclasses import replace

import pytest
import sympy as sp

from derive import Problem
from derive.potential import potential
from derive.replica import replica_potential, replica_steps
from derive.replica_notation import OVERLAPS, n_r
from derive.replica_symmetric import overlap_determinant, overlap_inverse, overlap_matrix
from derive.steps import mutations, render

PROBLEMS = {
    "linear": Problem(),
    "frobenius": Problem(penalty="frobenius"),
    "seq2lab": Problem(task="seq2lab", tokens=2),
    "outside": Problem(task="seq2seq", noise_at="outside"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_route_arrives_at_the_potential(name):
    assert sp.expand(replica_potential(PROBLEMS[name]) - potential(PROBLEMS[name])) == 0


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_step_holds(name):
    for step in replica_steps(PROBLEMS[name]):
        assert step.verify(), step.name


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_step_holds_with_a_wrong_coefficient(name):
    shared = {step.name for step in replica_steps(PROBLEMS["linear"])} if name != "linear" else set()
    own = {"averaged Moreau envelope", "spectral integral", "potential"}
    for step in replica_steps(PROBLEMS[name]):
        if step.name in shared - own:
            continue  # the same step as that of the linear task
        wrong = mutations(step.result)
        assert wrong, step.name
        for changed in wrong:
            assert not replace(step, result=changed).verify(), (step.name, changed)


@pytest.mark.parametrize("name", ["covariance of the pre-activations", "Gaussian equivalence"])
def test_a_wrong_premise_is_seen_too(name):
    (step,) = (step for step in replica_steps(Problem()) if step.name == name)
    for changed in mutations(step.definition):
        assert not replace(step, definition=changed).verify(), changed


def test_the_algebra_of_replicas_is_that_of_explicit_matrices():
    numbers = (sp.Rational(7, 3), sp.Rational(1, 2), sp.Rational(9, 4), sp.Rational(2, 5))
    at = dict(zip(OVERLAPS, numbers, strict=True))
    for replicas in (1, 2, 3, 6):
        explicit = overlap_matrix(replicas, numbers)
        assert explicit.det() == overlap_determinant().subs(n_r, replicas).subs(at)
        entries = tuple(entry.subs(n_r, replicas).subs(at) for entry in overlap_inverse())
        assert explicit.inv() == overlap_matrix(replicas, entries)


def test_a_step_without_a_check_says_so():
    step = replace(replica_steps(Problem())[0], check=None)
    with pytest.raises(ValueError, match="no check"):
        step.verify()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a TeX engine")
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_document_compiles(name, tmp_path):
    (tmp_path / "chain.tex").write_text(render(replica_steps(PROBLEMS[name]), "latex"))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "chain.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
