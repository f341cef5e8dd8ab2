"""The staircase of R(n) in three regimes: trained networks and the state evolution, in standard errors.

    python examples/staircase.py --d 100 --seeds 6 --store staircase.jsonl > staircase.csv

Power-law target, gamma = 3/2, linear task, Gaussian sensing or tokens. The regimes are those of
`onehead exponents`: data-limited (no noise, small lam), noise-limited (lam at the edge of the noise) and
over-regularised (lam far above it).
"""

import argparse
import sys
from pathlib import Path

from rich.progress import track

from derive import PowerLaw, Problem, exact
from numerics import solve
from numerics.sweep import Ledger
from validate.compare import standardise
from validate.simulate import simulate
from validate.tables import as_csv

# Regime, Delta, lam, and n/d.
REGIMES = (
    ("data-limited", "0", "0.002", ("4", "8", "16", "32")),
    ("noise-limited", "1", "optimal", ("4", "8", "16", "32")),
    ("over-regularised", "0", "1", ("8", "16", "32", "64")),
)


def main() -> None:
    """Print one row for each regime and n."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--sensing", default="tokens")
    parser.add_argument("--store", type=Path)
    options = parser.parse_args()
    ledger, target, rows = Ledger(options.store), PowerLaw("3/2", options.d), []
    cells = [(name, noise, lam, n) for name, noise, lam, counts in REGIMES for n in counts]
    for name, noise, lam, n in track(cells, description="cells", transient=True):
        alpha = exact(n) / options.d
        problem = Problem(target, alpha=alpha, lam=0 if lam == "optimal" else lam, noise=noise)
        if lam == "optimal":
            # theta = 2 tau with tau^2 = Delta/(4 alpha), rounded to three figures.
            edge = 8 * float(alpha) * (float(exact(noise)) / (4 * float(alpha))) ** 0.5
            problem = problem.at(lam=exact(f"{edge:.3g}"))
        theory = solve(problem)
        runs = list(simulate(problem, options.d, options.seeds, sensing=options.sensing, ledger=ledger))
        for found in standardise(theory.values, [run["measured"] for run in runs]):
            if found.quantity in ("excess_risk", "train_loss"):
                rows.append(
                    {
                        "regime": name,
                        "n": int(exact(n) * options.d),
                        "quantity": found.quantity,
                        "theory": found.theory,
                        "simulation": found.simulation,
                        "standard_error": found.standard_error,
                        "z": found.z,
                        "converged": sum(run["converged"] for run in runs),
                    }
                )
    sys.stdout.write(as_csv(rows))


if __name__ == "__main__":
    main()
