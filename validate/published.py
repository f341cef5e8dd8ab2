"""Published numbers of softmax attention: state evolution, trained networks, ranks, as CSV files.

The letters of the public files (data/extensive_attention): q_hat = 4 C, m_hat = 2 M, sigma_hat = 2 A,
sigma = V, `train` of the state evolution the whole objective per d^2. kappa0, lam and noise stand in
the columns (rho_star, lambda, Delta) or in the file's name (kappa_, lreg_, noise_).
"""

import csv
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from derive.exact import ProblemError, exact
from derive.model import Problem
from derive.targets import MarchenkoPastur
from numerics.solution import NotConverged, Solution
from numerics.state_evolution import solve, solve_optimal

__all__ = [
    "PublishedRow",
    "compare_published",
    "header",
    "is_published",
    "named_parameters",
    "read_published",
]

Reading = Callable[[dict[str, float]], float]

# Quantity of the theory: how a row states it, and its standard deviation where it has one.
_STATE_EVOLUTION: dict[str, tuple[str, float]] = {
    "q": ("q", 1),
    "m": ("m", 1),
    "V": ("sigma", 1),
    "A": ("sigma_hat", 1 / 2),
    "M": ("m_hat", 1 / 2),
    "C": ("q_hat", 1 / 4),
    "excess_risk": ("MSE", 1),
    "test_loss": ("test", 1),
    "energy": ("train", 1),
    "rank_fraction": ("rank", 1),
}
_TRAINED: dict[str, tuple[str, str]] = {
    "test_loss": ("test_error_mean", "test_err_std"),
    "energy": ("loss_mean", "loss_std"),
}
_TRAINED_D: dict[str, tuple[str, str]] = {
    "excess_risk": ("MSE_mean", "MSE_std"),
    "test_loss": ("_test_err_mean", "_test_err_std"),
    "energy": ("train_total_loss_mean", "train_total_loss_std"),
}
_NAMED = {
    "alpha": r"alpha_([0-9.]+)",
    "kappa0": r"kappa_([0-9.]+)",
    "lam": r"lreg_([0-9.e-]+)",
    "noise": r"noise_([0-9.]+)",
}
_COLUMNS = {"kappa0": "rho_star", "lam": "lambda", "noise": "Delta", "tokens": "L"}


@dataclass(frozen=True)
class PublishedRow:
    """One line: the problem it is about, and (value, standard deviation or None) by quantity."""

    problem: Problem
    optimal: bool
    values: dict[str, tuple[float, float | None]]


def is_published(path: Path) -> bool:
    """Whether the header is that of a published softmax file: ``alpha`` and a quantity we know.

    Raises
    ------
    ProblemError
        The file cannot be read.
    """
    columns = set(header(path))
    known = {name for name, _ in _STATE_EVOLUTION.values()} | {"test_error_mean", "_test_err_mean"}
    return "alpha" in columns and bool(columns & known)


def header(path: Path) -> list[str]:
    """Column names of a CSV file."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ProblemError(f"cannot read {path}: {error}") from None


def read_published(path: Path, stated: dict[str, str | None]) -> list[PublishedRow]:
    """Read a file; what its name and columns leave open comes from ``stated``.

    Parameters
    ----------
    stated : dict
        ``kappa0``, ``lam`` (a number or ``optimal``), ``noise`` and ``tokens`` as given by the user,
        None where not.

    Raises
    ------
    ProblemError
        A parameter is missing, or a row is broken (its line is named).
    """
    named, task = named_parameters(path)
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        for row in reader:
            try:
                rows.append(_row(row, task, named, stated, path.stem))
            except ProblemError as error:
                raise ProblemError(f"{path} line {reader.line_num}: {error}") from None
    if not rows:
        raise ProblemError(f"{path} has no rows")
    alphas = [row.problem.alpha for row in rows]
    if alphas != sorted(alphas):  # not a curve, so its roughness says nothing
        return rows
    scattered = [row for row in rows if all(s is None for _, s in row.values.values())]
    return _with_scatter(rows) if len(scattered) == len(rows) else rows


def named_parameters(path: Path) -> tuple[dict[str, str | None], str]:
    """What the name of a file says, and the task."""
    named = {k: (re.search(p, path.stem) or ["", None])[1] for k, p in _NAMED.items()}
    return named, "seq2seq" if "seq2seq" in path.stem else "seq2lab"


def _row(
    row: dict[str | Any, Any],
    task: str,
    named: dict[str, str | None],
    stated: dict[str, str | None],
    stem: str,
) -> PublishedRow:
    def parameter(name: str, default: str | None = None) -> str:
        found = stated.get(name) or row.get(_COLUMNS[name]) or named.get(name) or default
        if found is None:
            raise ProblemError(f"{name} is neither in the columns nor in the file's name: state it")
        return str(found)

    numbers = {k: float(exact(v, k)) for k, v in row.items() if k and _is_number(v)}
    if "alpha" not in numbers:
        raise ProblemError(f"alpha must be a number, not {row.get('alpha')!r}")
    lam = parameter("lam", "optimal" if "cross_validation" in stem else None)
    optimal = lam == "optimal"
    tokens = exact(parameter("tokens", "2"), "tokens")
    problem = Problem(
        MarchenkoPastur(parameter("kappa0")),
        exact(row["alpha"], "alpha"),
        0 if optimal else lam,
        parameter("noise"),
        task=task,
        tokens=tokens,
    )
    values = _values(numbers)
    missing = [c for c in row if c is not None and row[c] is None]
    if missing or None in row or not values:
        raise ProblemError("fields are missing" if missing or not values else "too many fields")
    return PublishedRow(problem, optimal, values)


def _is_number(text: Any) -> bool:
    try:
        exact(text)
    except ProblemError:
        return False
    return True


def _values(numbers: dict[str, float]) -> dict[str, tuple[float, float | None]]:
    if "_test_err_mean" in numbers:
        scale = {"energy": numbers["D"] ** -2}
        return {
            key: (numbers[mean] * scale.get(key, 1), numbers[std] * scale.get(key, 1))
            for key, (mean, std) in _TRAINED_D.items()
        }
    if "test_error_mean" in numbers:
        return {key: (numbers[mean], numbers[std]) for key, (mean, std) in _TRAINED.items()}
    return {
        key: (numbers[name] * factor, None)
        for key, (name, factor) in _STATE_EVOLUTION.items()
        if name in numbers
    }


def _with_scatter(rows: list[PublishedRow]) -> list[PublishedRow]:
    """Monte-Carlo scatter of a curve from its roughness, where none is published.

    The second difference of independent errors has six times their variance; its robust scale over
    the neighbouring eleven points, relative to the value, is the scatter of a point.
    """
    if len(rows) < 11:
        return rows
    scatter: dict[str, list[float]] = {}
    for key in rows[0].values:
        v = [row.values[key][0] for row in rows]
        rough = [
            abs(v[i - 1] - 2 * v[i] + v[i + 1]) / (abs(v[i]) or 1) / 6**0.5 for i in range(1, len(v) - 1)
        ]
        rough = [rough[0], *rough, rough[-1]]
        scatter[key] = [
            1.4826 * statistics.median(rough[max(i - 5, 0) : i + 6]) * abs(v[i]) for i in range(len(v))
        ]
    return [
        PublishedRow(
            row.problem, row.optimal, {k: (v, scatter[k][i]) for k, (v, _) in row.values.items()}
        )
        for i, row in enumerate(rows)
    ]


def compare_published(
    rows: list[PublishedRow], tolerance: float, known: Callable[[str, Callable[[], Any]], Any]
) -> Iterator[list[dict[str, Any]]]:
    """Theory next to every published number, one list for each row, continuing along alpha.

    Parameters
    ----------
    tolerance : float
        Error estimate of the solves.
    known : callable
        ``Ledger.get``: the stored result under a key, or a fresh one.

    Yields
    ------
    list of dict
        ``alpha``, ``quantity``, ``published``, ``deviation`` (over seeds, or Monte-Carlo scatter),
        ``theory``, ``ratio`` = theory/published, ``z`` = (published - theory)/deviation; with
        ``failure`` in place of the last three where the solve did not converge.
    """
    previous: Solution | None = None

    def solved(row: PublishedRow) -> dict[str, Any]:
        nonlocal previous
        try:
            if row.optimal:
                previous = solve_optimal(row.problem, tolerance=tolerance)
            else:
                previous = solve(row.problem, start=previous, tolerance=tolerance)
        except NotConverged as failure:
            previous = None
            return {"failure": str(failure)}
        return previous.to_dict()

    for row in rows:
        key = f"{row.problem.describe()} optimal={row.optimal} tolerance={tolerance}"
        found = known(key, partial(solved, row))
        yield [_comparison(row, name, found) for name in row.values]


def _comparison(row: PublishedRow, name: str, found: dict[str, Any]) -> dict[str, Any]:
    value, deviation = row.values[name]
    out = {"alpha": float(row.problem.alpha), "quantity": name}
    out |= {"published": value, "deviation": deviation}
    if "failure" in found:
        return out | {"theory": None, "ratio": None, "z": None, "failure": found["failure"]}
    theory = float(found[name])
    z = (value - theory) / deviation if deviation else None
    return out | {"theory": theory, "ratio": theory / value if value else None, "z": z}
