"""Kolmogorov-Smirnov distance between trained spectra (seeds pooled) and theory as d grows.

Run as ``python examples/spectrum_distance.py [STORE]``; a rerun with the same store resumes. Half an
hour on two cores. It prints a table in Markdown: the distance between the laws of the nonzero
eigenvalues of S, the rank fraction, and the four terms of the error in standard errors.
"""

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track

from derive import MarchenkoPastur, Problem
from derive.overlaps import TERMS
from numerics import solve
from numerics.sweep import Ledger
from validate.compare import standardise
from validate.eigenvectors import Eigenvectors, EigenvectorTheory
from validate.simulate import simulate
from validate.spectrum import compare_spectrum
from validate.tables import Table, as_markdown

# Gaussian sensing is the control without the finite-size effect of real tokens; for the softmax task it
# takes hours at d = 180.
CASES = (
    (Problem(MarchenkoPastur("1/2"), alpha="1/2", lam="1/5", noise="1/10"), ("gaussian", "tokens")),
    (Problem(MarchenkoPastur("1/10"), alpha="1/2", lam="1/5", noise="1/10"), ("gaussian", "tokens")),
    (
        Problem(MarchenkoPastur("1/2"), alpha="1/2", lam="1/10", noise="1/2", task="seq2lab", tokens=2),
        ("tokens",),
    ),
)
# Seeds for about as many pooled eigenvalues at each size.
SIZES = {60: 18, 120: 9, 180: 6}


def row(problem: Problem, d: int, seeds: int, sensing: str, ledger: Ledger) -> list[object]:
    """One line of the table."""
    theory = solve(problem, tolerance=1e-4)
    runs = list(simulate(problem, d, seeds, sensing=sensing, ledger=ledger))
    match = compare_spectrum(theory, [tuple(run["spectrum"]) for run in runs])
    terms = EigenvectorTheory.of(theory)
    measured = [terms.measure(Eigenvectors.from_dict(run["eigenvectors"])) for run in runs]
    scores = [f"{c.z:+.1f}" for c in standardise(terms.values, measured, TERMS)]
    rank = f"{match.rank_simulated:.4f} ({match.rank_theory:.4f})"
    return [
        f"{problem.task}, kappa0 = {problem.target.kappa0}",
        sensing,
        d,
        seeds,
        f"{match.ks:.4f}",
        rank,
        ", ".join(scores),
    ]


def main() -> None:
    """Print the table."""
    ledger = Ledger(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    cases = [
        (problem, d, seeds, sensing)
        for problem, controls in CASES
        for sensing in controls
        for d, seeds in SIZES.items()
    ]
    shown = track(cases, description="sizes", console=Console(stderr=True), transient=True)
    rows = [row(*case, ledger) for case in shown]
    columns = ("problem", "sensing", "d", "seeds", "KS", "rank (theory)", "z of " + ", ".join(TERMS))
    print(as_markdown(Table("Trained spectra against theory", columns, rows)))


if __name__ == "__main__":
    main()
