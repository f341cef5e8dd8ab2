"""Theory against trained networks in standard errors, and against published tables of them."""

import csv
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from derive.exact import ProblemError, exact
from derive.model import Problem
from derive.targets import PowerLaw
from numerics.state_evolution import solve

__all__ = [
    "COLUMNS",
    "QUANTITIES",
    "compare_row",
    "problem_of",
    "read_table",
    "standardise",
    "summarise",
]

QUANTITIES = ("q", "m", "excess_risk", "train_loss", "test_loss", "trace")
COLUMNS = ("d", "n", "gamma", "noise", "lam", "width", "mse_mean", "mse_std")


@dataclass(frozen=True)
class Comparison:
    """One quantity: theory, mean over seeds, standard error of the mean, and their ratio z."""

    quantity: str
    theory: float
    simulation: float
    standard_error: float

    @property
    def z(self) -> float:
        """(simulation - theory) / standard error."""
        if self.standard_error == 0:
            return 0.0 if self.simulation == self.theory else float("inf")
        return (self.simulation - self.theory) / self.standard_error

    def row(self) -> dict[str, Any]:
        """As a row of a table, z included."""
        return asdict(self) | {"z": self.z}


def standardise(
    theory: dict[str, Any], runs: list[dict[str, float]], names: Iterable[str] = QUANTITIES
) -> list[Comparison]:
    """Compare the mean over runs with theory, in standard errors of the mean.

    Raises
    ------
    ProblemError
        Fewer than two runs: no standard error.
    """
    if len(runs) < 2:
        raise ProblemError("a standard error needs at least two seeds")
    rows = []
    for name in names:
        values = [run[name] for run in runs]
        error = statistics.stdev(values) / len(values) ** 0.5
        rows.append(Comparison(name, float(theory[name]), statistics.fmean(values), error))
    return rows


def read_table(path: Path) -> list[dict[str, str]]:
    """Read a CSV of trained networks with the columns of `COLUMNS`.

    Raises
    ------
    ProblemError
        The file cannot be read, a column is missing, or a row is broken (its line is named).
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [c for c in COLUMNS if c not in (reader.fieldnames or ())]
            if missing:
                raise ProblemError(f"{path} lacks the column {missing[0]!r}")
            rows = [_checked(row, path, reader.line_num) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProblemError(f"cannot read {path}: {error}") from None
    if not rows:
        raise ProblemError(f"{path} has no rows")
    return rows


def _checked(row: dict[str | None, Any], path: Path, line: int) -> dict[str, str]:
    try:
        if None in row:
            raise ProblemError("too many fields")
        for column in COLUMNS:
            exact(row[column] if row[column] is not None else "", column)
        for column in ("d", "width"):
            if not exact(row[column], column).is_Integer:
                raise ProblemError(f"{column} must be a whole number, not {row[column]}")
        checked = {str(key): str(value) for key, value in row.items()}
        problem_of(checked)
    except ProblemError as error:
        raise ProblemError(f"{path} line {line}: {error}") from None
    return checked


def problem_of(row: dict[str, str]) -> Problem:
    """The problem of one row; a width of d or more is full width."""
    number = {column: exact(row[column], column) for column in COLUMNS}
    d, width = int(number["d"]), int(number["width"])
    target = PowerLaw(number["gamma"], d)
    return Problem(
        target=target,
        alpha=number["n"] / d**2,
        lam=number["lam"],
        noise=number["noise"],
        width=width if width < d else None,
    )


def compare_row(row: dict[str, str]) -> dict[str, Any]:
    """Add ``theory`` (R), ``ratio`` = theory/mse_mean and ``z`` to a row.

    z counts standard deviations over seeds, (mse_mean - theory)/mse_std, as the table gives no number of
    seeds; it is null where the table's deviation is zero.
    """
    theory = float(solve(problem_of(row)).values["excess_risk"])
    mean, deviation = float(row["mse_mean"]), float(row["mse_std"])
    numbers = {k: float(v) if k in COLUMNS else v for k, v in row.items()}
    z = (mean - theory) / deviation if deviation else None
    return numbers | {"theory": theory, "ratio": theory / mean if mean else None, "z": z}


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and worst relative distance of the ratio from one, next to the rows."""
    distances = [abs(row["ratio"] - 1) for row in rows if row["ratio"] is not None]
    worst = max(distances, default=None)
    return {
        "rows": rows,
        "median": statistics.median(distances) if distances else None,
        "worst": worst,
    }
