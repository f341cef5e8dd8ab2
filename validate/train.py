"""Train one network, the factor W (nuclear penalty) or S itself (Frobenius), and measure it."""

from dataclasses import dataclass

import torch

from derive.exact import ProblemError
from derive.model import Problem
from validate.data import draw_sample, draw_target, gaussian_held_out, sample_size
from validate.eigenvectors import Eigenvectors
from validate.optimise import GRADIENT, Objective, descend_batches, minimise
from validate.sample import Sample

__all__ = ["Trained", "overlaps", "resolve_device", "train"]

_TEST_SAMPLES = 20_000


@dataclass(frozen=True)
class Trained:
    """What one run measured.

    Attributes
    ----------
    measured : dict
        q, m, excess_risk, trace (per d), train_loss and test_loss (per sample, the latter held out).
    spectrum : tuple of float
        Eigenvalues of the learned S, increasing.
    eigenvectors : Eigenvectors
        What its eigenvectors hold of the target.
    gradient : float
        Largest entry of the final gradient of the objective per d^2.
    """

    measured: dict[str, float]
    spectrum: tuple[float, ...]
    eigenvectors: Eigenvectors
    gradient: float
    precision: torch.dtype = torch.float64

    @property
    def converged(self) -> bool:
        """Whether the gradient is small enough to compare with a minimum."""
        return self.gradient < (GRADIENT if self.precision == torch.float64 else 100 * GRADIENT)


def resolve_device(name: str) -> torch.device:
    """The torch device of that name.

    Raises
    ------
    ProblemError
        Unknown, or not present on this machine.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, ValueError):
        raise ProblemError(f"device {name!r} is not available on this machine") from None
    return device


def train(
    problem: Problem,
    d: int,
    seed: int,
    *,
    optimizer: str = "lbfgs",
    sensing: str = "tokens",
    device: str = "cpu",
    batch: int | None = None,
    precision: str = "float64",
    steps: int = 4000,
) -> Trained:
    """Draw a target and data, train to a minimum of the summed loss + penalty, and measure.

    Parameters
    ----------
    problem : Problem
        With numbers; its width (or d) is the number of columns of W.
    d : int
        Matrix size; n = alpha d^2 samples.
    seed : int
        Seeds target, data, noise and initial weights.
    batch : int, optional
        Samples in a mini-batch of Adam; all of them when left out.
    precision : {"float64", "float32"}
        Of the training; measurements are in float64.
    steps : int
        Most iterations of the optimiser.
    """
    where = resolve_device(device)
    generator = torch.Generator().manual_seed(seed)
    S0 = draw_target(problem, d, generator)
    data = draw_sample(problem, S0, sample_size(problem, d), sensing, generator)
    factorised = problem.penalty == "nuclear"
    shape = (d, problem.width or d if factorised else d)
    start = torch.randn(*shape, generator=generator, dtype=torch.float64) * (1 if factorised else 0)
    dtype = getattr(torch, precision)
    objective = Objective(data.map(where).map(dtype), float(problem.lam), factorised)
    parameter = start.to(where).to(dtype)
    if batch is not None and batch < len(data):
        descend_batches(objective, parameter, batch, steps, generator)
    else:
        minimise(objective, parameter, optimizer, steps)
    gradient = float(objective(parameter)[1].abs().max())
    learned = parameter.cpu().double()
    S = learned @ learned.T / (d * shape[1]) ** 0.5 if factorised else (learned + learned.T) / 2
    test_loss = _test_loss(problem, S, S0, sensing, generator)
    vectors = Eigenvectors.of(S.numpy(), S0.numpy())
    spectrum = tuple(vectors.learned[::-1].tolist())
    losses = {"train_loss": _mean_loss(data, S), "test_loss": test_loss}
    return Trained(overlaps(S, S0) | losses, spectrum, vectors, gradient, dtype)


def _test_loss(
    problem: Problem, S: torch.Tensor, S0: torch.Tensor, sensing: str, generator: torch.Generator
) -> float:
    """Loss per sample on fresh data of the kind that was trained on."""
    if sensing == "tokens":
        held_out = draw_sample(problem, S0, _TEST_SAMPLES, sensing, generator)
        return _mean_loss(held_out, S)
    sample, h = gaussian_held_out(problem, S, S0, _TEST_SAMPLES, generator)
    return float(sample.misfit(h)[0]) / len(sample)


def _mean_loss(sample: Sample, S: torch.Tensor) -> float:
    return float(sample.misfit(sample.matrix_field(S))[0]) / len(sample)


def overlaps(S: torch.Tensor, S0: torch.Tensor) -> dict[str, float]:
    """q, m, excess_risk and trace (per d) of a learned S, both of shape (d, d)."""
    d = S.shape[0]
    return {
        "q": float(S.square().sum() / d),
        "m": float((S * S0).sum() / d),
        "excess_risk": float((S - S0).square().sum() / d),
        "trace": float(S.trace() / d),
    }
