"""Formulas that a user writes as text, read into SymPy without evaluating any code.

Names, numbers, + - * / ** (or ^), sqrt, exp, log; and the functionals of the spectral law nu of B:
Int(f) = Int f(x) dnu, Pair(f) = IntInt (f(x) - f(y))/(x - y) dnu dnu, pos(y) = (y)_+, step(y) = [y > 0].
"""

import ast
from collections.abc import Callable, Mapping

import sympy as sp

from derive import symbols as s
from derive.exact import ProblemError, exact
from derive.spectra import PositivePart, SpectralIntegral, SpectralPair

__all__ = ["AVERAGES", "ENGINE_NAMES", "read_equation", "read_expression", "rescaled"]

# E[f.u0], E[f.omega] and E[f.f] of a softmax channel.
AVERAGES = {f"E_f{name}": sp.Symbol(f"E[f.{name}]", real=True) for name in ("u0", "omega", "f")}
ENGINE_NAMES: dict[str, sp.Expr] = {
    **{str(v): v for v in (s.q, s.m, s.V, s.A, s.M, s.C, s.alpha, s.lam, s.Delta, s.Q0, s.x)},
    **AVERAGES,
    "R": s.Q0 - 2 * s.m + s.q,
    "tau2": s.C / s.M**2,
    "theta": s.lam / s.M,
    "kappa": sp.Symbol("kappa", positive=True),
}

Names = Mapping[str, sp.Expr]


def _above(argument: sp.Expr, power: int) -> sp.Expr:
    """A power of the positive part, scaled so that x has the coefficient one."""
    scale = sp.expand(argument).coeff(s.x, 1)
    if scale.is_positive is not True:
        raise ProblemError(f"pos and step take c (x - cut) with c > 0, not {argument}")
    return scale**power * PositivePart(sp.expand(argument / scale), power)


def rescaled(integrand: sp.Expr) -> sp.Expr:
    """The integrand with x of coefficient one in every positive part."""
    return integrand.replace(PositivePart, lambda y, k: _above(y, int(k)))


_FUNCTIONS: dict[str, Callable[[sp.Expr], sp.Expr]] = {
    "sqrt": sp.sqrt,
    "exp": sp.exp,
    "log": sp.log,
    "pos": lambda y: _above(y, 1),
    "step": lambda y: _above(y, 0),
    "Int": lambda f: _functional(SpectralIntegral, f),
    "Pair": lambda f: _functional(SpectralPair, f),
}


def _functional(kind: type, integrand: sp.Expr) -> sp.Expr:
    # (y)_+ (y)_+ = (y)_+^2.
    merged = integrand.replace(
        lambda e: e.is_Pow and isinstance(e.base, PositivePart) and e.exp.is_Integer and e.exp > 0,
        lambda e: PositivePart(e.base.args[0], e.base.args[1] * e.exp),
    )
    return sp.Add(*(kind(term, s.M, s.C) for term in sp.Add.make_args(sp.expand(merged))))


def read_expression(text: str, names: Names) -> sp.Expr:
    """Read a formula.

    Raises
    ------
    ProblemError
        It is no formula, or holds a name or function that is not known.
    """
    prepared = text.replace("^", "**").strip()
    try:
        tree = ast.parse(prepared, mode="eval")
        return _Reader(prepared, names).read(tree.body)
    except (SyntaxError, ValueError, RecursionError):
        raise ProblemError(f"cannot read the formula {text!r}") from None


def read_equation(text: str, names: Names) -> tuple[sp.Expr, sp.Expr]:
    """Both sides of ``left = right``."""
    sides = text.split("=")
    if len(sides) != 2:
        raise ProblemError(f"an equation has one equals sign: {text!r}")
    return read_expression(sides[0], names), read_expression(sides[1], names)


_MOST = 50  # no formula of the theory has a larger exponent


class _Reader:
    def __init__(self, text: str, names: Names) -> None:
        self.text, self.names = text, names

    def read(self, node: ast.expr) -> sp.Expr:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            # The digits as they were typed: 0.1 is 1/10.
            return exact(ast.get_source_segment(self.text, node) or "", "a number")
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                known = ", ".join(sorted(self.names))
                raise ProblemError(f"unknown symbol {node.id!r}: state it in [symbols], or use {known}")
            return self.names[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self.read(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._call(node.func.id, node.args)
        raise ProblemError(f"cannot read {ast.get_source_segment(self.text, node)!r} in a formula")

    def _binary(self, node: ast.BinOp) -> sp.Expr:
        left, right = self.read(node.left), self.read(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div) and right != 0:
            return left / right
        if isinstance(node.op, ast.Pow) and right.is_Rational and abs(right) <= _MOST:
            return left**right
        raise ProblemError(f"cannot read {ast.get_source_segment(self.text, node)!r} in a formula")

    def _call(self, name: str, arguments: list[ast.expr]) -> sp.Expr:
        if name not in _FUNCTIONS or len(arguments) != 1:
            raise ProblemError(f"unknown function {name!r}: choose from {', '.join(_FUNCTIONS)}")
        return _FUNCTIONS[name](self.read(arguments[0]))
