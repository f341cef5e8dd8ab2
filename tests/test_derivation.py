"""The derivation against what THEORY.md says it must arrive at; typed formulas stand only here."""

import json

import pytest
import sympy as sp

from derive import Problem, ProblemError
from derive import symbols as s
from derive.channels import TASKS
from derive.gaussian import gaussian_average
from derive.linear import LinearChannel
from derive.penalties import PENALTIES, denoiser, ground_state
from derive.potential import potential, potential_steps
from derive.saddle import direct_solution, reduced_system, saddle_equations
from derive.saddle_steps import saddle_steps
from derive.spectra import CutMoment, PositivePart, SpectralIntegral, SpectralPair
from derive.steps import render

PSI = CutMoment(2, 1, s.tau2, s.theta)
I1, I2 = (CutMoment(1, k, s.tau2, s.theta) for k in (1, 2))


def vanishes(expression):
    return sp.simplify(expression) == 0


def step(steps, name):
    return next(each for each in steps if each.name == name).result.rhs


def test_gaussian_average_is_wick():
    x, y = sp.symbols("x y")
    a, b, c = sp.symbols("a b c")
    covariance = sp.Matrix([[a, b], [b, c]])
    assert gaussian_average(x**4, (x, y), covariance) == 3 * a**2
    assert vanishes(gaussian_average(x**2 * y**2, (x, y), covariance) - (a * c + 2 * b**2))
    assert gaussian_average(x**3 * y**2, (x, y), covariance) == 0
    assert gaussian_average(7 + x, (x, y), covariance) == 7


def test_linear_channel_prox_and_moreau():
    channel = LinearChannel()
    steps = channel.steps()
    prox = step(steps, "proximal operator")
    residual = (channel.y - sp.sqrt(2) * channel.omega) ** 2
    assert vanishes(prox - (channel.omega + 2 * sp.sqrt(2) * s.V * channel.y) / (1 + 4 * s.V))
    assert vanishes(step(steps, "Moreau envelope") - residual / (1 + 4 * s.V))
    noisy_risk = 2 * (s.Q0 - 2 * s.m + s.q) + s.Delta
    assert vanishes(step(steps, "averaged Moreau envelope") - noisy_risk / (1 + 4 * s.V))
    assert vanishes(step(steps, "train loss") - noisy_risk / (1 + 4 * s.V) ** 2)
    assert vanishes(step(steps, "test loss") - noisy_risk)


def test_linear_channel_minimises_its_moreau_objective():
    """At the prox the objective is stationary and equals the envelope."""
    channel = LinearChannel()
    steps = {each.name: each for each in channel.steps()}
    objective, prox = steps["proximal operator"].definition, steps["proximal operator"].result.rhs
    assert vanishes(sp.diff(objective, channel.u).subs(channel.u, prox))
    assert vanishes(objective.subs(channel.u, prox) - steps["Moreau envelope"].result.rhs)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_channel_joins_every_penalty(task, penalty):
    """Generic check: each task yields a potential, six equations and printable steps."""
    problem = Problem(task=task, penalty=penalty)
    assert potential(problem).has(s.alpha)
    assert len(saddle_equations(problem.channel, penalty)) == 6
    for fmt in ("text", "latex", "json"):
        assert render(potential_steps(problem) + saddle_steps(problem), fmt)


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_every_penalty_is_minimised(penalty):
    """Generic check on a grid: no other allowed eigenvalue does better than the denoiser."""
    values = {s.A: sp.Rational(3, 2), s.lam: sp.Rational(1, 2)}
    for x in (sp.Rational(-1), sp.Rational(1, 3), sp.Rational(5, 2)):
        here = {**values, s.x: x}

        def cost(value, here=here):
            return (s.A * value**2 / 2 - s.x * value + penalty.cost(value)).subs(here)

        best = _positive(denoiser(penalty).subs(here))
        least = _positive(ground_state(penalty).subs(here))
        assert cost(best) == least
        allowed = [sp.Rational(i, 7) for i in range(-20 * (not penalty.factorised), 21)]
        assert all(cost(other) >= least for other in allowed)


def _positive(expression):
    return expression.replace(PositivePart, lambda y, k: sp.Max(y, 0) ** k)


def test_potential_is_that_of_the_theory():
    e = potential(Problem())
    expected = (
        s.alpha * (2 * (s.Q0 - 2 * s.m + s.q) + s.Delta) / (1 + 4 * s.V)
        - SpectralIntegral(PositivePart(s.x - s.lam, 2), s.M, s.C) / (2 * s.A)
        - s.A * s.q / 2
        + s.M * s.m
        + s.C * s.V
    )
    assert vanishes(e - expected)


def test_saddle_point_equations_of_section_3():
    eqs = saddle_equations(LinearChannel(), "nuclear")
    F = PositivePart(s.x - s.lam, 1)
    pair = SpectralPair(F, s.M, s.C)
    assert vanishes(eqs[s.A] - 4 * s.alpha / (1 + 4 * s.V))
    assert vanishes(eqs[s.M] - eqs[s.A])
    risk = s.Q0 - 2 * s.m + s.q
    assert vanishes(eqs[s.C] - 8 * s.alpha * (risk + s.Delta / 2) / (1 + 4 * s.V) ** 2)
    assert vanishes(eqs[s.q] - SpectralIntegral(PositivePart(s.x - s.lam, 2), s.M, s.C) / s.A**2)
    assert vanishes(eqs[s.V] - pair / (2 * s.A))
    # m = (Int x F - 2 C V)/M with F = (x - lam)_+/A
    xF = SpectralIntegral(s.x * F, s.M, s.C) / s.A
    assert vanishes(eqs[s.m] - (xF - 2 * s.C * eqs[s.V]) / s.M)


def test_reduction_to_tau_theta_psi():
    system = reduced_system()
    # theta = lam (1 + 4V)/(4 alpha) and 4V/(1 + 4V) = psi/(2 alpha), so A = 4 alpha - 2 psi.
    V = PSI / (2 * system.A)
    assert vanishes(4 * V / (1 + 4 * V) - PSI / (2 * s.alpha))
    theta = s.lam * (1 + 4 * V) / (4 * s.alpha)
    psi = sp.Symbol("psi_value")
    assert vanishes(system.shrinkage.subs(PSI, psi).subs(s.theta, theta.subs(PSI, psi)))
    risk = system.outputs["excess_risk"]
    assert vanishes(system.width - (s.tau2 - (risk + s.Delta / 2) / (2 * s.alpha)))
    assert vanishes(system.outputs["q"] - I2)
    # m = Int x F - tau2 psi, with x = (x - theta) + theta
    assert vanishes(system.outputs["m"] - (I2 + s.theta * I1 - s.tau2 * PSI))
    assert vanishes(system.outputs["train_loss"] - (2 * risk + s.Delta) / (1 + 4 * V) ** 2)
    assert vanishes(system.outputs["test_loss"] - (2 * risk + s.Delta))


def test_energy_equals_loss_plus_penalty_at_the_saddle():
    out = reduced_system().outputs
    system = reduced_system()
    direct = s.alpha * out["train_loss"] + s.lam * out["trace"]
    gap = (out["energy"] - direct).subs(s.lam, sp.solve(system.shrinkage, s.lam)[0])
    gap = gap.subs(s.Delta, sp.solve(system.width, s.Delta)[0])
    assert vanishes(gap)


def test_direct_training_closed_form_of_section_6():
    eqs = saddle_equations(LinearChannel(), "frobenius")
    scale = s.A + s.lam
    assert vanishes(eqs[s.V] - 1 / (2 * scale))
    assert vanishes(eqs[s.q] - (s.M**2 * s.Q0 + s.C) / scale**2)
    assert vanishes(eqs[s.m] - s.M * s.Q0 / scale)
    assert vanishes(direct_solution().best_lam - s.Delta / s.Q0)


@pytest.mark.parametrize("alpha", ["1/4", "2/5", "3/4", "3"])
@pytest.mark.parametrize("lam", ["1/100", "1", "7"])
def test_direct_solution_satisfies_the_six_equations(alpha, lam):
    form = direct_solution()
    numbers = {s.alpha: sp.Rational(alpha), s.lam: sp.Rational(lam), s.Delta: sp.Rational(1, 3)}
    numbers |= {s.Q0: sp.Rational(3, 2), s.mean: sp.Rational(2, 3)}
    scale, shrink = sp.symbols("scale shrink", nonnegative=True)
    a = form.scale.subs(numbers)
    values = {scale: a, shrink: form.shrink.subs(numbers).subs(scale, a)}
    names = (s.q, s.m, s.V, s.A, s.M, s.C)
    six = {v: form.outputs[str(v)].subs(numbers).subs(values).evalf(60) for v in names}
    assert a > 0
    for unknown, rhs in saddle_equations(LinearChannel(), "frobenius").items():
        assert abs(rhs.subs(numbers).subs(six).evalf(60) - six[unknown]) < 1e-50


@pytest.mark.parametrize("penalty", ["nuclear", "frobenius"])
def test_chains_print_in_every_format(penalty):
    problem = Problem(penalty=penalty)
    for steps in (potential_steps(problem), saddle_steps(problem)):
        assert all(each.name in render(steps, "text") for each in steps)
        assert r"\Longrightarrow" in render(steps, "latex")
        rows = json.loads(render(steps, "json"))
        assert [row["name"] for row in rows] == [each.name for each in steps]
        assert all(set(row) == {"name", "definition", "step", "result", "latex"} for row in rows)


def test_saddle_steps_replay_from_the_potential():
    """Each printed equation is the derivative of the printed potential."""
    e = potential(Problem())
    for each in saddle_steps(Problem())[:6]:
        partner = each.definition.lhs.variables[0]
        unknown, rhs = each.result.args
        slope = sp.diff(e, partner)
        assert vanishes(slope.subs(unknown, rhs))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"alpha": 0}, "alpha"),
        ({"lam": -1}, "lam"),
        ({"noise": "-0.1"}, "noise"),
        ({"task": "cubic"}, "task"),
        ({"penalty": "l1"}, "penalty"),
        ({"width": 5}, "width"),
        ({"width": 0, "d": 10}, "width"),
        ({"width": 11, "d": 10}, "width"),
        ({"width": 5, "d": 10, "penalty": "frobenius"}, "width"),
        ({"alpha": "nan"}, "alpha"),
        ({"alpha": sp.Float(0.5)}, "alpha"),
    ],
)
def test_bad_problems_are_named(changes, word):
    with pytest.raises(ProblemError, match=word):
        Problem(**changes)
