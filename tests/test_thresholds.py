import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive import Atoms, MarchenkoPastur, PowerLaw, Problem, exact
from numerics import solve
from numerics.thresholds import collapse, interpolation, perfect_recovery


def test_reference_values_of_the_theory():
    recovery = perfect_recovery(exact("1/2"), 20)
    assert float(recovery.value) == pytest.approx(0.422174982186, abs=6e-13)
    assert float(recovery.unknown["t"]) == pytest.approx(0.2064546871, abs=6e-11)
    assert float(interpolation(MarchenkoPastur("1/2"), exact("1/2")).value) == pytest.approx(
        0.306964205718, abs=6e-13
    )


@pytest.mark.parametrize("kappa0", ["1/20", "1/2", "9/10"])
def test_perfect_recovery_is_the_minimum_of_section_5(kappa0):
    """The typed-in formula, minimised by brute force with numerical semicircle integrals."""
    with mpmath.workdps(25):
        k = mpmath.mpf(exact(kappa0).p) / exact(kappa0).q
        b = 1 - k

        def risk(t):
            low = min(t / mpmath.sqrt(b), 2)
            integral = mpmath.quad(
                lambda a: (
                    (mpmath.sqrt(b) * 2 * mpmath.cos(a) - t) ** 2 * 2 * mpmath.sin(a) ** 2 / mpmath.pi
                ),
                [0, mpmath.acos(low / 2)],
            )
            return 1 - b**2 + k * t**2 + b * integral

        found = perfect_recovery(exact(kappa0), 20)
        t = mpmath.mpf(found.unknown["t"])
        assert abs(risk(t) / 2 - found.value) < 1e-18
        assert min(risk(t * (1 + h)) for h in (-1e-4, 1e-4)) > risk(t)


def test_closed_forms():
    assert perfect_recovery(exact(1), 30).value == 0.5
    assert perfect_recovery(exact(3), 30).value == 0.5
    small = exact("1e-12")
    assert float(perfect_recovery(small, 20).value / mpmath.mpf("1e-12")) == pytest.approx(3, rel=1e-4)
    for kappa0 in ("1/10", "1/2", "1"):
        k = exact(kappa0)
        limit = (1 + 2 * k - k**2) / 4
        value = interpolation(MarchenkoPastur(k), exact(0), 30).value
        assert abs(value * int(limit.q) - int(limit.p)) < 1e-28
    # Pure noise.
    assert interpolation(Atoms((0,)), exact(1), 30).value == 0.25


def test_interpolation_tends_to_its_limits():
    target = MarchenkoPastur("1/2")
    assert float(interpolation(target, exact("1e-8")).value) == pytest.approx(0.4375, abs=1e-3)
    assert float(interpolation(target, exact("1e8")).value) == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("target", [MarchenkoPastur("1/2"), PowerLaw("5/4", 30), Atoms((0, 1, 2))])
def test_interpolation_separates_zero_from_positive_training_loss(target):
    threshold = float(interpolation(target, exact("1/4")).value)
    for side, phase in ((0.99, "interpolating"), (1.01, "unpenalised")):
        found = solve(Problem(target, alpha=str(threshold * side), lam=0, noise="1/4"))
        assert found.phase == phase
        assert (found.train_loss == 0) == (phase == "interpolating")


@pytest.mark.parametrize("kappa0", ["1/10", "1/2", "1", "2"])
def test_recovery_separates_zero_from_positive_risk(kappa0):
    target = MarchenkoPastur(kappa0)
    threshold = float(perfect_recovery(target.rank_fraction).value)
    below = solve(Problem(target, alpha=str(threshold * 0.98), lam=0, noise=0))
    above = solve(Problem(target, alpha=str(threshold * 1.02), lam=0, noise=0))
    assert below.excess_risk > 1e-6
    assert above.excess_risk == 0


@settings(max_examples=8)
@given(
    st.fractions(min_value="1/50", max_value=2, max_denominator=60),
    st.fractions(min_value="1/50", max_value=3, max_denominator=60),
)
def test_thresholds_agree_across_precisions(kappa0, noise):
    target, noise = MarchenkoPastur(str(kappa0)), exact(str(noise))
    for threshold in (
        lambda digits: perfect_recovery(target.rank_fraction, digits),
        lambda digits: interpolation(target, noise, digits),
        lambda digits: collapse(target, noise, exact("1/3"), digits),
    ):
        few, many = threshold(20), threshold(45)
        assert abs(few.value - many.value) < mpmath.mpf(10) ** -20 * many.value
        assert many.error_estimate < 1e-45


def test_thousand_digits_start_with_the_fifty():
    few, many = (perfect_recovery(exact("1/2"), digits).value for digits in (50, 1000))
    assert mpmath.nstr(few, 50) == mpmath.nstr(many, 50)
