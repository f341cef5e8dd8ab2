"""Exponents of softmax attention: local slopes of R(n) at T = 2 without noise, beside the derived f.

    python examples/softmax_exponents.py

The points lie in the data-limited and the over-regularised regime. Slopes of the second come from above:
M differs from A by a term in Q0 - m ~ theta, whose bias (1 - M/A)^2 Q0 falls as theta^2, against
theta^(2 - 1/gamma) of the law.
"""

import math

import sympy as sp

from derive import PowerLaw, Problem
from derive.balance import gamma
from derive.scaling import regimes
from numerics import solve

STEP = 0.1
# Regime, a, and lam as a multiple of d^l with its l.
POINTS = (("data-limited", 1.4, 0.2, -1.15), ("over-regularised", 1.9, 0.005, 0.0))


def slope(value: sp.Rational, d: int, a: float, factor: float, l: float) -> tuple[float, float]:
    """-d log R/d log n at n = d^a, lam = factor d^l, and R."""
    start, risks = None, []
    for sign in (-1, 1):
        alpha, lam = d ** (a - 2) * math.exp(STEP * sign), factor * d**l
        problem = Problem(
            PowerLaw(value, d), sp.Rational(repr(alpha)), sp.Rational(repr(lam)), 0, "seq2lab", tokens=2
        )
        start = solve(problem, start=start)
        risks.append(start.excess_risk)
    return -math.log(risks[1] / risks[0]) / (2 * STEP), risks[0]


def main() -> None:
    """Print every slope."""
    table = {regime.name: regime.f for regime in regimes()}
    print("regime,gamma,d,R,slope,f")
    for name, a, factor, l in POINTS:
        for value in (sp.Rational(3, 4), sp.Rational(3, 2)):
            for d in (1_000, 10_000, 100_000):
                found, risk = slope(value, d, a, factor, l)
                derived = float(table[name].subs(gamma, value))
                print(f"{name},{value},{d},{risk:.4g},{found:.4f},{derived:.4f}", flush=True)


if __name__ == "__main__":
    main()
