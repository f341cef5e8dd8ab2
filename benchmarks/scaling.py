"""Merged tails against every mode kept, and the cost of the exponents, side by side in one run.

Run as ``python benchmarks/scaling.py`` (a few minutes: keeping a million modes is the baseline).
"""

import subprocess
import sys
import time

import numpy as np
from rich.console import Console

import numerics.float_solver
from derive import PowerLaw, Problem
from numerics.float_solver import FloatSolver, State
from numerics.laws import AtomicLaw, float_law

console = Console(width=110, highlight=False)
D, KEYS = 10**6, ("excess_risk", "tau", "theta", "train_loss")
# In the bulk (data- and noise-limited) and far above it.
CASES = (("1/1000", "1/1000000", "1/10"), ("1/100", "1", "1/100"))


def kept_law(target: PowerLaw) -> AtomicLaw:
    """Every mode an atom of its own."""
    raw = np.arange(1.0, target.d + 1) ** -float(target.gamma)
    scale = float(np.sqrt(target.d / (raw @ raw)))
    return AtomicLaw(scale * raw, np.full(target.d, 1 / target.d))


def solved(problem: Problem, law: AtomicLaw) -> tuple[float, dict[str, float]]:
    """Seconds and outputs of one float64 solve with a given law, without its error estimate."""
    numerics.float_solver.float_law = lambda target, fine=False: law  # type: ignore[assignment]
    try:
        solver = FloatSolver(problem)
    finally:
        numerics.float_solver.float_law = float_law
    start = time.perf_counter()
    with np.errstate(all="ignore"):
        state: State = solver.solve("shrinkage", None, 10.0)
    return time.perf_counter() - start, solver.outputs(state)


def main() -> None:
    """Print every ratio."""
    target = PowerLaw("3/2", D)
    every, merged = kept_law(target), float_law(target)
    assert isinstance(merged, AtomicLaw)
    console.print(f"d = {D}: {len(every.values)} modes kept, {len(merged.values)} after merging")
    for alpha, lam, noise in CASES:
        problem = Problem(target, alpha=alpha, lam=lam, noise=noise)
        fast = min(solved(problem, merged)[0] for _ in range(3))
        _, near = solved(problem, merged)
        slow, far = solved(problem, every)
        apart = max(abs(near[k] / far[k] - 1) for k in KEYS)
        console.print(
            f"alpha = {alpha}, lam = {lam}, Delta = {noise}: "
            f"all modes {slow:.1f} s, merged {fast * 1e3:.0f} ms"
        )
        console.print(f"  -> {slow / fast:,.0f} times faster, results apart by {apart:.0e}")
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import derive"], check=True)
    bare = time.perf_counter() - start
    command = "from derive.scaling import regimes; regimes(); regimes(None, False)"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", command], check=True)
    table = time.perf_counter() - start
    console.print(
        f"the symbolic table, full width and narrow, from scratch: {table:.1f} s, "
        f"{table / bare:.1f} times the import of the engine alone"
    )


if __name__ == "__main__":
    main()
