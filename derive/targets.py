"""Target spectra: the law of the eigenvalues of S0, stated exactly (THEORY.md sections 1 and 4)."""

from dataclasses import dataclass
from typing import ClassVar

import sympy as sp

from derive.exact import ProblemError, exact

__all__ = ["Atoms", "MarchenkoPastur", "PowerLaw", "Target"]

_MAX_MODES = 10**12


@dataclass(frozen=True)
class MarchenkoPastur:
    """S0 = W0 W0' / sqrt(p0 d) with Gaussian W0 and width ratio kappa0 = p0/d.

    The R-transform is sqrt(kappa0)/(1 - w/sqrt(kappa0)); for kappa0 < 1 there is an atom of mass
    1 - kappa0 at zero (THEORY.md section 4).
    """

    name: ClassVar[str] = "marchenko-pastur"
    kappa0: sp.Expr

    def __post_init__(self) -> None:
        object.__setattr__(self, "kappa0", exact(self.kappa0, "kappa0"))
        if self.kappa0.is_number and not self.kappa0.is_positive:
            raise ProblemError(f"kappa0 must be positive, not {self.kappa0}")

    @property
    def mean(self) -> sp.Expr:
        """Tr S0 / d, the first free cumulant."""
        return sp.sqrt(self.kappa0)

    @property
    def Q0(self) -> sp.Expr:
        """Tr S0^2 / d."""
        return 1 + self.kappa0

    @property
    def rank_fraction(self) -> sp.Expr:
        """Rank of S0 over d."""
        return sp.Min(self.kappa0, 1)

    @property
    def dimension(self) -> int | None:
        """No finite dimension: the law is that of d -> infinity."""
        return None


@dataclass(frozen=True)
class Atoms:
    """Finitely many eigenvalues ``values`` >= 0 with weights (equal ones unless given)."""

    name: ClassVar[str] = "atoms"
    values: tuple[sp.Expr, ...]
    weights: tuple[sp.Expr, ...] = ()

    def __post_init__(self) -> None:
        values = tuple(exact(v, "eigenvalue") for v in self.values)
        if not values:
            raise ProblemError("the target needs at least one eigenvalue")
        if any(v.is_number and v.is_negative for v in values):
            raise ProblemError("target eigenvalues must not be negative: S0 is a Gram matrix")
        weights = tuple(exact(w, "weight") for w in self.weights)
        weights = weights or (sp.Rational(1, len(values)),) * len(values)
        if len(weights) != len(values):
            raise ProblemError(f"{len(values)} eigenvalues need as many weights, not {len(weights)}")
        if any(w.is_number and not w.is_positive for w in weights):
            raise ProblemError("the weights of the target eigenvalues must be positive")
        total = sum(weights)
        merged: dict[sp.Expr, sp.Expr] = {}
        for value, weight in zip(values, weights, strict=True):
            merged[value] = merged.get(value, sp.Integer(0)) + weight / total
        object.__setattr__(self, "values", tuple(merged))
        object.__setattr__(self, "weights", tuple(merged.values()))

    def _moment(self, order: int) -> sp.Expr:
        pairs = zip(self.values, self.weights, strict=True)
        return sp.Add(*(w * v**order for v, w in pairs))

    @property
    def mean(self) -> sp.Expr:
        """Tr S0 / d."""
        return self._moment(1)

    @property
    def Q0(self) -> sp.Expr:
        """Tr S0^2 / d."""
        return self._moment(2)

    @property
    def rank_fraction(self) -> sp.Expr:
        """Total weight of the nonzero eigenvalues."""
        pairs = zip(self.values, self.weights, strict=True)
        return sp.Add(*(w for v, w in pairs if not v.is_zero))

    @property
    def dimension(self) -> int | None:
        """No finite dimension: the weights are those of d -> infinity."""
        return None


@dataclass(frozen=True)
class PowerLaw:
    """Eigenvalues c sqrt(d) i^(-gamma), i = 1..cutoff, the other d - cutoff ones zero.

    c normalises Tr S0^2/d = 1, as in THEORY.md section 4; ``cutoff`` defaults to d.
    """

    name: ClassVar[str] = "power-law"
    gamma: sp.Expr
    d: int
    cutoff: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", exact(self.gamma, "gamma"))
        if self.gamma.is_number and not (self.gamma - sp.Rational(1, 2)).is_positive:
            raise ProblemError(f"gamma must exceed 1/2, not {self.gamma}: the target has no norm")
        if not 1 <= self.d <= _MAX_MODES:
            raise ProblemError(f"d must lie in 1..{_MAX_MODES}, not {self.d}")
        if self.cutoff is not None and not 1 <= self.cutoff <= self.d:
            raise ProblemError(f"cutoff must lie in 1..d = {self.d}, not {self.cutoff}")

    @property
    def Q0(self) -> sp.Expr:
        """Tr S0^2 / d, one by normalisation."""
        return sp.Integer(1)

    @property
    def rank_fraction(self) -> sp.Expr:
        """Share of nonzero eigenvalues."""
        return sp.Rational(self.modes, self.d)

    @property
    def modes(self) -> int:
        """Number of nonzero eigenvalues."""
        return self.d if self.cutoff is None else self.cutoff

    @property
    def dimension(self) -> int | None:
        """Matrix size d."""
        return self.d

    def profile(self, index: sp.Expr) -> sp.Expr:
        """Eigenvalue number ``index`` up to the common factor that makes Tr S0^2/d = 1."""
        return index ** (-self.gamma)


Target = MarchenkoPastur | Atoms | PowerLaw
