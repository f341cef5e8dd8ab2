import json

import pytest
import sympy as sp

from derive import MarchenkoPastur, Problem, ProblemError, exact
from numerics import sweep
from numerics.sweep import Ledger, curve, grid

PROBLEM = Problem(MarchenkoPastur("1/2"), alpha=1, lam=1, noise="1/10")


def test_grids_are_exact():
    assert grid("1/3", "alpha") == [sp.Rational(1, 3)]
    assert grid("0.1,0.2", "alpha") == [sp.Rational(1, 10), sp.Rational(1, 5)]
    assert grid("0:1:3", "alpha") == [0, sp.Rational(1, 2), 1]
    ends = grid("0.01:100:5:log", "alpha")
    assert (ends[0], ends[-1]) == (sp.Rational(1, 100), 100)
    assert ends[2] == 1


@pytest.mark.parametrize("bad", ["1:2", "1:2:x", "1:2:1", "0:1:5:log", "1:2:3:lin", "a", "1:2:10000000"])
def test_bad_grids(bad):
    with pytest.raises(ProblemError, match="alpha"):
        grid(bad, "alpha")


def test_a_curve_resumes_without_solving_again(tmp_path, monkeypatch):
    store = tmp_path / "curve.jsonl"
    alphas = [exact("1/3"), exact("2/3"), exact(1)]
    first = list(curve(PROBLEM, alphas[:2], [exact("1/5")], ledger=Ledger(store)))
    with store.open("a") as file:
        file.write('{"key": "cut sho')  # an interrupted write
    solved = []
    original = sweep.solve
    monkeypatch.setattr(sweep, "solve", lambda *a: solved.append(a) or original(*a))
    again = list(curve(PROBLEM, alphas, [exact("1/5")], ledger=Ledger(store)))
    assert again[:2] == first
    assert len(solved) == 1
    assert len(store.read_text().splitlines()) == 3


def test_an_interrupted_curve_keeps_what_it_has(tmp_path):
    store = tmp_path / "curve.jsonl"
    points = curve(PROBLEM, [exact("1/3"), exact("2/3")], [exact("1/5")], ledger=Ledger(store))
    next(points)
    points.close()
    assert len(Ledger(store).rows) == 1


def test_a_foreign_file_is_not_taken_for_a_store(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\nworld\n")
    with pytest.raises(ProblemError, match="line 1"):
        Ledger(path)
    with pytest.raises(ProblemError, match="store"):
        Ledger(tmp_path / "missing" / "x")
    assert path.read_text() == "hello\nworld\n"


def test_failures_are_rows(monkeypatch):
    from numerics import NotConverged

    def refuse(problem, *rest):
        raise NotConverged(problem, 1.0, "try harder")

    monkeypatch.setattr(sweep, "solve", refuse)
    rows = list(curve(PROBLEM, [exact(1)], [exact(1)]))
    assert "try harder" in rows[0]["failure"]
    json.dumps(rows)
