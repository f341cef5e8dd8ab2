"""A derivation is a chain of steps that can be printed, replayed, and checked one by one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy as sp

from derive.generate import latex

__all__ = ["Check", "Step", "mutations", "render"]

Check = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Step:
    """One step: from a definition, by an operation, to a result.

    Attributes
    ----------
    name : str
        Short name by which later steps and tests refer to it.
    definition : sympy.Basic
        What the step starts from.
    operation : str
        What is done to it, in words.
    result : sympy.Basic
        What comes out.
    assumptions : tuple of str
        What the operation takes for granted.
    check : callable, optional
        (definition, result) -> whether the one follows from the other, by another way than the one that
        made the result: explicit matrices, small numbers of replicas, moments.
    """

    name: str
    definition: sp.Basic
    operation: str
    result: sp.Basic
    assumptions: tuple[str, ...] = ()
    check: Check | None = field(default=None, compare=False, repr=False)

    def verify(self) -> bool:
        """Run the step's own check; it needs no other step.

        Raises
        ------
        ValueError
            The step has none.
        """
        if self.check is None:
            raise ValueError(f"the step {self.name!r} has no check of its own")
        return bool(self.check(self.definition, self.result))


def mutations(expression: sp.Basic) -> list[sp.Basic]:
    """The expression with one coefficient wrong, for each of its coefficients; a check must refuse all.

    Every number is raised by one, and every term of a sum and every side that is stated is doubled. Left
    sides (what is being defined) stay.
    """
    if isinstance(expression, sp.Tuple):
        parts = list(expression)
        return [
            sp.Tuple(*parts[:i], changed, *parts[i + 1 :])
            for i, part in enumerate(parts)
            for changed in mutations(part)
        ]
    if isinstance(expression, sp.Eq):
        return [sp.Eq(expression.lhs, changed, evaluate=False) for changed in mutations(expression.rhs)]
    if isinstance(expression, sp.MatrixBase):
        return [
            sp.ImmutableMatrix(expression.rows, expression.cols, [*entries[:i], new, *entries[i + 1 :]])
            for entries in [list(expression)]
            for i, entry in enumerate(entries)
            for new in ([entry + 1] if entry == 0 else mutations(entry))
        ]
    changed = [2 * expression, *_inside(expression)]
    return [new for new in changed if new != expression]


def _inside(expression: sp.Basic) -> list[sp.Basic]:
    if expression.is_Number:
        return [expression + 1]
    if not expression.args or isinstance(expression, sp.Indexed):
        return []
    changed = []
    for i, argument in enumerate(expression.args):
        inner = [] if isinstance(argument, sp.Tuple) else _inside(argument)  # limits of a sum
        if expression.is_Add:
            inner.append(2 * argument)
        for new in inner:
            changed.append(expression.func(*expression.args[:i], new, *expression.args[i + 1 :]))
    return [new for new in changed if new != expression]


def _as_text(steps: Sequence[Step]) -> str:
    blocks = []
    for number, step in enumerate(steps, 1):
        lines = [
            f"{number}. {step.name}",
            f"   definition  {step.definition}",
            f"   step        {step.operation}",
            *(f"   assumes     {words}" for words in step.assumptions),
            f"   result      {step.result}",
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


# A formula wider than the page is scaled down to it.
_PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[a4paper,margin=25mm]{geometry}
\usepackage{amsmath,amssymb,graphicx}
\setlength{\parindent}{0pt}
\newsavebox{\formula}
\newcommand{\shown}[1]{\sbox{\formula}{$\displaystyle #1$}%
  \[\ifdim\wd\formula>0.95\linewidth\resizebox{0.95\linewidth}{!}{\usebox{\formula}}%
  \else\usebox{\formula}\fi\]}
\begin{document}
"""


def _as_latex(steps: Sequence[Step]) -> str:
    lines = [_PREAMBLE]
    for step in steps:
        lines.append(rf"\paragraph{{{_prose(step.name)}.}} {_prose(step.operation)}.")
        lines += [rf"\emph{{Assumed: {_prose(words)}.}}" for words in step.assumptions]
        lines.append(rf"\shown{{{latex(step.definition)}}}")
        lines.append(rf"\shown{{\Longrightarrow\quad {latex(step.result)}}}")
    return "\n".join([*lines, r"\end{document}"])


def _prose(words: str) -> str:
    """Words in which formulas stand as plain text."""
    table = {c: f"\\{c}" for c in "_%&#{}$"} | {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
    table |= {"<": r"\textless{}", ">": r"\textgreater{}"}
    return "".join(table.get(character, character) for character in words)


def _as_json(steps: Sequence[Step]) -> str:
    rows = [
        {
            "name": s.name,
            "definition": str(s.definition),
            "step": s.operation,
            "result": str(s.result),
            "latex": latex(s.result),
        }
        | ({"assumptions": list(s.assumptions)} if s.assumptions else {})
        for s in steps
    ]
    return json.dumps(rows, indent=2)


_RENDERERS = {"text": _as_text, "latex": _as_latex, "json": _as_json}


def render(steps: Sequence[Step], fmt: str = "text") -> str:
    """Print a chain of steps as ``text``, ``latex`` (a document that compiles) or ``json``."""
    return _RENDERERS[fmt](steps)
