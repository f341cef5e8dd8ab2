"""Softmax attention: speed against plain versions of the same work, as ratios in one run.

Run as ``python benchmarks/softmax.py`` (needs the simulate extra).
"""

import time

import numpy as np
import torch
from rich.console import Console
from scipy.optimize import minimize

from derive import MarchenkoPastur, Problem
from numerics import solve
from numerics.convolution import FreeConvolution
from numerics.laws import float_law
from validate.data import draw_sample, draw_target
from validate.optimise import Objective

ALPHA, LAM, NOISE = 0.5, 0.1, 0.5
PROBLEM = Problem(MarchenkoPastur("1/2"), alpha="1/2", lam="1/10", noise="1/2", task="seq2lab", tokens=2)
console = Console(width=110, highlight=False)


def timed(work, repeats=5):
    """Median wall time after one warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def plain_state_evolution(samples=400, iterations=40, seed=0):
    """Baseline: scipy.optimize.minimize for every sample, damped iteration of the state evolution.

    T = 2 in the differences d1 = h11 - h12, d2 = h22 - h12, of covariance [[3, 1], [1, 3]] per unit.
    """
    rng = np.random.default_rng(seed)
    covariance = np.array([[3.0, 1.0], [1.0, 3.0]])
    inverse, root = np.linalg.inv(covariance), np.linalg.cholesky(covariance)
    law = float_law(PROBLEM.target)

    def objective(d, centre, y, V):
        shift = d - centre
        fit = np.sum((1 / (1 + np.exp(-d)) - y) ** 2)
        return 2 * fit + shift @ inverse @ shift / (2 * V)

    Q0, Q = law.Q0, law.Q0 + NOISE / 2
    m, q, V = 0.5 * Q0, 0.6 * Q0, 1.0
    z0, z = rng.normal(size=(2, samples, 2))
    # Exact second moments over the sample, as a careful notebook would have.
    both = np.hstack([z0, z])
    both = both @ np.linalg.inv(np.linalg.cholesky(both.T @ both / samples)).T
    z0, z = both[:, :2], both[:, 2:]
    for _ in range(iterations):
        u0, omega = Q**0.5 * z0, m / Q**0.5 * z0 + (q - m**2 / Q) ** 0.5 * z
        y, centre = 1 / (1 + np.exp(-u0 @ root.T)), omega @ root.T
        f = np.empty_like(omega)
        for i in range(samples):
            starts = (centre[i], u0[i] @ root.T)
            tries = [minimize(objective, start, args=(centre[i], y[i], V)) for start in starts]
            best = min(tries, key=lambda found: found.fun)
            f[i] = np.linalg.solve(root, best.x - centre[i]) / V
        f_u0, f_omega = np.mean(np.sum(f * u0, 1)), np.mean(np.sum(f * omega, 1))
        A, M = ALPHA * np.linalg.solve([[-m, Q], [-q, m]], [f_u0, f_omega])
        C = ALPHA / 2 * np.mean(np.sum(f * f, 1))
        tau2, theta = C / M**2, LAM / M
        cut = FreeConvolution(law, tau2).cut(theta)
        new = (
            (M / A) * (cut.I2 + theta * cut.I1 - tau2 * cut.psi),
            (M / A) ** 2 * cut.I2,
            cut.psi / (2 * A),
        )
        m, q, V = (0.3 * old + 0.7 * value for old, value in zip((m, q, V), new, strict=True))
    return Q0 - 2 * m + q


def training_step(d=100, alpha=1):
    """Seconds of one training step in float32 and of its bare matrix products."""
    problem, generator = PROBLEM.at(alpha=alpha), torch.Generator().manual_seed(0)
    S0 = draw_target(problem, d, generator)
    data = draw_sample(problem, S0, alpha * d * d, "tokens", generator).map(torch.float32)
    W = torch.randn(d, d, generator=generator)
    objective = Objective(data, LAM, factorised=True)
    X = data.tokens.reshape(-1, d)
    back = X @ W

    def products():
        return X @ W, X.T @ back

    return timed(lambda: objective(W), 15), timed(products, 15)


def main():
    """Print every ratio."""
    truth = solve(PROBLEM, tolerance=1e-7).excess_risk
    start = time.perf_counter()
    risk = plain_state_evolution()
    slow, far = time.perf_counter() - start, abs(risk / truth - 1)
    fast = timed(lambda: solve(PROBLEM, tolerance=3e-2))
    near = abs(solve(PROBLEM, tolerance=3e-2).excess_risk / truth - 1)
    console.print(f"T = 2 solve, coarse nodes: {fast:.2f} s, error {near:.0e}")
    console.print(f"scipy.optimize.minimize per sample, 400 samples: {slow:.0f} s, error {far:.0e}")
    console.print(f"  -> {slow / fast:,.0f} times faster and {far / near:,.0f} times closer")

    step, floor = training_step()
    console.print(f"one float32 training step runs at {floor / step:.0%} of its bare matrix products")

    costs = {T: timed(lambda T=T: solve(PROBLEM.at(tokens=T), tolerance=2e-3), 1) for T in (2, 3, 4)}
    shown = ", ".join(f"T = {T}: {cost / costs[2]:.1f}" for T, cost in costs.items())
    console.print(f"cost of a solve to 2e-3 relative to T = 2: {shown}")


if __name__ == "__main__":
    main()
