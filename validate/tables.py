"""Tables as text, CSV and JSON."""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

__all__ = ["Table", "as_csv", "as_json", "as_latex", "as_markdown", "as_text"]


@dataclass(frozen=True)
class Table:
    """A titled table; every row has one entry for each column."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def records(self) -> list[dict[str, Any]]:
        """Rows by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows with the union of their keys as columns."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def as_json(data: Any) -> str:
    """JSON without NaN or Infinity, which are not JSON."""
    return json.dumps(_finite(data), indent=2, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return str(data)
    return data


def as_markdown(table: Table) -> str:
    """A pipe table."""
    lines = [f"**{table.title}**", "", _pipes(table.columns), _pipes(["---"] * len(table.columns))]
    lines += [_pipes([_cell(value) for value in row]) for row in table.rows]
    return "\n".join([*lines, "", *table.note.splitlines()])


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def as_latex(table: Table) -> str:
    """A booktabs table; what looks like a power is typeset as one."""
    lines = [r"\begin{tabular}{" + "l" * len(table.columns) + "}", r"\toprule"]
    lines += [" & ".join(map(_typeset, table.columns)) + r" \\", r"\midrule"]
    lines += [" & ".join(_typeset(_cell(value)) for value in row) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


_FORMULA = re.compile(r"(?:\b(?:gamma|lam|Delta|log|and|or|[ndpR])\b|[\d\s^*/()+\->.])+")
_LETTERS = {"gamma": r"\gamma", "lam": r"\lambda", "Delta": r"\Delta", "log": r"\log"}


def _typeset(cell: str) -> str:
    """Formulas in math mode; words stay words."""
    if _FORMULA.fullmatch(cell) and cell != "-":
        return f"${_formula(cell)}$"
    escaped = cell.replace("\\", r"\textbackslash ").replace("_", r"\_").replace("%", r"\%")
    escaped = escaped.replace("~", r"$\sim$").replace("^", r"\^{}").replace(">", "$>$")
    return escaped.replace("f(gamma)", r"$f(\gamma)$")


def _formula(text: str) -> str:
    text = re.sub(r"\^\(((?:[^()]|\([^()]*\))*)\)", r"^{\1}", text)
    text = re.sub(r"\^(\w+)", r"^{\1}", text)
    text = re.sub(r"\b(gamma|lam|Delta|log)\b", lambda found: _LETTERS[found[1]], text)
    text = re.sub(r" (and|or) ", lambda found: rf"\ \text{{{found[1]}}}\ ", text)
    return text.replace("*", r"\,")


def as_text(table: Table) -> str:
    """A rich table as plain text, as wide as it needs to be when not on a terminal."""
    width = None if sys.stdout.isatty() else 400
    console = Console(file=io.StringIO(), width=width, highlight=False)
    body = RichTable(box=None, pad_edge=False)
    for column in table.columns:
        body.add_column(column, overflow="fold")
    for row in table.rows:
        body.add_row(*(escape(_cell(value)) for value in row))
    console.print(table.title, style="bold")
    console.print(body)
    if table.note:
        console.print(table.note)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.12g}" if isinstance(value, float) else str(value)
