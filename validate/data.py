"""Sampled problems: a target matrix and the pre-activations that a training run sees."""

from dataclasses import dataclass

import torch

from derive.exact import ProblemError
from derive.model import Problem
from derive.targets import MarchenkoPastur
from numerics.laws import target_atoms
from numerics.precision import context

__all__ = ["SENSING", "Sample", "draw_sample", "draw_target", "sample_size"]

SENSING = ("tokens", "gaussian")
_MAX_BYTES = 6 * 2**30


@dataclass(frozen=True)
class Sample:
    """Labelled data of one run.

    Attributes
    ----------
    design : torch.Tensor
        Tokens, shape (n, d), or Gaussian sensing matrices, shape (n, d, d).
    labels : torch.Tensor, shape (n,)
        y = h(S0) + sqrt(Delta) xi.
    """

    design: torch.Tensor
    labels: torch.Tensor

    def factor_field(self, W: torch.Tensor) -> torch.Tensor:
        """h(W W'/sqrt(p d)) for W of shape (d, p), without forming S where tokens allow it."""
        d, p = W.shape
        scale = (p * d) ** 0.5
        if self.design.ndim == 3:
            return self.matrix_field(W @ W.T / scale)
        squares = (self.design @ W).square().sum(1) - W.square().sum()
        return squares / (scale * d**0.5)

    def matrix_field(self, S: torch.Tensor) -> torch.Tensor:
        """h(S) = (x'Sx - Tr S)/sqrt(d), or Tr(Z S)/sqrt(d), for symmetric S of shape (d, d)."""
        d = S.shape[0]
        if self.design.ndim == 3:
            return self.design.flatten(1) @ S.flatten() / d**0.5
        return (((self.design @ S) * self.design).sum(1) - S.trace()) / d**0.5


def sample_size(problem: Problem, d: int) -> int:
    """N = alpha d^2, rounded.

    Raises
    ------
    ProblemError
        No sample at all.
    """
    n = round(float(problem.alpha) * d * d)
    if n < 1:
        raise ProblemError(f"alpha = {problem.alpha} at d = {d} leaves no sample; raise d")
    return n


def draw_target(problem: Problem, d: int, generator: torch.Generator) -> torch.Tensor:
    """S0 of shape (d, d): Wishart for the Marchenko-Pastur law, else diagonal.

    The data are rotation invariant, so the eigenvectors of a fixed spectrum do not matter.

    Raises
    ------
    ProblemError
        The law has no realisation at this d (kappa0 d or weight d is not a whole number).
    """
    target = problem.target
    if isinstance(target, MarchenkoPastur):
        p0 = target.kappa0 * d
        if not p0.is_Integer:
            raise ProblemError(f"kappa0 d = {p0} must be a whole number; choose another d")
        W0 = torch.randn(d, int(p0), generator=generator, dtype=torch.float64)
        return W0 @ W0.T / (int(p0) * d) ** 0.5
    if target.dimension not in (None, d):
        raise ProblemError(f"the target has d = {target.dimension}, not {d}")
    values, weights = target_atoms(target, context(20))
    counts = [float(weight) * d for weight in weights]
    if any(abs(c - round(c)) > 1e-9 for c in counts):
        raise ProblemError(f"the weights of the target do not give whole multiplicities at d = {d}")
    spectrum = [float(v) for v, c in zip(values, counts, strict=True) for _ in range(round(c))]
    return torch.diag(torch.tensor(spectrum, dtype=torch.float64))


def draw_sample(
    S0: torch.Tensor, n: int, noise: float, sensing: str, generator: torch.Generator
) -> Sample:
    """Draw n labelled samples of the linear task.

    ``gaussian`` replaces x x' - 1 by a Gaussian symmetric matrix of the same covariance (variance 1 off
    the diagonal, 2 on it), a control without the finite-size skewness of real tokens.
    """
    d = S0.shape[0]
    if sensing == "gaussian":
        if 16 * n * d * d > _MAX_BYTES:
            raise ProblemError(
                f"{n} Gaussian sensing matrices of size {d} do not fit in memory; lower d"
            )
        Z = torch.randn(n, d, d, generator=generator, dtype=torch.float64)
        design = (Z + Z.transpose(1, 2)) / 2**0.5
    else:
        design = torch.randn(n, d, generator=generator, dtype=torch.float64)
    xi = torch.randn(n, generator=generator, dtype=torch.float64)
    unlabelled = Sample(design, xi)
    return Sample(design, unlabelled.matrix_field(S0) + noise**0.5 * xi)
