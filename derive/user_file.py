"""Read a user's equations from a TOML file: [problem], [symbols], equations (docs/check.md)."""

import tomllib
from pathlib import Path
from typing import Any

import sympy as sp

from derive.exact import ProblemError
from derive.expressions import ENGINE_NAMES, read_equation, read_expression
from derive.model import Problem

__all__ = ["read_user_file"]

_PROBLEM = ("task", "tokens", "penalty", "noise_at")


def read_user_file(path: Path) -> tuple[Problem, list[str], list[tuple[sp.Expr, sp.Expr]]]:
    """The problem, the equations as they were written, and as they are read.

    Raises
    ------
    ProblemError
        The file cannot be read, or something in it is not understood.
    """
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ProblemError(f"cannot read {path}: {error}") from None
    _known(path, stated, ("problem", "symbols", "equations"))
    problem, symbols = (_table(path, stated, name) for name in ("problem", "symbols"))
    _known(path, problem, _PROBLEM)
    equations = stated.get("equations")
    if (
        not isinstance(equations, list)
        or not equations
        or not all(isinstance(e, str) for e in equations)
    ):
        raise ProblemError(f'{path} needs a list of equations: equations = ["A = ...", ...], on top')
    names = dict(ENGINE_NAMES)
    for name, formula in symbols.items():
        if not isinstance(formula, str) or not name.isidentifier():
            raise ProblemError(f'{path}: [symbols] needs lines like Sigma = "2*V", not {name!r}')
        # In the engine's letters, whatever else has been renamed.
        names[name] = read_expression(formula, ENGINE_NAMES)
    return Problem(**problem), equations, [read_equation(each, names) for each in equations]


def _table(path: Path, stated: dict[str, Any], name: str) -> dict[str, Any]:
    table = stated.get(name, {})
    if not isinstance(table, dict):
        raise ProblemError(f"{path}: {name} must be a table, [{name}]")
    return table


def _known(path: Path, table: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in table:
        if name not in names:
            raise ProblemError(f"{path}: unknown entry {name!r}; choose from {', '.join(names)}")
