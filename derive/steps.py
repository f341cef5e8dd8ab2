"""A derivation is a chain of steps that can be printed and replayed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sympy as sp

from derive.generate import latex

__all__ = ["Step", "render"]


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
    """

    name: str
    definition: sp.Basic
    operation: str
    result: sp.Basic


def _as_text(steps: Sequence[Step]) -> str:
    blocks = []
    for number, step in enumerate(steps, 1):
        blocks.append(
            f"{number}. {step.name}\n"
            f"   definition  {step.definition}\n"
            f"   step        {step.operation}\n"
            f"   result      {step.result}"
        )
    return "\n\n".join(blocks)


def _as_latex(steps: Sequence[Step]) -> str:
    lines = []
    for step in steps:
        words = f"{step.name}.}} {step.operation}.".replace("_", r"\_")
        lines.append(r"\paragraph{" + words)
        lines.append(rf"\[ {latex(step.definition)} \]")
        lines.append(rf"\[ \Longrightarrow\quad {latex(step.result)} \]")
    return "\n".join(lines)


def _as_json(steps: Sequence[Step]) -> str:
    rows = [
        {
            "name": s.name,
            "definition": str(s.definition),
            "step": s.operation,
            "result": str(s.result),
            "latex": latex(s.result),
        }
        for s in steps
    ]
    return json.dumps(rows, indent=2)


_RENDERERS = {"text": _as_text, "latex": _as_latex, "json": _as_json}


def render(steps: Sequence[Step], fmt: str = "text") -> str:
    """Print a chain of steps as ``text``, ``latex`` or ``json``."""
    return _RENDERERS[fmt](steps)
