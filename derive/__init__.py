"""What is true: the equations, derived in SymPy. Imports nothing else of onehead."""

from derive.exact import ProblemError, exact
from derive.model import Problem
from derive.targets import Atoms, MarchenkoPastur, PowerLaw

__all__ = ["Atoms", "MarchenkoPastur", "PowerLaw", "Problem", "ProblemError", "exact"]
