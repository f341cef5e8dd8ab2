"""Published learned spectra of softmax attention: a column of sqrt(eigenvalue of S), runs pooled."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive.exact import ProblemError
from derive.model import Problem
from derive.targets import MarchenkoPastur
from numerics.solution import Solution
from numerics.spectrum import learned_spectrum
from validate.published import header, named_parameters
from validate.spectrum import compare_spectrum

__all__ = ["is_published_spectrum", "read_spectrum", "spectrum_rows"]

_NEEDED = ("alpha", "kappa0", "lam", "noise")


def is_published_spectrum(path: Path) -> bool:
    """Whether the file is the single column ``eigenvalue``.

    Raises
    ------
    ProblemError
        The file cannot be read.
    """
    return header(path) == ["eigenvalue"]


def read_spectrum(path: Path, stated: dict[str, str | None]) -> tuple[Problem, NDArray[np.float64]]:
    """The problem that the file is about, and the eigenvalues of S (the file holds their roots).

    Parameters
    ----------
    stated : dict
        ``alpha``, ``kappa0``, ``lam``, ``noise`` and ``tokens`` as given by the user, None where the
        file's name is to say them (two tokens unless stated).

    Raises
    ------
    ProblemError
        A parameter is missing, or a line is not a number of at least zero (it is named).
    """
    named, task = named_parameters(path)
    found: dict[str, Any] = {k: stated.get(k) or named.get(k) for k in _NEEDED}
    for name in _NEEDED:
        if found[name] is None:
            raise ProblemError(f"{name} is not in the file's name: state it")
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    roots = []
    for number, line in enumerate(lines, 2):
        try:
            root = float(line)
        except ValueError:
            root = np.nan
        if not 0 <= root < np.inf:
            raise ProblemError(f"{path} line {number}: {line.strip()!r} is no root of an eigenvalue")
        roots.append(root)
    if len(roots) < 2:
        raise ProblemError(f"{path} has no spectrum")
    law = MarchenkoPastur(found.pop("kappa0"))
    problem = Problem(law, **found, task=task, tokens=stated.get("tokens") or 2)
    return problem, np.array(roots) ** 2


def spectrum_rows(solution: Solution, eigenvalues: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Trace, q, rank and upper edge of the pooled eigenvalues, next to theory."""
    match = compare_spectrum(solution, [tuple(eigenvalues)])
    spectrum = learned_spectrum(solution, 2)
    top = max((float(band.high) for band in spectrum.bands), default=0.0)
    pairs = {
        "trace": (float(eigenvalues.mean()), float(solution.values["trace"])),
        "q": (float((eigenvalues**2).mean()), float(solution.values["q"])),
        "rank_fraction": (match.rank_simulated, match.rank_theory),
        "largest eigenvalue": (float(eigenvalues.max()), top),
        "KS distance": (match.ks, 0.0),
    }
    return [
        {
            "quantity": name,
            "published": published,
            "theory": theory,
            "ratio": theory / published if theory and published else None,
        }
        for name, (published, theory) in pairs.items()
    ]
