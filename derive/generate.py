"""One generator: SymPy expressions to Python source and functions, float64 or mpmath, and LaTeX.

expressions -> common subexpressions -> source text -> compiled in the namespace of a backend. The
readable source *is* what runs. The backend (the numpy module, an mpmath context) is handed in by
the caller, so nothing here computes with floats.
"""

import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

import sympy as sp
from sympy.printing.numpy import SciPyPrinter
from sympy.printing.pycode import MpmathPrinter

from derive.symbols import LATEX_NAMES

__all__ = ["compile_function", "latex", "source"]

_PRINTERS = {"numpy": SciPyPrinter, "mpmath": MpmathPrinter}


def source(
    name: str, arguments: Sequence[sp.Symbol], outputs: Mapping[str, sp.Expr], backend: str
) -> str:
    """Python source of a function that returns the outputs as a tuple.

    Parameters
    ----------
    name : str
        Name of the function.
    arguments : sequence of sympy.Symbol
        Its positional arguments.
    outputs : mapping of str to sympy.Expr
        What it returns, in this order; the names go into its docstring.
    backend : {"numpy", "mpmath"}
        Rationals become floats in the first and exact quotients of mpf in the second.

    Raises
    ------
    ValueError
        An expression holds a Float, or a symbol that is not an argument.
    """
    expressions = [sp.sympify(e) for e in outputs.values()]
    for key, expression in zip(outputs, expressions, strict=True):
        if expression.has(sp.Float):
            raise ValueError(f"{key} holds a Float: {expression}")
        unknown = expression.free_symbols - set(arguments)
        if unknown:
            raise ValueError(f"{key} depends on {sorted(map(str, unknown))}, not an argument")
    printer = _PRINTERS[backend]({"fully_qualified_modules": False})
    shared, reduced = sp.cse(expressions, symbols=sp.numbered_symbols("_x"))
    lines = [f"def {name}({', '.join(map(str, arguments))}):"]
    lines.append(f'    """Return {", ".join(outputs)}."""')
    lines += [f"    {symbol} = {printer.doprint(value)}" for symbol, value in shared]
    values = [printer.doprint(value) for value in reduced]
    lines.append(f"    return ({', '.join(values)},)")
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=256)
def _compiled(
    name: str, arguments: tuple[sp.Symbol, ...], outputs: tuple[tuple[str, sp.Expr], ...], backend: str
) -> tuple[CodeType, frozenset[str]]:
    text = source(name, arguments, dict(outputs), backend)
    words = frozenset(re.findall(r"[A-Za-z_]\w*", text))
    return compile(text, f"<generated {name}>", "exec"), words


def compile_function(
    name: str,
    arguments: Sequence[sp.Symbol],
    outputs: Mapping[str, sp.Expr],
    backend: str,
    namespace: Any,
) -> Callable[..., tuple[Any, ...]]:
    """Compile `source` in a backend.

    Parameters
    ----------
    namespace : object
        Where the elementary functions come from: the numpy module, or one mpmath context, whose
        precision at the time of the call is the one that counts.
    """
    code, words = _compiled(name, tuple(arguments), tuple(outputs.items()), backend)
    scope: dict[str, Any] = {"__builtins__": builtins}
    scope.update({word: getattr(namespace, word) for word in words if hasattr(namespace, word)})
    exec(code, scope)
    return scope[name]


def latex(expression: sp.Basic) -> str:
    """Typeset with the letters of THEORY.md; a symbol whose name is a sentence stays one."""
    sentences = {
        symbol: rf"\text{{{re.sub('([_^])', _ESCAPED, symbol.name)}}}"
        for symbol in expression.atoms(sp.Symbol)
        if " " in symbol.name
    }
    return str(sp.latex(expression, symbol_names=sentences | LATEX_NAMES))


_ESCAPED = r"\\\1{}"
