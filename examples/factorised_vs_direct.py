"""Factorised (nuclear) against direct (Frobenius) training at the best penalty of each.

    python examples/factorised_vs_direct.py --plot gain.png > gain.csv

T = 2, Delta = 1/2 inside the softmax, against kappa0 at alpha in {0.3, 1}.
"""

import argparse
import sys
from pathlib import Path

import matplotlib

from derive import MarchenkoPastur, Problem
from numerics.state_evolution import solve_optimal
from validate.tables import as_csv


def row(kappa0, alpha):
    """Best test losses, their penalties, and the gain of factorised training."""
    base = Problem(MarchenkoPastur(kappa0), alpha, 1, "1/2", task="seq2lab", tokens=2)
    found = {
        name: solve_optimal(base.at(penalty=name), tolerance=1e-3) for name in ("nuclear", "frobenius")
    }
    nuclear, direct = found.values()
    return {
        "kappa0": kappa0,
        "alpha": alpha,
        "test_factorised": nuclear.test_loss,
        "test_direct": direct.test_loss,
        "R_factorised": nuclear.excess_risk,
        "R_direct": direct.excess_risk,
        "lam_factorised": float(nuclear.problem.lam),
        "lam_direct": float(direct.problem.lam),
        "R_ratio": direct.excess_risk / nuclear.excess_risk,
    }


def draw(rows, path):
    """R of both against kappa0, one panel for each alpha."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    alphas = list(dict.fromkeys(r["alpha"] for r in rows))
    figure, axes = plt.subplots(1, len(alphas), figsize=(7.5, 3.2), layout="constrained")
    for panel, alpha in zip(axes, alphas, strict=True):
        points = [r for r in rows if r["alpha"] == alpha]
        x = [float(r["kappa0"]) for r in points]
        panel.plot(x, [r["R_factorised"] for r in points], "o-", color="#0072B2", label="factorised")
        panel.plot(x, [r["R_direct"] for r in points], "s--", color="#D55E00", label="direct")
        panel.set_xlabel(r"$\kappa_0$")
        panel.set_title(rf"$R$ at the best $\lambda$, $\alpha$ = {alpha}")
        panel.set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)


def main():
    """Solve, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    rows = []
    for alpha in ("0.3", "1"):
        for kappa0 in ("0.05", "0.1", "0.2", "0.5", "1"):
            rows.append(row(kappa0, alpha))
            print(rows[-1], file=sys.stderr, flush=True)
    print(as_csv(rows), end="")
    if options.plot:
        draw(rows, options.plot)


if __name__ == "__main__":
    main()
