"""How much is it: solvers that run the functions generated from `derive`."""

from numerics.solution import NotConverged, Solution
from numerics.state_evolution import solve, solve_optimal

__all__ = ["NotConverged", "Solution", "solve", "solve_optimal"]
