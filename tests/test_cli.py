"""The command line as a user meets it."""

import csv
import json
import sys

import pytest

import onehead
from numerics.solution import KEYS
from tests.test_validate import TABLE

SOLVE = "solve --task linear --kappa0 1/2 --noise 1/10 --lam 1/5 --alpha 3/10"
POWER = (
    "solve --task linear --target power-law --gamma 5/4 --d 400 --width 20 --alpha 0.5492 "
    "--lam 0.0741 --noise 0.1 --format json"
)


@pytest.fixture
def run(monkeypatch, capsys):
    def call(line, code=0):
        monkeypatch.setattr(sys, "argv", ["onehead", *line.split()])
        with pytest.raises(SystemExit) as stop:
            onehead.main()
        captured = capsys.readouterr()
        assert stop.value.code == code, captured.err
        return captured.out if code == 0 else captured.err

    return call


def test_solve_in_json_csv_and_text(run):
    row = json.loads(run(f"{SOLVE} --format json"))
    assert set(KEYS) < set(row)
    assert row["tau"] == pytest.approx(0.794982480183, abs=1e-12)
    assert row["error_estimate"] < 1e-12
    (line,) = csv.DictReader(run(f"{SOLVE} --format csv").splitlines())
    assert float(line["q"]) == row["q"]
    assert "excess_risk" in run(SOLVE)


def test_fifty_digits_are_strings(run):
    row = json.loads(run(f"{SOLVE} --digits 50 --format json"))
    assert row["tau"] == "0.79498248018312057781467508612127320666734069486845"
    assert all(isinstance(row[key], str) for key in KEYS)


def test_power_law_of_limited_width(run):
    row = json.loads(run(POWER))
    assert row["rank_fraction"] == pytest.approx(20 / 400)
    assert row["excess_risk"] == pytest.approx(0.011689327396083648, rel=1e-12)


def test_infinite_susceptibility_is_valid_json(run):
    row = json.loads(run("solve --kappa0 1/2 --noise 1/10 --lam 0 --alpha 1/10 --format json"))
    assert row["V"] == "inf"


def test_optimal_penalty(run):
    row = json.loads(run("solve --kappa0 1/2 --noise 1/10 --lam optimal --alpha 3/10 --format json"))
    assert row["excess_risk"] == pytest.approx(0.29156, abs=1e-5)


def test_thresholds(run):
    row = json.loads(run("thresholds --kappa0 1/2 --digits 50 --format json"))
    assert row["perfect_recovery"] == "0.42217498218550571851429701369463497629283532843275"
    assert "interpolation" not in row
    row = json.loads(run("thresholds --kappa0 1/2 --noise 1/2 --alpha 1 --format json"))
    assert row["interpolation"] == pytest.approx(0.306964205718, abs=1e-12)
    assert row["collapse"] > 0


@pytest.mark.parametrize("what", ["potential", "saddle"])
@pytest.mark.parametrize("fmt", ["text", "latex", "json"])
def test_derive(run, what, fmt):
    text = run(f"derive {what} --task linear --format {fmt}")
    assert len(text) > 1000
    if fmt == "json":
        assert len(json.loads(text)) > 5


def test_curve_with_plot_and_store(run, tmp_path):
    line = (
        "curve --kappa0 1/2 --noise 1/10 --alpha 0.1:1:4 --lam 0,1/5 --penalty nuclear,frobenius "
        f"--plot {tmp_path}/c.png --output {tmp_path}/c.csv --store {tmp_path}/c.jsonl"
    )
    run(line)
    rows = list(csv.DictReader((tmp_path / "c.csv").open()))
    assert len(rows) == 16
    assert {row["penalty"] for row in rows} == {"nuclear", "frobenius"}
    assert (tmp_path / "c.png").stat().st_size > 10_000
    assert len((tmp_path / "c.jsonl").read_text().splitlines()) == 16
    run(line)
    assert list(csv.DictReader((tmp_path / "c.csv").open())) == rows


def test_decompose_along_alpha_and_lam(run, tmp_path):
    where = "decompose --target power-law --gamma 1 --d 100 --noise 1/10"
    one = json.loads(run(f"{where} --alpha 1/2 --lam 1/5 --format json"))
    assert one["total"] == pytest.approx(one["excess_risk"], rel=1e-10)
    stored = f"--plot {tmp_path}/t.png --store {tmp_path}/t.jsonl --format csv"
    line = f"{where} --alpha 0.1:1:4:log --lam 1/5,1/100 {stored}"
    rows = list(csv.DictReader(run(line).splitlines()))
    assert len(rows) == 8
    assert int(rows[3]["outliers"]) > int(rows[0]["outliers"])
    assert (tmp_path / "t.png").stat().st_size > 10_000
    assert list(csv.DictReader(run(line).splitlines())) == rows
    assert "needs two points" in run(f"{where} --alpha 1 --lam 1 --plot {tmp_path}/u.png", code=2)
    assert "room for 4" in run(f"{where} --alpha 1,2 --lam 1,2,3,4,5 --plot {tmp_path}/u.png", code=2)


def test_atoms_from_a_list_and_a_file(run, tmp_path):
    line = "solve --target atoms --noise 1/10 --lam 1/10 --alpha 1/2 --format json --eigenvalues"
    path = tmp_path / "spectrum.txt"
    path.write_text("# eigenvalue weight\n0 2\n1\n\n3, 1\n")
    listed = json.loads(run(f"{line} 0,1,3 --weights 2,1,1"))
    assert json.loads(run(f"{line} {path}"))["q"] == listed["q"]
    path.write_text("0 2\none\n")
    assert "line 2" in run(f"{line} {path}", code=2)


def test_compare(run):
    data = json.loads(run(f"compare --data {TABLE} --format json"))
    assert len(data["rows"]) == 9
    assert {"theory", "ratio", "z", "width"} < set(data["rows"][0])
    assert data["median"] < data["worst"] < 0.04


def test_validate(run):
    pytest.importorskip("torch")
    line = (
        "validate --task linear --d 16 --kappa0 1/2 --noise 0.1 --lam 0.2 --alpha 0.3 --seeds 3 "
        "--sensing gaussian --format json"
    )
    data = json.loads(run(line))
    assert [row["quantity"] for row in data["rows"]][:3] == ["q", "m", "excess_risk"]
    assert data["unconverged"] == 0
    assert 0 < data["ks_distance"] < 0.3


def test_report(run):
    titles = list(json.loads(run("report --digits 20 --format json")))
    assert any("Thresholds" in title for title in titles)
    assert any("Exponents" in title for title in titles)


BAD = [
    "solve --kappa0 0 --alpha 1 --lam 1",
    "solve --kappa0 -1/2 --alpha 1 --lam 1",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --noise -1",
    "solve --kappa0 1/2 --alpha 1 --lam -1",
    "solve --kappa0 1/2 --alpha 0 --lam 1",
    "solve --kappa0 1/2 --alpha nan --lam 1",
    "solve --kappa0 1/2 --alpha 1 --lam inf",
    "solve --kappa0 1/2 --alpha 1e999999999 --lam 1",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --digits 0",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --digits 1000000000",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --digits many",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --task cubic",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --penalty l1",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --target wishart",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --gamma 2",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --format xml",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --width 0 --d 10",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --width 11 --d 10",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --output /nowhere/at/all.json",
    "solve --target power-law --gamma 1/2 --d 10 --alpha 1 --lam 1",
    "solve --target power-law --gamma 1 --alpha 1 --lam 1",
    "solve --target power-law --gamma 1 --d 10 --cutoff 0 --alpha 1 --lam 1",
    "solve --target atoms --eigenvalues 1,-1 --alpha 1 --lam 1",
    "solve --target atoms --eigenvalues 1,2 --weights 1 --alpha 1 --lam 1",
    "solve --kappa0 1/2",
    "solve --kappa0 1/2 --alpha 1 --lam 1 --colour blue",
    "thresholds --kappa0 1/2 --alpha 1",
    "curve --kappa0 1/2 --alpha 1:2 --lam 1",
    "curve --kappa0 1/2 --alpha 1:2:3 --lam 1 --plot /nowhere/x.png",
    "curve --kappa0 1/2 --alpha 1:2:3 --lam 1 --store /nowhere/x.jsonl",
    "compare --data /nowhere.csv",
    "validate --kappa0 1/2 --alpha 1 --lam 1 --d 20 --seeds 1",
    "validate --kappa0 1/3 --alpha 1 --lam 1 --d 20",
    "validate --kappa0 1/2 --alpha 1 --lam 1 --d 20 --device quantum",
    "derive potential --task cubic",
    "divine",
]


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_sentence_and_code_2(run, line):
    error = run(line, code=2)
    assert error.startswith("onehead: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_no_convergence_is_code_1(run):
    error = run("solve --target atoms --eigenvalues 0 --noise 1 --alpha 1/4 --lam 0", code=1)
    assert "alpha = 1/4" in error
    assert "residual" in error


def test_an_unwritable_output_leaves_nothing_behind(run, tmp_path):
    target = tmp_path / "out.json"
    run(f"solve --kappa0 1/2 --alpha 1 --lam -1 --output {target}", code=2)
    assert not target.exists()


SOFTMAX = "solve --task seq2lab --tokens 2 --kappa0 1/2 --noise 1/2 --lam 1/10 --tolerance 1e-3"


def test_softmax_solve_and_axis(run):
    row = json.loads(run(f"{SOFTMAX} --alpha 1 --format json"))
    assert set(KEYS) < set(row)
    assert row["alpha_bar"] == 2
    assert 0 <= row["jump_fraction"] < 1e-3
    same = json.loads(run(f"{SOFTMAX} --alpha 2 --axis alpha_bar --format json"))
    assert same["q"] == row["q"]


def test_softmax_thresholds(run):
    line = "thresholds --task seq2lab --kappa0 1/2 --noise 1/2 --format json --tokens"
    one = json.loads(run("thresholds --kappa0 1/2 --noise 1/2 --format json"))
    three = json.loads(run(f"{line} 3"))
    for key in ("perfect_recovery", "interpolation"):
        assert three[key] == pytest.approx(one[key] / 5, rel=1e-12)
    bar = json.loads(run(f"{line} 3 --axis alpha_bar"))
    assert bar["interpolation"] == pytest.approx(one["interpolation"], rel=1e-14)
    outside = json.loads(run(f"{line} 2 --noise-at outside"))
    assert outside["interpolation"] is None
    assert "no student fits them" in outside["statement"]
    collapse = json.loads(run(f"{line} 2 --alpha 1"))["collapse"]
    assert json.loads(run(f"{SOFTMAX} --alpha 1 --format json"))["lam"] < collapse


def test_softmax_derivation_prints(run):
    text = run("derive saddle --task seq2lab --tokens 2")
    assert "E[f.z0]" in text
    assert "[[3, 1], [1, 3]]" in run("derive potential --task seq2lab --tokens 2")
    assert "T*(T + 1)/2 - 1" in run("derive potential --task seq2seq")


def test_softmax_curve_of_two_penalties(run, tmp_path):
    picture = tmp_path / "curve.png"
    line = (
        "curve --task seq2lab --tokens 2 --kappa0 1/2 --noise 1/2 --alpha 2,4 --lam optimal "
        f"--penalty nuclear,frobenius --tolerance 1e-2 --axis alpha_bar --plot {picture}"
    )
    rows = list(csv.DictReader(run(line).splitlines()))
    assert len(rows) == 4
    assert float(rows[0]["alpha_bar"]) == 2
    assert float(rows[0]["test_loss"]) < float(rows[2]["test_loss"])
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    "line",
    [
        f"{SOFTMAX} --alpha 1 --digits 30",
        f"{SOFTMAX.replace('1/10', '0')} --alpha 1",
        f"{SOFTMAX} --alpha 1 --beta -1",
        f"{SOFTMAX} --alpha 1 --noise-at sideways",
        f"{SOFTMAX.replace('--tokens 2', '--tokens 1')} --alpha 1",
        f"{SOFTMAX.replace('--tokens 2', '')} --alpha 1",
        "solve --task linear --tokens 2 --kappa0 1/2 --lam 1 --alpha 1",
        "validate --task seq2lab --tokens 2 --kappa0 1/2 --lam 1 --alpha 1 --d 20 --batch 5",
        "compare --data nowhere.csv",
    ],
)
def test_bad_softmax_input_is_one_sentence(run, line):
    message = run(line, code=2)
    assert message.count("\n") == 1
    assert "Traceback" not in message
