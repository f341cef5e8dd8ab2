"""Trained softmax attention against theory on a grid; resumes from its store.

    python examples/softmax_grid.py --sizes 60,100 --seeds 8 --store grid.jsonl > grid.csv

T = 2, kappa0 = 1/2, Delta = 1/10: alpha in {0.2, 0.5, 1, 2}, lam in {0.005, 0.02, 0.1}, noise inside and
outside the softmax. Hours for all of it; an interrupted run loses one network at most.
"""

import argparse
import sys
from itertools import product
from pathlib import Path

import torch

from derive import MarchenkoPastur, Problem
from numerics import solve
from numerics.sweep import Ledger
from validate.compare import standardise
from validate.simulate import simulate
from validate.spectrum import compare_spectrum
from validate.tables import as_csv


def cell(d, alpha, lam, noise_at, sensing, seeds, ledger):
    """Rows of one point of the grid: theory, simulation, standard error, z, and the spectrum."""
    problem = Problem(
        MarchenkoPastur("1/2"), alpha, lam, "1/10", task="seq2lab", tokens=2, noise_at=noise_at
    )
    theory = solve(problem, tolerance=1e-4)
    runs = list(simulate(problem, d, seeds, sensing=sensing, ledger=ledger))
    match = compare_spectrum(theory, [tuple(run["spectrum"]) for run in runs])
    where = {"d": d, "alpha": alpha, "lam": lam, "noise_at": noise_at, "sensing": sensing}
    numbers = {"ks": match.ks, "rank": match.rank_simulated, "rank_theory": match.rank_theory}
    numbers |= {"jumps": theory.extras["jump_fraction"], "error_estimate": theory.error_estimate}
    return [
        where
        | {"quantity": c.quantity, "theory": c.theory, "simulation": c.simulation}
        | {"standard_error": c.standard_error, "z": c.z}
        | numbers
        for c in standardise(theory.values, [run["measured"] for run in runs])
    ]


def main():
    """Parse, run the grid, print CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="60")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--sensing", default="tokens")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ledger, rows = Ledger(options.store), []
    grid = product(
        map(int, options.sizes.split(",")),
        ("inside", "outside"),
        ("0.2", "0.5", "1", "2"),
        ("0.1", "0.02", "0.005"),
    )
    for d, noise_at, alpha, lam in grid:
        found = cell(d, alpha, lam, noise_at, options.sensing, options.seeds, ledger)
        print(
            d, noise_at, alpha, lam, *(f"{r['quantity']} {r['z']:.1f}" for r in found), file=sys.stderr
        )
        rows += found
    print(as_csv(rows), end="")


if __name__ == "__main__":
    main()
