"""Generated code: symbolic = float64 = mpmath, and no Float on the way."""

import numpy as np
import pytest
import sympy as sp
from hypothesis import assume, given
from hypothesis import strategies as st

from derive import symbols as s
from derive.generate import compile_function, latex, source
from derive.saddle import direct_solution
from derive.spectra import LAW_PRIMITIVES, g, law_symbol, marchenko_pastur_primitive
from numerics.precision import context, evaluate

x = sp.Symbol("x")
KAPPA0 = sp.Symbol("kappa0", positive=True)


def test_a_rational_survives_to_60_digits():
    ctx = context(70)
    third = compile_function("third", (x,), {"value": x / 3 + sp.Rational(1, 7)}, "mpmath", ctx)
    (value,) = third(ctx.mpf(1))
    assert abs(value - ctx.mpf(10) / 21) < ctx.mpf(10) ** -68
    assert abs(evaluate(sp.Rational(1, 3), ctx) * 3 - 1) < ctx.mpf(10) ** -69
    assert abs(evaluate(sp.sqrt(2), ctx) ** 2 - 2) < ctx.mpf(10) ** -68


def test_floats_and_unknown_symbols_are_refused():
    with pytest.raises(ValueError, match="Float"):
        source("f", (x,), {"value": 0.5 * x}, "mpmath")
    with pytest.raises(ValueError, match="not an argument"):
        source("f", (x,), {"value": x + sp.Symbol("y")}, "numpy")


def test_source_is_readable_and_is_what_runs():
    text = source("f", (x,), {"root": sp.sqrt(x) / 3, "log": sp.log(x)}, "mpmath")
    assert text.startswith('def f(x):\n    """Return root, log."""')
    assert "mpf(1)/mpf(3)" in text
    scope = {name: getattr(context(20), name) for name in ("mpf", "sqrt", "log")}
    exec(text, scope)
    assert scope["f"](context(20).mpf(9))[0] == 1


def test_precision_is_that_of_the_context_when_called():
    ctx = context(15)
    root = compile_function("root", (x,), {"root": sp.sqrt(x)}, "mpmath", ctx)
    ctx.dps = 50
    assert abs(root(ctx.mpf(2))[0] ** 2 - 2) < ctx.mpf(10) ** -48


def test_latex_uses_the_letters_of_the_theory():
    assert latex(s.lam * s.theta + s.tau2) == r"\lambda \theta + \tau^2"


@given(
    st.tuples(*[st.fractions(min_value="1/10", max_value=4, max_denominator=50) for _ in range(5)]),
    st.fractions(min_value="1/10", max_value=1, max_denominator=50),
)
def test_direct_outputs_symbolic_numpy_and_mpmath_agree(values, shrink):
    """At random points on the physical side of the pole 2 alpha = shrink^2."""
    outputs = direct_solution().outputs
    scale, rho = sp.symbols("scale shrink", nonnegative=True)
    arguments = (s.alpha, s.lam, s.Delta, s.Q0, s.mean, scale, rho)
    numbers = [*values, values[0] + 1, shrink]
    assume(2 * numbers[0] - shrink**2 > 0.05)
    ctx = context(40)
    as_numpy = compile_function("f", arguments, outputs, "numpy", np)(*map(float, numbers))
    exact = [ctx.mpf(v.numerator) / v.denominator for v in numbers]
    as_mp = compile_function("f", arguments, outputs, "mpmath", ctx)(*exact)
    rationals = [sp.Rational(v.numerator, v.denominator) for v in numbers]
    substitution = dict(zip(arguments, rationals, strict=True))
    for expression, fast, precise in zip(outputs.values(), as_numpy, as_mp, strict=True):
        truth = evaluate(expression.subs(substitution), ctx)
        assert abs(truth - precise) <= ctx.mpf(10) ** -35 * (1 + abs(precise))
        assert float(fast) == pytest.approx(float(precise), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("ab", LAW_PRIMITIVES)
@given(
    kappa0=st.fractions(min_value="1/20", max_value=3, max_denominator=40),
    real=st.floats(-3, 3),
    imag=st.floats(-3, -0.05),
)
def test_law_primitives_agree_in_both_backends(ab, kappa0, real, imag):
    expression = {str(law_symbol(*ab)): marchenko_pastur_primitive(*ab, KAPPA0)}
    point = complex(real, imag)
    ctx = context(30)
    fast = compile_function("p", (g, KAPPA0), expression, "numpy", np)(point, float(kappa0))[0]
    exact = ctx.mpf(kappa0.numerator) / kappa0.denominator
    slow = compile_function("p", (g, KAPPA0), expression, "mpmath", ctx)(ctx.mpc(point), exact)[0]
    assert complex(fast) == pytest.approx(complex(slow), rel=1e-9, abs=1e-9)
