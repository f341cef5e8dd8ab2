"""Gradient training of one network: the factor W (nuclear penalty) or S itself (Frobenius)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from derive.exact import ProblemError
from derive.model import Problem
from validate.data import Sample, draw_sample, draw_target, sample_size

__all__ = ["OPTIMIZERS", "Trained", "resolve_device", "train"]

OPTIMIZERS = ("lbfgs", "adam")
_GRADIENT = 1e-6  # gradient of the objective per d^2 at which a run counts as converged
_TEST_SAMPLES = 20_000


@dataclass(frozen=True)
class Trained:
    """What one run measured.

    Attributes
    ----------
    measured : dict
        q, m, excess_risk, trace (per d), train_loss and test_loss (per sample, the latter held out).
    spectrum : tuple of float
        Eigenvalues of the learned S.
    gradient : float
        Largest entry of the final gradient of the objective per d^2.
    """

    measured: dict[str, float]
    spectrum: tuple[float, ...]
    gradient: float

    @property
    def converged(self) -> bool:
        """Whether the gradient is small enough to compare with a minimum."""
        return self.gradient < _GRADIENT


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
    steps: int = 4000,
) -> Trained:
    """Draw a target and data, train to a minimum of sum_mu (y - h)^2 + penalty, and measure.

    Parameters
    ----------
    problem : Problem
        Linear task with numbers; its width (or d) is the number of columns of W.
    d : int
        Matrix size; n = alpha d^2 samples.
    seed : int
        Seeds target, data, noise and initial weights.
    steps : int
        Most iterations of the optimiser.
    """
    where = resolve_device(device)
    generator = torch.Generator().manual_seed(seed)
    S0 = draw_target(problem, d, generator)
    noise = float(problem.noise)
    data = draw_sample(S0, sample_size(problem, d), noise, sensing, generator)
    factorised = problem.penalty == "nuclear"
    shape = (d, problem.width or d if factorised else d)
    start = torch.randn(*shape, generator=generator, dtype=torch.float64) * (1 if factorised else 0)
    held_out = draw_sample(S0, _TEST_SAMPLES, noise, "tokens", generator)
    data = Sample(data.design.to(where), data.labels.to(where))
    parameter = start.to(where).requires_grad_()
    lam = float(problem.lam)

    def objective() -> torch.Tensor:
        if factorised:
            misfit = (data.labels - data.factor_field(parameter)).square().sum()
            # lam d Tr S = lam norm(W)^2 sqrt(d/p)
            penalty = lam * parameter.square().sum() * (d / shape[1]) ** 0.5
        else:
            S = (parameter + parameter.T) / 2
            misfit = (data.labels - data.matrix_field(S)).square().sum()
            penalty = lam * d * S.square().sum() / 2
        return (misfit + penalty) / d**2

    gradient = _minimise(objective, parameter, optimizer, steps)
    with torch.no_grad():
        learned = parameter.detach().cpu()
        S = learned @ learned.T / (d * shape[1]) ** 0.5 if factorised else (learned + learned.T) / 2
        cpu = Sample(data.design.cpu(), data.labels.cpu())
        return Trained(_measure(S, S0, cpu, held_out), _eigenvalues(S), gradient)


def _eigenvalues(S: torch.Tensor) -> tuple[float, ...]:
    return tuple(float(v) for v in torch.linalg.eigvalsh(S))


def _measure(S: torch.Tensor, S0: torch.Tensor, data: Sample, held_out: Sample) -> dict[str, float]:
    d = S.shape[0]
    return {
        "q": float(S.square().sum() / d),
        "m": float((S * S0).sum() / d),
        "excess_risk": float((S - S0).square().sum() / d),
        "train_loss": float((data.labels - data.matrix_field(S)).square().mean()),
        "test_loss": float((held_out.labels - held_out.matrix_field(S)).square().mean()),
        "trace": float(S.trace() / d),
    }


def _minimise(
    objective: Callable[[], torch.Tensor], parameter: torch.Tensor, optimizer: str, steps: int
) -> float:
    """Minimise in place; returns the largest entry of the final gradient."""
    if optimizer == "lbfgs":
        _lbfgs(objective, parameter, steps)
    else:
        _adam(objective, parameter, steps)
    parameter.grad = None
    objective().backward()
    assert parameter.grad is not None
    return float(parameter.grad.abs().max())


def _lbfgs(objective: Callable[[], torch.Tensor], parameter: torch.Tensor, steps: int) -> None:
    method = torch.optim.LBFGS(
        [parameter],
        max_iter=steps,
        max_eval=2 * steps,
        history_size=30,
        tolerance_grad=_GRADIENT / 100,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure() -> torch.Tensor:
        method.zero_grad()
        loss = objective()
        loss.backward()
        return loss

    method.step(closure)


def _adam(objective: Callable[[], torch.Tensor], parameter: torch.Tensor, steps: int) -> None:
    """Full-batch Adam with a cosine schedule, so that its noise floor vanishes."""
    method = torch.optim.Adam([parameter], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(method, T_max=steps)
    for _ in range(steps):
        method.zero_grad()
        objective().backward()
        method.step()
        schedule.step()
        if parameter.grad is not None and float(parameter.grad.abs().max()) < _GRADIENT / 100:
            return
