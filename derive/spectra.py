"""Functionals of the spectral law nu of B = M S0 + sqrt(C) G and how they differentiate.

Three levels, each derived from the one above:

* `SpectralIntegral` and `SpectralPair`: Int phi dnu and IntInt (f(x)-f(y))/(x-y) dnu dnu for any
  phi, f, with the Burgers rule in C and the Stein rule in M;
* `CutMoment`: the moments of powers of the Stieltjes transform above a cut, which close under
  differentiation (a Burgers hierarchy) and are all that the nuclear penalty needs;
* primitives: by subordination z(w) = w + C G0(w) each cut moment is the imaginary part of an
  explicit function at one point of the complex plane (`cut_primitive`, `law_primitives`).
"""

from functools import cache
from typing import Any

import sympy as sp

from derive import symbols as s

__all__ = [
    "CUT_MOMENTS",
    "LAW_PRIMITIVES",
    "CutMoment",
    "EdgeTerm",
    "PositivePart",
    "SpectralIntegral",
    "SpectralPair",
    "SquaredPair",
    "atom_primitive",
    "cut_primitive",
    "free_moments",
    "in_cut_moments",
    "marchenko_pastur_inverse",
    "marchenko_pastur_primitive",
    "marchenko_pastur_stieltjes",
]


class PositivePart(sp.Function):
    """(y)_+^k for an integer k >= 0; k = 0 is the indicator of y > 0."""

    nargs = 2

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """K (y)_+^(k-1)."""
        y, k = self.args
        if argindex != 1 or not k.is_positive:
            raise sp.core.function.ArgumentIndexError(self, argindex)
        return k * PositivePart(y, k - 1)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        y, k = self.args
        text = rf"\left({printer._print(y)}\right)_+^{{{printer._print(k)}}}"
        return text if exp is None else rf"\left[{text}\right]^{{{exp}}}"

    def _sympystr(self, printer: Any) -> str:
        y, k = self.args
        return f"({printer._print(y)})_+" + ("" if k == 1 else f"^{printer._print(k)}")


class _Functional(sp.Expr):
    """A functional of nu with a bound eigenvalue x; arguments (integrand, M, C)."""

    def __new__(cls, integrand: sp.Expr, M: sp.Expr, C: sp.Expr) -> sp.Expr:
        # Linear in the integrand, so constants stand in front.
        constant, core = sp.sympify(integrand).as_independent(s.x, as_Add=False)
        return constant * super().__new__(cls, core, sp.sympify(M), sp.sympify(C))

    @property
    def integrand(self) -> sp.Expr:
        """Function of the eigenvalue x."""
        return self.args[0]

    @property
    def free_symbols(self) -> set[sp.Symbol]:
        """Everything but the bound eigenvalue."""
        return (
            self.integrand.free_symbols - {s.x} | self.args[1].free_symbols | self.args[2].free_symbols
        )


class SpectralIntegral(_Functional):
    """Int phi(x) dnu(x)."""

    def _eval_derivative(self, symbol: sp.Symbol) -> sp.Expr:
        phi, M, C = self.args
        slope = sp.diff(phi, s.x)
        pair = SpectralPair(slope, M, C)
        # Burgers (free heat flow): d/dC Int phi = 1/2 IntInt (phi'(x) - phi'(y))/(x - y).
        burgers = pair / 2
        # Stein: scaling (M, C) -> (c M, c^2 C) scales x, so M d/dM = Int x phi' - 2 C d/dC.
        stein = (SpectralIntegral(s.x * slope, M, C) - C * pair) / M
        inside = sp.diff(phi, symbol)
        return (
            (SpectralIntegral(inside, M, C) if inside != 0 else sp.Integer(0))
            + burgers * sp.diff(C, symbol)
            + stein * sp.diff(M, symbol)
        )

    def _sympystr(self, printer: Any) -> str:
        return f"Int[{printer._print(self.integrand)}] dnu"

    def _latex(self, printer: Any) -> str:
        return rf"\int {printer._print(self.integrand)}\, d\nu(x)"


class SpectralPair(_Functional):
    """IntInt (f(x) - f(y))/(x - y) dnu(x) dnu(y) = 2 Int f(x) H(x) dnu(x)."""

    def __new__(cls, integrand: sp.Expr, M: sp.Expr, C: sp.Expr) -> sp.Expr:
        # The divided difference of x is one, that of a constant zero.
        if sp.diff(integrand, s.x, 2) == 0:
            return sp.diff(integrand, s.x)
        return super().__new__(cls, integrand, M, C)

    def _eval_derivative(self, symbol: sp.Symbol) -> sp.Expr:
        if symbol in self.args[1].free_symbols | self.args[2].free_symbols:
            raise NotImplementedError("differentiate a cut moment instead of a general pair")
        inside = sp.diff(self.integrand, symbol)
        return SpectralPair(inside, *self.args[1:]) if inside != 0 else sp.Integer(0)

    def _sympystr(self, printer: Any) -> str:
        f = printer._print(self.integrand)
        return f"IntInt[divided difference of {f}] dnu dnu"

    def _latex(self, printer: Any) -> str:
        f = printer._print(self.integrand)
        return rf"\iint \frac{{f(x)-f(y)}}{{x-y}}\Big|_{{f(x)={f}}} d\nu\, d\nu"


class SquaredPair(_Functional):
    """IntInt ((f(x) - f(y))/(x - y))^2 dnu(x) dnu(y)."""

    def __new__(cls, integrand: sp.Expr, M: sp.Expr, C: sp.Expr) -> sp.Expr:
        constant, core = sp.sympify(integrand).as_independent(s.x, as_Add=False)
        if sp.diff(core, s.x, 2) == 0:
            return (constant * sp.diff(core, s.x)) ** 2
        return constant**2 * super().__new__(cls, core, M, C)

    def _sympystr(self, printer: Any) -> str:
        f = printer._print(self.integrand)
        return f"IntInt[(divided difference of {f})^2] dnu dnu"

    def _latex(self, printer: Any) -> str:
        f = printer._print(self.integrand)
        return rf"\iint \left(\frac{{f(x)-f(y)}}{{x-y}}\right)^2\Big|_{{f(x)={f}}} d\nu\, d\nu"


class EdgeTerm(sp.Function):
    """(c - theta)(pi rho(c))^3/pi, a boundary term that vanishes when the cut c is theta.

    It appears when a width p < d cuts the spectrum inside a band, at c > theta; the cut then moves
    with the p-th eigenvalue, at speed H(c) in tau2.
    """

    nargs = 2


class CutMoment(sp.Function):
    r"""[j, k] = -(1/pi) Im Int_{c+i0}^{oo} (x - theta)^k g(x)^j dx, for the law of S0 + tau G.

    g is the Stieltjes transform. [1, k] = Int_{x>c} (x - theta)^k dnu and [2, 1] = psi. The cut c
    is theta at full width; at width p it is the p-th largest eigenvalue if that is larger.
    """

    nargs = 4

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Burgers hierarchy: d(g^j)/dtau2 = -j/(j+1) d(g^(j+1))/dx, integrated by parts."""
        j, k, tau2, theta = self.args
        if argindex == 4:
            return -k * CutMoment(j, k - 1, tau2, theta) if k else sp.Integer(0)
        if argindex != 3 or not k:
            raise sp.core.function.ArgumentIndexError(self, argindex)
        flow = j * k / (j + 1) * CutMoment(j + 1, k - 1, tau2, theta)
        if j == 1:
            return flow  # the cut moves with the flow, so no boundary term
        if (j, k) == (2, 1):
            return flow - sp.Rational(2, 3) * EdgeTerm(tau2, theta)
        raise sp.core.function.ArgumentIndexError(self, argindex)

    def _sympystr(self, printer: Any) -> str:
        j, k = self.args[:2]
        return CUT_MOMENTS[int(j), int(k)]

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        j, k = self.args[:2]
        text = r"\psi" if (j, k) == (2, 1) else rf"\mathcal{{I}}_{{{j},{k}}}"
        return text if exp is None else rf"{text}^{{{exp}}}"


# All that the solver and its Jacobian need, from the hierarchy above, by name.
CUT_MOMENTS = {
    (1, 0): "mass",
    (1, 1): "I1",
    (1, 2): "I2",
    (2, 0): "hilbert",
    (2, 1): "psi",
    (3, 0): "cube",
}


def free_moments(expression: sp.Expr, mean: sp.Expr, Q0: sp.Expr) -> sp.Expr:
    """Int dnu = 1, Int x dnu = M mean and Int x^2 dnu = M^2 Q0 + C.

    The first two free cumulants of B are sums of those of M S0 and sqrt(C) G, which are free.
    """

    def moment(power: sp.Expr, M: sp.Expr, C: sp.Expr) -> sp.Expr:
        known = {sp.S.One: sp.S.One, s.x: M * mean, s.x**2: M**2 * Q0 + C}
        return known.get(power, SpectralIntegral(power, M, C))

    return expression.replace(SpectralIntegral, moment)


def in_cut_moments(expression: sp.Expr, tau2: sp.Expr, theta: sp.Expr) -> sp.Expr:
    """Write the functionals of the nuclear penalty as cut moments of S0 + tau G.

    B = M (S0 + tau G) and lam = M theta, so (x - lam)_+ = M (x/M - theta)_+; each integral over nu
    becomes a power of M times a cut moment.
    """

    def single(functional: SpectralIntegral) -> sp.Expr:
        phi, M, _ = functional.args
        y = sp.Dummy("y")
        total = sp.Integer(0)
        for term in sp.Add.make_args(sp.expand(phi)):
            parts = term.atoms(PositivePart)
            if len(parts) != 1:
                raise ValueError(f"not a power above the cut: {term}")
            (part,) = parts
            # x = (x - lam) + lam raises the power of the positive part.
            rest = sp.Poly(sp.expand((term / part).subs(s.x, y + s.lam)), y)
            for (power,), coefficient in rest.terms():
                k = part.args[1] + power
                moment = CutMoment(1, k, tau2, theta)
                total += coefficient.subs(s.lam, M * theta) * M**k * moment
        return total

    def double(functional: SpectralPair) -> sp.Expr:
        if functional.integrand != PositivePart(s.x - s.lam, 1):
            raise ValueError(f"not the positive part above the cut: {functional}")
        return CutMoment(2, 1, tau2, theta)

    replaced = expression.replace(lambda e: isinstance(e, SpectralIntegral), single)
    return replaced.replace(lambda e: isinstance(e, SpectralPair), double)


# --- primitives -------------------------------------------------------------------------------

w, g = sp.symbols("w g")
# Int w^a G0^b dw, the six functions of the target law alone that the cut moments need.
LAW_PRIMITIVES = ((0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3))


def law_symbol(a: int, b: int) -> sp.Symbol:
    """Placeholder for Int w^a G0^b dw at the cut."""
    return sp.Symbol(f"P{a}{b}")


@cache
def cut_primitive(j: int, k: int) -> sp.Expr:
    """Primitive of (z - theta)^k g^j dz along z(w) = w + tau2 G0(w).

    Terms w^a G0^b G0' are integrated by parts; what is left are the law primitives. The cut moment
    is Im/pi of the result at the point w_c above the cut, because right of the spectrum everything
    is real.

    Returns
    -------
    sympy.Expr
        In w, g (the value of G0), tau2, theta and `law_symbol`.
    """
    slope = sp.Symbol("slope")
    integrand = sp.Poly(
        sp.expand((w + s.tau2 * g - s.theta) ** k * g**j * (1 + s.tau2 * slope)), w, g, slope
    )
    total = sp.Integer(0)
    for (a, b, with_slope), coefficient in integrand.terms():
        if not with_slope:
            total += coefficient * law_symbol(a, b)
            continue
        total += coefficient * w**a * g ** (b + 1) / (b + 1)
        if a:
            total -= coefficient * sp.Rational(a, b + 1) * law_symbol(a - 1, b + 1)
    return total


@cache
def marchenko_pastur_inverse(kappa0: sp.Expr) -> sp.Expr:
    """w(g) = 1/g + R(g) of the Marchenko-Pastur target, R its R-transform (THEORY.md section 4)."""
    r = sp.sqrt(kappa0)
    return 1 / g + r / (1 - g / r)


@cache
def marchenko_pastur_stieltjes(kappa0: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
    """G0(w) of the Marchenko-Pastur target in two forms that are equal, branch cuts included.

    Solves w = `marchenko_pastur_inverse`. The product of two roots has its cut on the spectrum only. The
    first form cancels where the second does not, and vice versa.
    """
    r = sp.sqrt(kappa0)
    # The quadratic is w g^2/r - (w + 1/r - r) g + 1 = 0.
    linear = w + 1 / r - r
    root = sp.sqrt(w - (r - 1) ** 2 / r) * sp.sqrt(w - (r + 1) ** 2 / r)
    return r * (linear - root) / (2 * w), 2 / (linear + root)


@cache
def marchenko_pastur_primitive(a: int, b: int, kappa0: sp.Expr) -> sp.Expr:
    """Int w^a g^b dw for the Marchenko-Pastur target as a function of g: w(g) is rational.

    The logarithms are chosen real on 0 < g < sqrt(kappa0), the image of w right of the spectrum,
    and analytic in the lower half plane, the image of the upper one.
    """
    r = sp.Symbol("r", positive=True)
    of_g = marchenko_pastur_inverse(r**2)
    integrand = sp.apart(sp.together(of_g**a * g**b * sp.diff(of_g, g)), g)
    total = sp.Integer(0)
    for term in sp.Add.make_args(integrand):
        denominator = sp.denom(sp.factor(term))
        if not denominator.has(g):
            total += sp.integrate(term, g)
            continue
        base = g if denominator.subs(g, 0) == 0 else g - r
        order = sp.degree(denominator, g)
        coefficient = sp.cancel(term * base**order)
        if order == 1:
            total += coefficient * sp.log(g if base == g else 1 - g / r)
        else:
            total += coefficient * base ** (1 - order) / (1 - order)
    return total.subs(r, sp.sqrt(kappa0))


@cache
def atom_primitive(a: int, b: int) -> sp.Expr:
    """Share of one atom in Int w^a G0^b dw for a law of finitely many atoms.

    Near its atom s, G0 = weight/(w - s) + first + second (w - s) + ..., where ``first`` and
    ``second`` collect the other atoms; the pole parts there, plus the polynomial part at infinity
    (b = 1 only), are the partial fractions of the integrand.
    """
    e, value, weight, first, second = sp.symbols("e s weight first second")
    local = weight / e + first + second * e
    laurent = sp.expand((value + e) ** a * local**b)
    log, distance = sp.log(w - value), w - value
    total = laurent.coeff(e, -1) * log
    for order in range(2, b + 1):
        total += laurent.coeff(e, -order) * distance ** (1 - order) / (1 - order)
    if b == 1:
        polynomial = sp.div(w**a - value**a, w - value, w)[0] if a else sp.Integer(0)
        total += weight * sp.integrate(polynomial, w)
    return total
