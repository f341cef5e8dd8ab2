import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from derive import Atoms, MarchenkoPastur, PowerLaw, ProblemError, exact


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3/2", sp.Rational(3, 2)),
        ("0.1", sp.Rational(1, 10)),
        ("1e-3", sp.Rational(1, 1000)),
        (0.1, sp.Rational(1, 10)),
        (7, sp.Integer(7)),
        (sp.sqrt(2), sp.sqrt(2)),
    ],
)
def test_numbers_are_read_exactly(text, value):
    assert exact(text) == value


@pytest.mark.parametrize(
    "bad", ["nan", "inf", "-inf", "1/0", "two", "", "1e9999999999", sp.Float(1), sp.oo]
)
def test_what_is_no_exact_number_is_refused(bad):
    with pytest.raises(ProblemError, match="kappa0"):
        exact(bad, "kappa0")


@given(st.fractions(max_denominator=10**6))
def test_any_fraction_survives(value):
    assert exact(str(value)) == sp.Rational(value.numerator, value.denominator)


def test_bad_targets():
    for build in (
        lambda: MarchenkoPastur(0),
        lambda: MarchenkoPastur("-1/2"),
        lambda: PowerLaw("1/2", 10),
        lambda: PowerLaw(1, 0),
        lambda: PowerLaw(1, 10, cutoff=0),
        lambda: PowerLaw(1, 10, cutoff=11),
        lambda: Atoms(()),
        lambda: Atoms((1, -1)),
        lambda: Atoms((1, 2), (1,)),
        lambda: Atoms((1, 2), (1, 0)),
    ):
        with pytest.raises(ProblemError):
            build()


def test_atoms_merge_and_normalise():
    atoms = Atoms((1, "2", 1), (1, 1, 2))
    assert dict(zip(atoms.values, atoms.weights, strict=True)) == {
        1: sp.Rational(3, 4),
        2: sp.Rational(1, 4),
    }
    assert Atoms((0, 3)).rank_fraction == sp.Rational(1, 2)
    assert sp.Rational(9, 2) == Atoms((0, 3)).Q0
