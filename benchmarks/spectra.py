"""Speed and accuracy of spectral densities, side by side in one run, as ratios against named baselines.

Run as ``python benchmarks/spectra.py``. Baselines: diagonalising sampled matrices, and, where they are
installed, freealg (atoms plus a semicircle) and scikit-rmt (the semicircle itself).

How Monte Carlo is charged for 1e-10: the error of a histogram over the same points falls at best like
(number of matrices)^(-1/2), which the run shows at the sizes it can afford; the time is scaled by the
square of what is missing. The bias of finite d and of the bins is left out, in the baseline's favour.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console

from derive import Atoms, MarchenkoPastur, Problem
from numerics import solve
from numerics.convolution import FreeConvolution
from numerics.laws import float_law, mp_law
from numerics.mp_convolution import MPConvolution
from numerics.precision import context
from numerics.spectrum import learned_spectrum

POINTS = 2000
GOAL = 1e-10
console = Console(width=110, highlight=False)


def median_time(work: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    """Median wall time after one warm-up, and the result."""
    result = work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), result


def error(target: Any, tau2: float, x: np.ndarray, density: np.ndarray, checks: int = 60) -> float:
    """Largest distance from a 30-digit density at some of the points."""
    ctx = context(30)
    exact = MPConvolution(mp_law(target, ctx), ctx.mpf(tau2), ctx)
    near = FreeConvolution(float_law(target), tau2)
    worst = 0.0
    for i in np.linspace(0, x.size - 1, checks).astype(int):
        point = exact.preimage(ctx.mpf(float(x[i])), near.preimage(float(x[i])))
        worst = max(worst, abs(float(-exact.map(point)[2].imag / ctx.pi) - float(density[i])))
    return worst


def sampled(kappa0: float, tau: float, edges: np.ndarray, runs: int, d: int = 400) -> np.ndarray:
    """Histogram of the eigenvalues of S0 + tau G over many matrices, as a density."""
    rng, counts = np.random.default_rng(0), np.zeros(edges.size - 1)
    for _ in range(runs):
        W0, G = rng.standard_normal((d, int(kappa0 * d))), rng.standard_normal((d, d))
        S0 = W0 @ W0.T / (kappa0 * d * d) ** 0.5
        values = np.linalg.eigvalsh(S0 + tau * (G + G.T) / (2 * d) ** 0.5)
        counts += np.histogram(values, edges)[0]
    return counts / (runs * d * np.diff(edges))


def against_monte_carlo() -> None:
    """The Marchenko-Pastur target at full sampling: two bands."""
    target = MarchenkoPastur("1/10")
    tau2 = 0.5
    nu = FreeConvolution(float_law(target), tau2)
    low, high = nu.bottom_edge(), nu.top_edge()
    edges = np.linspace(low, high, POINTS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    fast, density = median_time(lambda: nu.density(middle))
    # The gap holds no spectrum: its points are the same for both.
    near = error(target, tau2, middle, density)
    console.print(f"{POINTS} points of a density: {fast * 1e3:.1f} ms, error {near:.0e}")
    spread = {}
    for runs in (10, 40):
        start = time.perf_counter()
        histogram = sampled(0.1, tau2**0.5, edges, runs)
        taken = time.perf_counter() - start
        spread[runs] = float(np.sqrt(np.mean((histogram - density) ** 2)))
        console.print(
            f"{runs} matrices, d = 400, diagonalised: {taken:.1f} s, error {spread[runs]:.1e}"
            f" -> {taken / fast:,.0f} times slower at that error"
        )
    falls = np.log(spread[10] / spread[40]) / np.log(4)
    needed = taken * (spread[40] / GOAL) ** 2
    console.print(
        f"  error ~ matrices^(-{falls:.2f}); scaled to {GOAL:.0e}: {needed / fast:.0e} times slower"
    )


def against_freealg() -> None:
    """Three atoms plus a semicircle, which freealg calls the deformed Wigner law."""
    try:
        from freealg.distributions import DeformedWigner
    except ModuleNotFoundError as missing:
        console.print(f"freealg: {missing.name} is not installed")
        return
    target, tau2 = Atoms((0, 1, 3)), 1.0
    nu = FreeConvolution(float_law(target), tau2)
    x = np.linspace(nu.bottom_edge(), nu.top_edge(), POINTS + 2)[1:-1]
    fast, mine = median_time(lambda: nu.density(x))
    console.print(f"atoms 0, 1, 3: {fast * 1e3:.1f} ms, error {error(target, tau2, x, mine):.0e}")
    other = DeformedWigner([0, 1, 3], [1 / 3] * 3, sigma=tau2**0.5)
    for eta in (1e-3, 1e-8, 1e-12):
        slow, theirs = median_time(lambda eta=eta: other.density(x, eta=eta), 3)
        far = error(target, tau2, x, theirs)
        console.print(
            f"freealg, eta = {eta:.0e}: {slow * 1e3:.0f} ms, error {far:.0e}"
            f" -> {slow / fast:.1f} times slower"
        )


def against_scikit_rmt() -> None:
    """The semicircle, the one law of S0 + tau G that scikit-rmt has."""
    try:
        from skrmt.ensemble.spectral_law import WignerSemicircleDistribution
    except ImportError as missing:  # it needs SciPy 1.11 and NumPy 1.26
        console.print(f"scikit-rmt is not usable here: {missing}")
        return
    target = Atoms((0,))
    nu = FreeConvolution(float_law(target), 1.0)
    x = np.linspace(-2, 2, POINTS + 2)[1:-1]
    fast, mine = median_time(lambda: nu.density(x))
    closed = WignerSemicircleDistribution(beta=1, center=0.0, sigma=1.0)
    slow, theirs = median_time(lambda: closed.pdf(x))
    console.print(
        f"semicircle: {fast * 1e3:.1f} ms, error {error(target, 1.0, x, mine):.0e}; scikit-rmt's closed "
        f"form {slow * 1e3:.2f} ms, error {error(target, 1.0, x, theirs):.0e}"
        f" -> {slow / fast:.3f} times our time"
    )


def whole_spectrum() -> None:
    """What a user asks for: solve, edges, masses and the density with its error."""
    problem = Problem(MarchenkoPastur("1/10"), alpha=3, lam="1/5", noise="1/10")
    alone, solution = median_time(lambda: solve(problem))
    rest, found = median_time(lambda: learned_spectrum(solution, POINTS))
    worst = max(band.error for band in found.bands)
    console.print(
        f"learned spectrum, {POINTS} points a band: {rest / alone:.1f} times its solve; "
        f"masses to {worst:.0e}"
    )


def main() -> None:
    """Print every ratio."""
    against_monte_carlo()
    against_freealg()
    against_scikit_rmt()
    whole_spectrum()


if __name__ == "__main__":
    main()
