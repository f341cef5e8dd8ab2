"""Small penalties: state evolution with a global and a local prox, L-BFGS and Adam, side by side.

    python examples/small_lam.py > small_lam.csv

T = 2, kappa0 = Delta = 1/2, noise inside. The local prox follows the minimum that Newton reaches from
omega; the global one also starts at the label. Networks are trained on Gaussian sensing at d = 60, so
that finite-size effects of tokens do not enter.
"""

import argparse
import statistics
import sys

from derive import MarchenkoPastur, Problem
from numerics import NotConverged, solve
from numerics.prox import SoftmaxRows
from validate.tables import as_csv
from validate.train import train


class LocalRows(SoftmaxRows):
    """The prox that never looks beyond the minimum next to omega."""

    def minimise(self, omega, y, V, label, near):
        """Start at omega only."""
        return super().minimise(omega, y, V, omega, None)


def theory(problem, rows):
    """Quantities of the state evolution with a prox, or what went wrong."""
    import numerics.two_sided

    kept = numerics.two_sided.SoftmaxRows
    numerics.two_sided.SoftmaxRows = rows
    try:
        solution = solve(problem, tolerance=1e-3)
    except NotConverged as failure:
        return {"failure": str(failure)}
    finally:
        numerics.two_sided.SoftmaxRows = kept
    names = ("excess_risk", "train_loss", "test_loss", "energy", "V")
    found = {name: solution.values[name] for name in names}
    return found | solution.extras | {"error_estimate": solution.error_estimate}


def networks(problem, optimizer, seeds, d):
    """Mean and standard error of trained networks."""
    runs = [
        train(problem, d, seed, optimizer=optimizer, sensing="gaussian", steps=20_000)
        for seed in range(seeds)
    ]
    out = {"unconverged": sum(not run.converged for run in runs)}
    for name in ("excess_risk", "train_loss", "test_loss"):
        values = [run.measured[name] for run in runs]
        out[name] = statistics.fmean(values)
        out[f"{name}_error"] = statistics.stdev(values) / len(values) ** 0.5
    lam, alpha = float(problem.lam), float(problem.alpha)
    out["energy"] = statistics.fmean(
        alpha * run.measured["train_loss"] + lam * run.measured["trace"] for run in runs
    )
    return out


def main():
    """Print one line for each lam, alpha and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--d", type=int, default=60)
    options = parser.parse_args()
    rows = []
    for alpha in ("1/10", "1/2"):
        for lam in ("1e-2", "1e-3", "1e-4", "1e-5"):
            problem = Problem(MarchenkoPastur("1/2"), alpha, lam, "1/2", task="seq2lab", tokens=2)
            methods = {
                "global prox": lambda p=problem: theory(p, SoftmaxRows),
                "local prox": lambda p=problem: theory(p, LocalRows),
                "lbfgs": lambda p=problem: networks(p, "lbfgs", options.seeds, options.d),
                "adam": lambda p=problem: networks(p, "adam", options.seeds, options.d),
            }
            for name, run in methods.items():
                rows.append({"alpha": alpha, "lam": lam, "method": name} | run())
                print(as_csv(rows[-1:]), flush=True, file=sys.stderr)
    print(as_csv(rows), end="")


if __name__ == "__main__":
    main()
