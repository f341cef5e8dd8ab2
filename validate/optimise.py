"""The training objective per d^2, and the optimisers that minimise it."""

import math
from dataclasses import dataclass

import torch

from validate.sample import Sample

__all__ = ["GRADIENT", "OPTIMIZERS", "Objective", "descend_batches", "minimise"]

OPTIMIZERS = ("lbfgs", "adam")
GRADIENT = 1e-6  # largest entry of the gradient at which a run counts as converged
_RATE = 0.05


@dataclass(frozen=True)
class Objective:
    """Summed loss plus penalty, over d^2.

    The penalty is lam d Tr S for the factor W (lam norm(W)^2 sqrt(d/p)) and lam d norm(S)^2/2 for S.
    """

    data: Sample
    lam: float
    factorised: bool

    def __call__(
        self, parameter: torch.Tensor, rows: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Value and gradient at W or S; ``rows`` picks a mini-batch that stands for all samples."""
        data = self.data if rows is None else self.data.map(rows)
        share = len(self.data) / len(data)
        d, p = parameter.shape
        if self.factorised:
            loss, gradient = data.factor_gradient(parameter)
            strength = self.lam * (d / p) ** 0.5
        else:
            loss, gradient = data.matrix_gradient((parameter + parameter.T) / 2)
            strength = self.lam * d / 2
        value = share * loss + strength * parameter.square().sum()
        return value / d**2, gradient.mul_(share).add_(parameter, alpha=2 * strength).div_(d**2)


def minimise(objective: Objective, parameter: torch.Tensor, optimizer: str, steps: int) -> None:
    """Minimise over all samples, in place."""
    if optimizer == "lbfgs":
        _lbfgs(objective, parameter, steps)
    else:
        descend_batches(objective, parameter, None, steps, None)


def _lbfgs(objective: Objective, parameter: torch.Tensor, steps: int) -> None:
    method = torch.optim.LBFGS(
        [parameter],
        max_iter=steps,
        max_eval=2 * steps,
        history_size=30,
        tolerance_grad=GRADIENT / 100,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure() -> torch.Tensor:
        value, parameter.grad = objective(parameter)
        return value

    with torch.no_grad():
        method.step(closure)
    parameter.grad = None


def descend_batches(
    objective: Objective,
    parameter: torch.Tensor,
    batch: int | None,
    steps: int,
    generator: torch.Generator | None,
) -> None:
    """Adam with a cosine schedule, so that its noise floor vanishes; on mini-batches if asked.

    An epoch of mini-batches counts as many steps as it has batches.
    """
    method = torch.optim.Adam([parameter], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(method, T_max=steps)
    n = len(objective.data)
    per_epoch = math.ceil(n / batch) if batch else 1
    order = torch.empty(0, dtype=torch.long)
    for step in range(steps):
        if batch and step % per_epoch == 0:
            order = torch.randperm(n, generator=generator).to(parameter.device)
        place = step % per_epoch * (batch or 0)
        rows = order[place : place + batch] if batch else None
        _, parameter.grad = objective(parameter, rows)
        method.step()
        schedule.step()
        if not batch and float(parameter.grad.abs().max()) < GRADIENT / 100:
            break
    parameter.grad = None
