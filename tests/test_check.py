"""A user's equations are decided: right ones hold, wrong ones are shown, conventions are named."""

import subprocess
import sys
from pathlib import Path

import pytest
import sympy as sp

from derive import Problem, ProblemError
from derive.equivalence import CONVENTIONS, check_equations, fixed, recognise
from derive.expressions import ENGINE_NAMES, read_equation, read_expression
from derive.saddle import saddle_equations
from derive.steps import mutations
from derive.user_file import read_user_file

EXAMPLES = Path(__file__).parents[1] / "examples" / "check"
PROBLEMS = {
    "linear": Problem(),
    "frobenius": Problem(penalty="frobenius"),
    "softmax": Problem(task="seq2lab", tokens=2),
    "direct softmax": Problem(task="seq2lab", tokens=2, penalty="frobenius", noise_at="outside"),
}
LINEAR = (
    "A = 4*alpha/(1+4*V)",
    "M = A",
    "C = 8*alpha*(R+Delta/2)/(1+4*V)^2",
    "q = Int(pos(x-lam)^2)/A^2",
    "V = Pair(pos(x-lam))/(2*A)",
    "M*m = Int(x*pos(x-lam))/A - 2*C*V",
)


def _read(*texts):
    return [read_equation(text, ENGINE_NAMES) for text in texts]


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_engine_agrees_with_itself(name):
    problem = PROBLEMS[name]
    own = list(saddle_equations(problem.channel, problem.penalty).items())
    if "softmax" in name:
        own = own[:3]  # the averages of the channel have names of their own in a user's file
    found = check_equations(problem, own)
    assert all(one.holds and one.how == "symbolically" for one in found)
    assert fixed(problem, own) == len(own)


@pytest.mark.parametrize("index", range(len(LINEAR)))
def test_a_wrong_coefficient_is_seen(index):
    ((left, right),) = _read(LINEAR[index])
    for changed in mutations(right):
        try:
            (one,) = check_equations(Problem(), [(left, changed)])
        except ProblemError:
            continue
        assert not one.holds, changed
        assert one.yours is not None
        assert one.ours is not None


def test_numbers_decide_where_symbols_do_not():
    root = "sqrt(1 + 4*V)"
    right, wrong = (f"log(A) = log(4*alpha) - {k}*log({root})" for k in (2, 3))
    one, other = check_equations(Problem(), _read(right, wrong))
    assert one.holds
    assert not other.holds
    assert (other.how, other.ratio) == ("numerically", None)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=lambda c: c.name)
def test_conventions_are_recognised(convention):
    """The engine's equations in the letters of the convention, by the inverse substitution."""
    x = sp.Dummy()
    inverse = {v: v * sp.solve(sp.Eq(x, e), v)[0].subs(x, v) / v for v, e in convention.letters.items()}
    own = {k: v for k, v in saddle_equations(Problem().channel, "frobenius").items() if str(k) != "m"}
    letters = [
        (k.subs(inverse, simultaneous=True), v.subs(inverse, simultaneous=True)) for k, v in own.items()
    ]
    assert recognise(Problem(penalty="frobenius"), letters) == (convention,)


def test_pairs_of_conventions():
    equations = _read("A = 4*alpha/(1 + 2*V)", "V = Pair(pos(x - sqrt(kappa)*lam))/A")
    assert {c.name[:5] for c in recognise(Problem(), equations)} == {"V is ", "lam i"}
    assert recognise(Problem(), _read("A = 5*alpha/(1 + 2*V)")) is None


def test_too_few_equations_are_counted():
    assert fixed(Problem(), _read(*LINEAR)) == 6
    assert fixed(Problem(), _read(*LINEAR[:3], "A + M = 2*M")) == 3


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("mine", 0, "equivalent"),
        ("halved_loss", 0, "the loss is halved"),
        ("wrong", 1, "E[f.f]*alpha/2"),
    ],
)
def test_the_examples(name, code, words):
    command = [sys.executable, "-m", "onehead", "check", str(EXAMPLES / f"{name}.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert words in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "q.real",
        "[q]",
        "lambda: 1",
        "q +",
        "Q7",
        "Int(q, m)",
        "q**10000",
        "pos(lam - x)",
    ],
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ProblemError):
        read_expression(text, ENGINE_NAMES)


@pytest.mark.parametrize(
    "text",
    ["", "equations = []", 'equations = ["q"]', "[problem", 'equations = ["q = q"]\nextra = 1'],
)
def test_what_is_no_file_is_refused(text, tmp_path):
    path = tmp_path / "file.toml"
    path.write_text(text)
    with pytest.raises(ProblemError):
        read_user_file(path)
