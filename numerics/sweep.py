"""Curves: many solves along alpha and lam, each started from its neighbour, resumable.

Every finished point is appended to a ledger file at once; a rerun reads it and computes what is missing.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import sympy as sp

from derive.exact import ProblemError, exact
from derive.model import Problem
from numerics.solution import Solution
from numerics.stability import record as solution_record
from numerics.state_evolution import solve, solve_optimal

__all__ = ["Ledger", "curve", "grid"]


class Ledger:
    """Finished results in a JSON-lines file, by key; without a file, in memory only.

    Raises
    ------
    ProblemError
        The file cannot be written, or holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        try:
            path.touch()
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ProblemError(f"cannot use {path} to store results: {error}") from None
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                self.rows[entry["key"]] = entry["row"]
            except (ValueError, KeyError, TypeError):
                # The last line may be cut short by an interruption; anything else is not ours.
                if number < len(lines):
                    raise ProblemError(f"{path} is not a store of results (line {number})") from None
                path.write_text("".join(f"{good}\n" for good in lines[:-1]), encoding="utf-8")

    def add(self, key: str, row: dict[str, Any]) -> None:
        """Store a finished row at once."""
        self.rows[key] = row
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "row": row}) + "\n")

    def get(self, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The row under ``key``, computed and stored if it is not there yet."""
        if key not in self.rows:
            self.add(key, compute())
        return self.rows[key]


def grid(text: str, name: str) -> list[sp.Expr]:
    """Read ``a``, ``a,b,c`` or ``start:stop:count`` (``start:stop:count:log``) exactly.

    Raises
    ------
    ProblemError
        Not one of these forms; a logarithmic range that does not start above zero.
    """
    if ":" not in text:
        return [exact(part, name) for part in text.split(",")]
    parts = text.split(":")
    if len(parts) not in (3, 4) or not parts[2].isdigit() or parts[3:] not in ([], ["log"]):
        raise ProblemError(
            f"{name} range must read start:stop:count or start:stop:count:log, not {text!r}"
        )
    start, stop, count = exact(parts[0], name), exact(parts[1], name), int(parts[2])
    if not 2 <= count <= 100_000:
        raise ProblemError(f"{name} range needs 2 to 100000 points, not {count}")
    if len(parts) == 3:
        return [start + (stop - start) * sp.Rational(i, count - 1) for i in range(count)]
    if not (start.is_positive and stop.is_positive):
        raise ProblemError(f"a logarithmic {name} range must lie above zero")
    # Inner points of a geometric range are rounded to 12 digits and then exact.
    ratio = (stop / start) ** sp.Rational(1, count - 1)
    inner = [exact(str(sp.N(start * ratio**i, 12)), name) for i in range(1, count - 1)]
    return [start, *inner, stop]


def curve(
    problem: Problem,
    alphas: Iterable[sp.Expr],
    lams: Iterable[sp.Expr] | None,
    digits: int = 15,
    ledger: Ledger | None = None,
    tolerance: float | None = None,
    record: Callable[[Solution], dict[str, Any]] = solution_record,
) -> Iterator[dict[str, Any]]:
    """Solve on a grid, continuing along alpha at each lam and along lam at the first alpha.

    Parameters
    ----------
    lams : iterable or None
        None asks for the penalty of least test loss at each alpha.
    tolerance : float, optional
        Of the quadrature of a softmax channel.
    record : callable
        What to keep of a solution; its name is part of a stored point's key.

    Yields
    ------
    dict
        ``alpha`` and the record; where the solve failed, ``failure`` with the reason.
    """
    ledger = ledger or Ledger(None)
    alphas = list(alphas)
    row_start: Solution | None = None
    for lam in [None] if lams is None else list(lams):
        previous = row_start
        for position, alpha in enumerate(alphas):
            point = problem.at(alpha=alpha, lam=0 if lam is None else lam)
            key = f"{record.__name__} {point.describe()}"
            key += f" lam={'optimal' if lam is None else lam} digits={digits}"
            if tolerance is not None and point.task != "linear":
                key += f" tolerance={tolerance}"
            row = ledger.rows.get(key)
            if row is None:
                previous, row = _solved(point, lam is None, digits, previous, tolerance, record)
                ledger.add(key, row)
            row_start = row_start if position else previous
            yield {"alpha": float(alpha) if digits <= 15 else str(sp.N(alpha, digits))} | row


def _solved(
    point: Problem,
    optimal: bool,
    digits: int,
    previous: Solution | None,
    tolerance: float | None,
    record: Callable[[Solution], dict[str, Any]],
) -> tuple[Solution | None, dict[str, Any]]:
    """Solve one point; a failure is a row as well, and the next point starts afresh."""
    try:
        if optimal:
            found = solve_optimal(point, digits, tolerance)
        else:
            found = solve(point, digits, previous, tolerance)
        return found, record(found)
    except ArithmeticError as failure:  # NotConverged is one
        lam = "optimal" if optimal else float(point.lam)
        return None, {"lam": lam, "alpha_bar": float(point.alpha_bar), "failure": str(failure)}
