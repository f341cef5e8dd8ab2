"""Sampled problems: a target matrix and the pre-activations that a training run sees."""

from dataclasses import replace

import torch

from derive.exact import ProblemError
from derive.model import Problem
from derive.targets import MarchenkoPastur
from numerics.laws import target_atoms
from numerics.precision import context
from validate.sample import Sample, softmax_labels

__all__ = ["SENSING", "draw_sample", "draw_target", "gaussian_held_out", "sample_size"]

SENSING = ("tokens", "gaussian")
_MAX_BYTES = 6 * 2**30


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
    problem: Problem, S0: torch.Tensor, n: int, sensing: str, generator: torch.Generator
) -> Sample:
    """Draw n labelled samples of the problem's task.

    ``gaussian`` replaces the matrices x_a x_b' by independent Gaussian symmetric ones of the same
    covariance (for a = b variance 1 off the diagonal and 2 on it, half of that for a < b), a
    control without the finite-size skewness of real tokens.
    """
    d, T = S0.shape[0], int(problem.tokens)
    beta = None if problem.task == "linear" else float(problem.beta)
    empty = torch.empty(n, T, T, dtype=torch.float64)
    if sensing == "gaussian":
        unlabelled = Sample(empty, beta, sensing=_sensing(n, T, d, generator))
    else:
        tokens = torch.randn(n, T, d, generator=generator, dtype=torch.float64)
        gram = tokens @ tokens.transpose(1, 2) / d if problem.task == "seq2seq" else None
        unlabelled = Sample(empty, beta, tokens=tokens, gram=gram)
    return replace(unlabelled, labels=_labels(problem, unlabelled.matrix_field(S0), generator))


def _sensing(n: int, T: int, d: int, generator: torch.Generator) -> torch.Tensor:
    pairs, entries = T * (T + 1) // 2, d * (d + 1) // 2
    if 8 * n * pairs * entries > _MAX_BYTES:
        raise ProblemError(f"{n * pairs} Gaussian sensing matrices of size {d} do not fit; lower d")
    Z = torch.randn(n, pairs, entries, generator=generator, dtype=torch.float64)
    rows, columns = torch.triu_indices(d, d)
    # Off the diagonal two entries of variance 1 act together.
    Z *= torch.where(rows == columns, 2**0.5, 2.0)
    rows, columns = torch.triu_indices(T, T)
    return Z.mul_(torch.where(rows == columns, 1.0, 0.5**0.5)[:, None])


def gaussian_held_out(
    problem: Problem, S: torch.Tensor, S0: torch.Tensor, n: int, generator: torch.Generator
) -> tuple[Sample, torch.Tensor]:
    """Labels and the student's pre-activations on n fresh Gaussian sensing matrices.

    h(S0) and h(S) are jointly Gaussian given both matrices, so no sensing matrix is drawn.
    """
    d, T = S0.shape[0], int(problem.tokens)
    moments = torch.stack([(a * b).sum() / d for a in (S0, S) for b in (S0, S)]).view(2, 2)
    values, vectors = torch.linalg.eigh(moments)
    root = vectors * values.clamp(min=0).sqrt()
    z = torch.randn(2, n, T, T, generator=generator, dtype=torch.float64)
    # (z + z')/sqrt(2) has variance 2 on the diagonal and 1 off it.
    h0, h = torch.einsum("ij,jnab->inab", root, (z + z.transpose(2, 3)) / 2**0.5)
    beta = None if problem.task == "linear" else float(problem.beta)
    return Sample(_labels(problem, h0, generator), beta), h


def _labels(problem: Problem, h: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Labels with noise where the problem puts it; noise inside is symmetric like h."""
    xi = torch.randn(h.shape, generator=generator, dtype=torch.float64)
    scale = float(problem.noise) ** 0.5
    if problem.task == "linear":
        return h + scale * xi
    beta0 = float(problem.beta0)
    if problem.noise_at == "outside":
        return softmax_labels(h, beta0) + scale * xi
    # Variance Delta on the diagonal and Delta/2 off it: (xi + xi')/2.
    return softmax_labels(h + scale * (xi + xi.transpose(1, 2)) / 2, beta0)
