"""Exponents measured: merged tails, the contour at large d, the LASSO, confirmation, emergence."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

import onehead
from derive import Atoms, PowerLaw, Problem, ProblemError
from derive.balance import linear_balance
from derive.lasso import lasso_balance
from derive.linearised import small_error, softmax_balance
from derive.prefactors import laws
from derive.scaling import regimes
from derive.symbols import Delta
from derive.variants import best
from numerics import solve
from numerics.confirm import confirm, deep_point, extrapolate, limit_with_error
from numerics.convolution import FreeConvolution
from numerics.emergence import emergence, staircase
from numerics.lasso import Lasso
from numerics.laws import AtomicLaw, float_law, target_atoms
from numerics.nodes import lattice
from numerics.precision import context
from numerics.tail import gram_rule, merged_indices
from numerics.two_sided import TwoSidedSolver
from validate.compare import read_table
from validate.exponents import exponent_records, measurements, regime_table

R = sp.Rational


def named(table, name):
    return next(regime for regime in table if regime.name == name)


# --- merged tails -------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "order"), [(11, 5), (1000, 10), (10**8, 10)])
def test_gram_rule_is_exact_for_polynomials(length, order):
    nodes, weights = gram_rule(length, order)
    for power in (0, 1, 3, 2 * order - 1):
        exact = sp.summation(sp.Symbol("i") ** power, (sp.Symbol("i"), 0, length - 1))
        assert math.isclose(weights @ (nodes / length) ** power, exact / length**power, rel_tol=1e-12)


@pytest.mark.parametrize("gamma", [0.6, 1.0, 2.0])
def test_merged_sums_against_the_zeta_function(gamma):
    import mpmath

    indices, counts = merged_indices(10**7)
    assert len(indices) < 3000
    ctx = context(30)
    exact = ctx.zeta(2 * gamma) - ctx.zeta(2 * gamma, 10**7 + 1)
    assert isinstance(exact, mpmath.ctx_mp_python._mpf)
    assert math.isclose(counts @ indices ** (-2 * gamma), float(exact), rel_tol=1e-14)


def test_a_merged_solve_agrees_with_all_modes_kept(monkeypatch):
    target = PowerLaw(1, 20_000)
    problem = Problem(target, alpha="1/200", lam="1/1000000", noise="1/10")
    merged = solve(problem)
    values, weights = target_atoms(target, context(20))
    law = AtomicLaw(np.array(values, dtype=float), np.array(weights, dtype=float))
    assert len(float_law(target).values) < len(values) / 5
    monkeypatch.setattr("numerics.float_solver.float_law", lambda *args, **kwargs: law)
    kept = solve(problem)
    for key in ("excess_risk", "tau", "theta", "train_loss"):
        assert math.isclose(merged.values[key], kept.values[key], rel_tol=1e-9), key


def test_a_cut_between_merged_modes_is_not_passed_off_as_exact():
    """tau far below the spacing of modes beyond the first thousands."""
    coarse = Problem(PowerLaw(1, 100_000), alpha=10, lam="1/2", noise=0)
    assert solve(coarse).error_estimate > 1e-6


def test_contour_keeps_its_digits_when_the_largest_mode_is_far():
    law = float_law(PowerLaw(1, 10**9))
    tau2 = 1e4
    cuts = [FreeConvolution(law, tau2, order).cut(1.98 * tau2**0.5) for order in (16, 24)]
    for name in ("mass", "I1", "I2", "psi"):
        assert math.isclose(getattr(cuts[0], name), getattr(cuts[1], name), rel_tol=1e-11), name


def test_split_contour_against_a_pure_bulk():
    """All atoms at zero: what the atoms change vanishes."""
    law = AtomicLaw(np.array([0.0]), np.array([1.0]))
    found = FreeConvolution(law, 1.0, 16).cut(1.0)
    assert math.isclose(found.mass, 1 / 3 - math.sqrt(3) / (4 * math.pi), rel_tol=1e-13)
    value, slope = law.excess(np.array([0.3 + 1j, -2 + 0.1j]))
    assert not value.any()
    assert not slope.any()


# --- extrapolation --------------------------------------------------------------------------------


def test_epsilon_and_rho_find_limits():
    geometric = [2 + 3 * 0.5**k - 0.7**k for k in range(8)]
    assert math.isclose(extrapolate(geometric), 2, abs_tol=1e-9)
    logs = list(np.log(10.0) * np.arange(4, 12))
    rational = [(2 * x + 1) / (x + 5) for x in logs]
    assert math.isclose(extrapolate(rational, logs), 2, abs_tol=1e-9)
    value, error = limit_with_error([1 + 1 / (k + 1) ** 2 for k in range(9)])
    assert 0 < abs(value - 1) < 5 * error


# --- the table, measured ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data-limited", R(3, 4)),
        ("over-regularised", R(2)),
        ("half the bulk passes", R(3, 2)),
        ("every mode resolved", R(3, 2)),
        ("interpolating bulk", R(3, 2)),
        ("noise-limited", R(1)),
    ],
)
def test_measured_slopes_confirm_the_table(name, value):
    table = [b.regime for b in best()] if name == "noise-limited" else regimes()
    (found,) = confirm([named(table, name)], [value])
    assert abs(found.measured - found.derived) < 0.01 * abs(found.derived)
    assert abs(found.measured - found.derived) < max(10 * found.error, 2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("value", ["3/5", "3/4", "1", "3/2", "2"])
@pytest.mark.parametrize("task", ["linear", "lasso"])
def test_every_exponent_is_confirmed_to_a_hundredth(task, value):
    table, _ = regime_table(task, "nuclear", "free", narrow=False, noise_free=False)
    for _, compute in measurements(table, [R(value)], task):
        row = compute()
        # Logarithms leave the LASSO's edge to two hundredths.
        assert row["off_percent"] < (1 if task == "linear" else 2), row


def test_interpolating_law_with_its_constant_and_no_signal():
    """S0 = 0 first: 0.3832 Delta alpha^(2/5)."""
    risk = solve(Problem(Atoms((0,)), alpha=R(1, 10**9), lam=0, noise=1)).excess_risk
    n, d = sp.symbols("n d", positive=True)
    law = float(laws()["interpolating bulk"].subs({Delta: 1, n: R(1, 10**9), d: 1}))
    assert math.isclose(risk, law, rel_tol=1e-3)


@pytest.mark.parametrize(
    ("a", "value", "name"),
    [(R(11, 4), R(3, 2), "half the bulk passes"), (R(16, 5), R(3, 5), "every mode resolved")],
)
def test_bulk_constants(a, value, name):
    d = 10**6
    n = R(f"{d ** float(a):.6e}")
    risk = solve(Problem(PowerLaw(value, d), alpha=n / d**2, lam=R(1, 10**6), noise=1)).excess_risk
    dd, nn = sp.symbols("d n", positive=True)
    law = float(laws()[name].subs({Delta: 1, nn: n, dd: d}))
    assert math.isclose(risk, law, rel_tol=0.02)


def test_a_wall_of_the_phase_diagram_is_there_in_the_equations():
    """Across theta = 2 tau the exponent jumps: R grows by a power of d within a factor in lam."""
    ratios = []
    for d in (10**6, 10**9):
        alpha = R(repr(d**-0.2))
        lam = 4 * float(alpha) * 2 * (1 / (4 * float(alpha))) ** 0.5
        below, above = (
            solve(Problem(PowerLaw(R(3, 2), d), alpha, R(repr(lam * factor)), 1)).excess_risk
            for factor in (0.05, 1.3)
        )
        ratios.append(below / above)
    # a = 1.8: exponents 2/5 (a - 2) and -(2 - 1/gamma)(a/2 - 1/2) differ by 0.45.
    assert abs(math.log(ratios[1] / ratios[0]) / math.log(1000) - 0.45) < 0.1


def test_points_are_inside_their_regimes():
    for table in (regimes(), regimes(lasso_balance())):
        for regime in table:
            assert deep_point(regime, R(3, 2)) is not None


# --- LASSO --------------------------------------------------------------------------------------


def test_lasso_against_iterated_soft_thresholding():
    """The minimiser of norm(y - X x)^2 + lam norm(x)_1 at d = 1000, in standard errors."""
    gamma, d, n, lam, noise = 1.0, 1000, 300, 60.0, 0.05
    theory = Lasso(gamma, d, n, noise).solve(lam)
    rng = np.random.default_rng(0)
    x0 = np.arange(1.0, d + 1) ** -gamma
    risks = []
    for _ in range(12):
        X = rng.normal(size=(n, d))
        target = X @ x0 + noise**0.5 * rng.normal(size=n)
        step = 1 / np.linalg.norm(X, 2) ** 2
        x, fast, t = np.zeros(d), np.zeros(d), 1.0
        for _ in range(1500):
            g = fast - step * (X.T @ (X @ fast - target))
            new = np.sign(g) * np.maximum(np.abs(g) - step * lam / 2, 0)
            after = (1 + math.sqrt(1 + 4 * t * t)) / 2
            x, fast, t = new, new + (t - 1) / after * (new - x), after
        risks.append(float(((x - x0) ** 2).sum()))
    error = np.std(risks, ddof=1) / len(risks) ** 0.5
    assert abs(np.mean(risks) - theory.risk) < 4 * error


def test_lasso_limits():
    everything = Lasso(1.0, 50, 5000.0, 0.1).on_ray(1e-9)
    # Least squares: R = d Delta/(n - d).
    assert math.isclose(everything.risk, 50 * 0.1 / 4950, rel_tol=1e-6)
    assert Lasso(1.0, 50, 10.0, 0.1).solve(1e5).selected < 1e-6
    best_risk = Lasso(1.5, 10**6, 1e4, 1.0).best().risk
    assert all(best_risk <= Lasso(1.5, 10**6, 1e4, 1.0).on_ray(t).risk * (1 + 1e-9) for t in (3, 4, 5))


# --- softmax at small error -------------------------------------------------------------------------


def test_softmax_conjugates_at_small_error():
    """A, M and C of the solver at R = 1e-6 against the curvature averages, T = 2."""
    problem = Problem(PowerLaw(R(3, 2), 50), 1, R(1, 10), 0, "seq2lab", tokens=2)
    solver, nodes = TwoSidedSolver(problem), lattice(0.36, 6.5)
    V, b2 = 2.0, 1e-6
    point = solver.at(np.array([0.0, math.log(b2), math.log(V)]), nodes)
    rows, field = solver.rows, nodes.z0
    P = rows.probabilities(field)
    _, _, upper = rows.slopes(P, P)
    H = np.array([[upper[0], upper[1]], [upper[1], upper[2]]]).transpose(2, 0, 1)
    h = np.linalg.eigvalsh(H)
    gain = h / (1 + V * h)
    A = nodes.weights @ gain.sum(1)
    C = nodes.weights @ (gain**2).sum(1) / 2 * b2
    assert math.isclose(point.conjugates["A"], A, rel_tol=1e-4)
    assert math.isclose(point.conjugates["M"], A, rel_tol=1e-4)
    assert math.isclose(point.conjugates["C"], C, rel_tol=1e-4)


def test_softmax_shares_the_balance():
    L = sp.Symbol("L", positive=True)
    task = small_error(L)
    alpha, risk = sp.symbols("alpha", positive=True), sp.Symbol("R", real=True)
    assert sp.simplify(task.exact_fit - (risk + Delta / 2) / (2 * L * alpha)) == 0
    assert softmax_balance().noise == linear_balance().noise
    table, _ = regime_table("seq2lab", "nuclear", "free", narrow=False, noise_free=False)
    assert [r.exponent for r in table] == [r.exponent for r in regimes()]


# --- emergence ----------------------------------------------------------------------------------


def test_modes_appear_where_the_solver_says():
    target = PowerLaw(R(3, 2), 2000)
    for lam, noise in ((R(1, 1000), R(1, 10)), (R(1), R(0))):
        for event in emergence(target, 3, lam, noise):
            there = solve(Problem(target, alpha=R(repr(event.n / 2000**2)), lam=lam, noise=noise))
            assert math.isclose(there.excess_risk, event.risk, rel_tol=1e-6)
            tau, theta = there.values["tau"], there.values["theta"]
            if event.by == "BBP transition":
                assert math.isclose(tau, event.strength, rel_tol=1e-6)
                assert theta <= 2 * tau * (1 + 1e-9)
            else:
                assert math.isclose(theta, event.strength + tau**2 / event.strength, rel_tol=1e-6)
                assert tau < event.strength


def test_staircase_approaches_its_envelope():
    events = list(emergence(PowerLaw(R(3, 2), 10**8), 60, R(0), R(0)))
    ratios = [event.risk / event.envelope for event in events]
    assert abs(ratios[-1] - 1) < 0.06
    assert abs(ratios[-1] - 1) < abs(ratios[9] - 1) / 2
    assert all(x.n < y.n for x, y in pairwise(events))


def test_the_curve_runs_through_the_events():
    target = PowerLaw(R(1), 500)
    (event,) = list(emergence(target, 1, R(1, 100), R(1, 10)))
    ((n, risk),) = staircase(target, R(1, 100), R(1, 10), (event.strength, event.strength), 1)
    assert math.isclose(n, event.n, rel_tol=1e-6)
    assert math.isclose(risk, event.risk, rel_tol=1e-6)


# --- command line ---------------------------------------------------------------------------------


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["onehead", *arguments])
    code = 0
    try:
        onehead.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr()


def test_exponents_json(monkeypatch, capsys):
    code, out = run(monkeypatch, capsys, "exponents", "--format", "json")
    rows = json.loads(out.out)
    assert code == 0
    keys = {"regime", "exponent_in_n", "f", "conditions", "dominant_term", "derivation"}
    assert all(keys <= set(row) for row in rows)
    assert {row["regime"]: row["f"] for row in rows}["over-regularised"] == "(2*gamma - 1)/gamma"


@pytest.mark.parametrize("fmt", ["text", "markdown", "latex", "csv"])
def test_exponents_formats(monkeypatch, capsys, fmt):
    code, out = run(monkeypatch, capsys, "exponents", "--gamma", "3/2", "--format", fmt)
    assert code == 0
    assert "4/3" in out.out


def test_exponents_at_a_point(monkeypatch, capsys):
    code, out = run(
        monkeypatch,
        capsys,
        "exponents",
        "--at",
        "a=1.5,l=-0.2,delta=0",
        "--gamma",
        "3/2",
        "--format",
        "json",
    )
    found = json.loads(out.out)
    assert code == 0
    assert (found["regime"], found["exponent"], found["f"]) == ("over-regularised", "-4/15", "4/3")


def test_exponents_plot_and_emergence(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "phases.png"
    code, _ = run(monkeypatch, capsys, "exponents", "--gamma", "1", "--plot", str(picture))
    assert code == 0
    assert picture.stat().st_size > 10_000
    picture = tmp_path / "staircase.svg"
    arguments = ("--gamma", "3/2", "--d", "400", "--modes", "4", "--plot", str(picture))
    code, out = run(monkeypatch, capsys, "emergence", *arguments, "--format", "json")
    assert code == 0
    assert len(json.loads(out.out)) == 4
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("exponents", "--gamma", "1/2"), "gamma must exceed 1/2"),
        (("exponents", "--gamma", "nan"), "gamma must be a finite number"),
        (("exponents", "--task", "xor"), "unknown task"),
        (("exponents", "--at", "a=1,l=-4", "--gamma", "1"), "boundary of"),
        (("exponents", "--at", "a=1.5", "--check"), "leave out --check"),
        (("exponents", "--lam", "n^"), "must be a finite number"),
        (("exponents", "--lam", "2n"), "lam reads"),
        (("exponents", "--narrow", "--lam", "optimal"), "narrow student"),
        (("exponents", "--penalty", "frobenius", "--task", "lasso"), "direct training"),
        (("exponents", "--check", "--task", "seq2lab"), "softmax_exponents"),
        (("exponents", "--plot", "x.png"), "state --gamma"),
        (("exponents", "--delta", "1"), "add --plot"),
        (("exponents", "--gamma", "1", "--plot", "x.png", "--width", "1/3"), "add --narrow"),
        (
            ("exponents", "--gamma", "1", "--plot", "x.png", "--narrow", "--width", "3"),
            "between 0 and 1",
        ),
        (("emergence", "--gamma", "3/2", "--d", "100", "--modes", "200"), "modes must lie in"),
        (("emergence", "--gamma", "3/2", "--d", "100", "--noise", "-1"), "noise must not be negative"),
        (("emergence", "--gamma", "0.4", "--d", "100"), "gamma must exceed"),
    ],
)
def test_bad_input_is_one_sentence(monkeypatch, capsys, arguments, words):
    code, out = run(monkeypatch, capsys, *arguments)
    assert code == 2
    assert words in out.err
    assert "Traceback" not in out.err


def test_tables_of_variants():
    for penalty, lam in (("frobenius", "free"), ("nuclear", "optimal"), ("nuclear", "n^1/4")):
        table, attained = regime_table("linear", penalty, lam, narrow=False, noise_free=False)
        assert exponent_records(table, R(3, 2), attained)
    with pytest.raises(ProblemError):
        regime_table("linear", "ridge", "free", narrow=False, noise_free=False)


@pytest.mark.parametrize(("a", "f"), [(2.0, 1.0), (3.2, 0.0)])
def test_a_narrow_student(a, f):
    """p = d^(1/2): noise fills the width, R ~ Delta p d/n; then the floor c^2 p^-2/2."""
    d, p, risks = 10**6, 1000, []
    for sign in (-1, 1):
        alpha = R(repr(d ** (a - 2) * math.exp(0.1 * sign)))
        lam = R(repr(d ** ((a - 2) / 2 - 0.4)))
        risks.append(solve(Problem(PowerLaw(R(3, 2), d), alpha, lam, 1, width=p)).excess_risk)
    assert abs(-math.log(risks[1] / risks[0]) / 0.2 - f) < 0.02
    if not f:
        assert math.isclose(risks[1] * p**2, 1 / float(sp.zeta(3)) / 2, rel_tol=0.01)


def test_published_networks_sit_on_the_floor_of_their_width():
    """Width 9 at n = 530312: R is what the modes beyond the ninth hold."""
    rows = read_table(Path(__file__).parent / "reference" / "width_quadratic.csv")
    narrow = [row for row in rows if float(row["width"]) == 9 and float(row["n"]) > 5e5]
    assert narrow
    d = int(float(narrow[0]["d"]))
    powers = np.arange(1.0, d + 1) ** (-2 * float(narrow[0]["gamma"]))
    floor = powers[9:].sum() / powers.sum()
    for row in narrow:
        assert floor < float(row["mse_mean"]) < 1.05 * floor
