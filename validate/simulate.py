"""Many training runs of one problem, each stored as soon as it is done."""

from collections.abc import Iterator
from typing import Any

import torch

from derive.exact import ProblemError
from derive.model import Problem
from numerics.sweep import Ledger
from validate.data import SENSING, draw_target, sample_size
from validate.optimise import OPTIMIZERS
from validate.train import resolve_device, train

__all__ = ["check_runs", "simulate"]


def simulate(
    problem: Problem,
    d: int,
    seeds: int,
    *,
    optimizer: str = "lbfgs",
    sensing: str = "tokens",
    device: str = "cpu",
    batch: int | None = None,
    precision: str = "float64",
    ledger: Ledger | None = None,
) -> Iterator[dict[str, Any]]:
    """Train with seeds 0, 1, ...; yields measured numbers, spectrum and whether the run converged.

    Raises
    ------
    ProblemError
        Unknown optimizer, sensing or device; fewer than two seeds; d below 2.
    """
    _check_known("optimizer", optimizer, OPTIMIZERS)
    if batch is not None and (optimizer != "adam" or batch < 1):
        raise ProblemError("mini-batches of at least one sample are for the adam optimizer")
    if precision not in ("float64", "float32"):
        raise ProblemError(f"unknown precision {precision!r}: choose from float64, float32")
    check_runs(problem, d, seeds, sensing, device)
    options = {
        "optimizer": optimizer,
        "sensing": sensing,
        "device": device,
        "batch": batch,
        "precision": precision,
    }
    return _runs(problem, d, seeds, options, ledger or Ledger(None))


def check_runs(problem: Problem, d: int, seeds: int, sensing: str, device: str) -> None:
    """Fail before the work, not in it.

    Raises
    ------
    ProblemError
        Unknown sensing or device; fewer than two seeds; d below 2; no sample or no target at this d.
    """
    _check_known("sensing", sensing, SENSING)
    if seeds < 2:
        raise ProblemError(f"seeds must be at least 2, not {seeds}: one run has no standard error")
    if d < 2:
        raise ProblemError(f"d must be at least 2, not {d}")
    resolve_device(device)
    sample_size(problem, d)
    draw_target(problem, d, torch.Generator())


def _check_known(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ProblemError(f"unknown {name} {value!r}: choose from {', '.join(known)}")


def _runs(
    problem: Problem, d: int, seeds: int, options: dict[str, Any], ledger: Ledger
) -> Iterator[dict[str, Any]]:
    stated = " ".join(str(v) for k, v in options.items() if k != "device" and v is not None)
    for seed in range(seeds):
        key = f"{problem.describe()} d={d} seed={seed} {stated} eigenvectors"

        def compute(seed: int = seed) -> dict[str, Any]:
            run = train(problem, d, seed, **options)
            return {
                "measured": run.measured,
                "spectrum": list(run.spectrum),
                "eigenvectors": run.eigenvectors.to_dict(),
                "gradient": run.gradient,
                "converged": run.converged,
            }

        yield ledger.get(key, compute)
