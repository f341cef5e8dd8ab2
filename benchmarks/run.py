"""Speed and accuracy side by side in one run; every figure is a ratio against a named baseline.

Run as ``python benchmarks/run.py``. The baselines are written here as one would write them without this
engine: a state evolution that samples GOE matrices, and mpmath.quad with mpmath.findroot.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpmath.ctx_mp import MPContext
from rich.console import Console

from derive import MarchenkoPastur, Problem, exact
from numerics import solve
from numerics.sweep import curve, grid

PROBLEM = Problem(MarchenkoPastur("1/2"), alpha="3/10", lam="1/5", noise="1/10")
ALPHA, LAM, NOISE, KAPPA0 = 0.3, 0.2, 0.1, 0.5
console = Console(width=110, highlight=False)


def best_of(repeats: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Median wall time of some runs after one warm-up, and the last result."""
    result = work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return float(np.median(times)), result


def sampled_fixed_point(seed: int, d: int = 400, draws: int = 3, tolerance: float = 1e-3) -> float:
    """Baseline: iterate the state evolution with sampled matrices, as public notebooks do; returns R.

    It stops when none of q, m, psi has moved by more than the tolerance.
    """
    rng = np.random.default_rng(seed)
    W0 = rng.standard_normal((d, int(KAPPA0 * d)))
    S0 = W0 @ W0.T / (d * KAPPA0 * d) ** 0.5
    Q0 = np.sum(S0**2) / d
    tau2, theta = (Q0 + NOISE / 2) / (2 * ALPHA), LAM / (4 * ALPHA)
    old = np.zeros(3)
    for _ in range(300):
        new = np.zeros(3)
        for _ in range(draws):
            G = rng.standard_normal((d, d))
            B = S0 + (tau2 / (2 * d)) ** 0.5 * (G + G.T)
            eigenvalues, vectors = np.linalg.eigh(B)
            above = np.maximum(eigenvalues - theta, 0)
            overlap = np.einsum("ia,ia->a", vectors, S0 @ vectors)
            gaps = np.subtract.outer(eigenvalues, eigenvalues) + np.eye(d)
            ratio = np.subtract.outer(above, above) / gaps
            psi = (np.sum(ratio) + np.sum(eigenvalues > theta)) / d**2
            new += np.array([np.mean(above**2), np.mean(above * overlap), psi]) / draws
        q, m, psi = new
        risk = Q0 - 2 * m + q
        tau2 = 0.5 * tau2 + 0.5 * (risk + NOISE / 2) / (2 * ALPHA)
        theta = 0.5 * theta + 0.5 * LAM / max(4 * ALPHA - 2 * psi, 0.1)
        if np.max(np.abs(new - old)) < tolerance:
            break
        old = new
    return float(risk)


def plain_mpmath(digits: int) -> Any:
    """Baseline: the same two equations with mpmath.quad and mpmath.findroot; returns R.

    It starts from the float64 solution and is handed the edge of the spectrum.
    """
    ctx = MPContext()
    ctx.dps = digits + 5
    start = solve(PROBLEM)
    r = ctx.sqrt(ctx.mpf(1) / 2)
    alpha, lam, noise = ctx.mpf(3) / 10, ctx.mpf(1) / 5, ctx.mpf(1) / 10

    def transform(x: Any, tau2: Any) -> Any:
        roots = ctx.polyroots(
            [-tau2 / r, tau2 + x / r, r - x - 1 / r, 1], maxsteps=500, extraprec=2 * ctx.prec
        )
        return min(roots, key=lambda root: root.imag)

    def edge(tau2: Any) -> Any:
        # dz/dg = 0 on the branch right of the target.
        g = ctx.findroot(lambda g: -1 / g**2 + tau2 + 1 / (1 - g / r) ** 2, ctx.mpf("0.32"))
        return 1 / g + tau2 * g + r / (1 - g / r)

    def moments(tau2: Any, theta: Any) -> tuple[Any, Any, Any]:
        width = edge(tau2) - theta

        def integrate(integrand: Callable[[Any, Any], Any]) -> Any:
            # x = top - width u^2 takes the square root at the edge away.
            def pulled_back(u: Any) -> Any:
                x = theta + width * (1 - u * u)
                return integrand(x - theta, transform(x, tau2)) * 2 * u * width

            return -ctx.quad(pulled_back, [0, 1]) / ctx.pi

        return (
            integrate(lambda y, g: y * g.imag),
            integrate(lambda y, g: y * y * g.imag),
            integrate(lambda y, g: y * (g * g).imag),
        )

    def residuals(tau2: Any, theta: Any) -> list[Any]:
        I1, I2, psi = moments(tau2, theta)
        risk = 1 + ctx.mpf(1) / 2 - I2 - 2 * theta * I1 + 2 * tau2 * psi
        return [theta * (4 * alpha - 2 * psi) - lam, tau2 - (risk + noise / 2) / (2 * alpha)]

    solution = ctx.findroot(residuals, (ctx.mpf(start.tau) ** 2, ctx.mpf(start.theta)))
    return 2 * alpha * solution[0] - noise / 2


def main() -> None:
    """Print every ratio."""
    truth = solve(PROBLEM, 30).excess_risk
    fast, found = best_of(50, lambda: solve(PROBLEM))
    slow_times, slow_errors = [], []
    for seed in range(3):
        start = time.perf_counter()
        risk = sampled_fixed_point(seed)
        slow_times.append(time.perf_counter() - start)
        slow_errors.append(abs(risk - float(truth)))
    slow, far = float(np.median(slow_times)), float(np.median(slow_errors))
    near = max(abs(found.excess_risk - float(truth)), np.finfo(float).eps * float(truth))
    console.print(f"one solve, float64: {fast * 1e3:.1f} ms")
    console.print(
        f"sampled fixed point (d = 400, 3 GOE draws, tolerance 1e-3): {slow:.1f} s, error {far:.1e}"
    )
    console.print(
        f"  -> {slow / fast:,.0f} times faster, {far / near:,.0f} times closer to the 30-digit answer"
    )

    costs = {digits: best_of(3, lambda d=digits: solve(PROBLEM, d))[0] for digits in (15, 50, 100, 200)}
    start = time.perf_counter()
    plain = plain_mpmath(50)
    plain_time = time.perf_counter() - start
    agreement = abs(plain - solve(PROBLEM, 60).excess_risk)
    console.print(
        f"50 digits by mpmath.quad + findroot: {plain_time:.1f} s (agrees to {float(agreement):.0e})"
    )
    console.print(f"  -> {plain_time / costs[50]:,.0f} times faster")
    growth = ", ".join(f"{d}: {c / costs[15]:.1f}" for d, c in costs.items())
    console.print(f"cost by digits, relative to 15: {growth}")

    alphas = grid("0.05:2:100", "alpha")
    hundred, _ = best_of(1, lambda: list(curve(PROBLEM, alphas, [exact("1/5")])))
    console.print(f"a 100-point curve costs {hundred / fast:.0f} single solves")


if __name__ == "__main__":
    main()
