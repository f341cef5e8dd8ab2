"""Approximate message passing on sampled data: the iteration of `derive.amp`.

It is not damped: only without damping do the iterates follow the state evolution one by one (a damped
iteration keeps the fixed points, but each memory term would have to remember all messages before). It
settles wherever the replicon is below one (`numerics.stability`); a run that would need damping stands
where the replica-symmetric solution is not to be trusted either.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import sympy as sp
import torch

from derive import symbols as s
from derive.amp import linear_message
from derive.exact import ProblemError
from derive.generate import compile_function
from derive.linear import LinearChannel
from derive.model import Problem
from numerics.message_passing import check_message_passing, first_iterate, iterates
from numerics.prox import SoftmaxRows
from numerics.solution import Solution
from validate.compare import standardise
from validate.data import draw_sample, draw_target, sample_size
from validate.sample import Sample
from validate.simulate import check_runs
from validate.train import overlaps, resolve_device

__all__ = ["compare_iterates", "contraction", "message_passing", "runs"]

Measured = TypeVar("Measured")


def message_passing(
    problem: Problem,
    d: int,
    seed: int,
    iterations: int,
    *,
    sensing: str = "gaussian",
    device: str = "cpu",
) -> list[dict[str, float]]:
    """What each iteration from its start measures, on the target and data of `train` with this seed.

    Raises
    ------
    ProblemError
        See `numerics.message_passing.check_message_passing` and `validate.data`.
    """
    check_message_passing(problem)
    S0, data = _drawn(problem, d, seed, sensing, device)
    step, start = _iteration(problem, data, d)
    return [overlaps(now.S, S0) | {"V": now.V} for now in _iterate(step, start, iterations)]


def contraction(
    problem: Problem,
    d: int,
    seed: int,
    iterations: int,
    *,
    sensing: str = "gaussian",
    device: str = "cpu",
) -> float:
    """The replicon, measured: what one iteration makes of a small difference between two runs.

    After ``iterations``, B of a second run on the same data is moved by a GOE matrix a thousandth of its
    size; returns norm(B_1 - B_2)^2 after the next iteration over what it was.

    Raises
    ------
    ProblemError
        As `message_passing`.
    """
    check_message_passing(problem)
    _, data = _drawn(problem, d, seed, sensing, device)
    step, start = _iteration(problem, data, d)
    *_, last = _iterate(step, start, iterations)
    raw = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    noise = (raw + raw.T).to(last.B)
    noise *= _PERTURBATION * torch.linalg.norm(last.B) / torch.linalg.norm(noise)
    moved, _ = denoise(last.B + noise, last.A, float(problem.lam), problem.penalty)
    difference = step(replace(last, S=moved)).B - step(last).B
    return float(torch.linalg.norm(difference) ** 2 / torch.linalg.norm(noise) ** 2)


_PERTURBATION = 1e-3


def _drawn(
    problem: Problem, d: int, seed: int, sensing: str, device: str
) -> tuple[torch.Tensor, Sample]:
    """Target and data of a seed."""
    where = resolve_device(device)
    generator = torch.Generator().manual_seed(seed)
    S0 = draw_target(problem, d, generator)
    data = draw_sample(problem, S0, sample_size(problem, d), sensing, generator)
    return S0.to(where), data.map(where)


def runs(
    measure: Callable[..., Measured],
    problem: Problem,
    d: int,
    seeds: int,
    iterations: int,
    *,
    sensing: str = "gaussian",
    device: str = "cpu",
) -> Iterator[Measured]:
    """`message_passing` or `contraction` with seeds 0, 1, ...

    Raises
    ------
    ProblemError
        No iteration, and see `validate.simulate.check_runs` and the measurement.
    """
    if iterations < 1:
        raise ProblemError(f"iterations must be at least 1, not {iterations}")
    check_runs(problem, d, seeds, sensing, device)
    options = {"sensing": sensing, "device": device}
    return (measure(problem, d, seed, iterations, **options) for seed in range(seeds))


def compare_iterates(solution: Solution, finished: list[list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Iteration by iteration: state evolution, mean over runs, its standard error, z, and the saddle
    point that both settle on.
    """
    problem, rows = solution.problem, []
    # Without a threshold V is the same number in every run.
    names = ("q", "m", "excess_risk", "trace", *(["V"] if problem.penalty == "nuclear" else []))
    for t, theory in enumerate(iterates(problem, len(finished[0])), 1):
        for row in standardise(theory, [run[t - 1] for run in finished], names):
            settled = {"saddle_point": float(solution.values[row.quantity])}
            rows.append({"iteration": t} | row.row() | settled)
    return rows


# (omega, V) -> f and the mean of its divergence; omega and f of shape (n, L_eff).
Message = Callable[[torch.Tensor, float], tuple[torch.Tensor, float]]


@dataclass(frozen=True)
class _State:
    """An iterate S = F(B) with its susceptibility V, and the curvature A and messages f before it."""

    B: torch.Tensor
    S: torch.Tensor
    V: float
    A: float
    f: torch.Tensor


def _iterate(step: Callable[[_State], _State], now: _State, iterations: int) -> Iterator[_State]:
    for _ in range(iterations):
        now = step(now)
        yield now


def _iteration(problem: Problem, data: Sample, d: int) -> tuple[Callable[[_State], _State], _State]:
    """One iteration on these data, and where the first starts."""
    basis, message = _messages(problem, data)
    T = data.labels.shape[1]
    scale, start = first_iterate(problem)
    f = data.labels.new_zeros(len(data), basis.shape[1])
    S = scale * torch.eye(d).to(f)

    def step(now: _State) -> _State:
        # h = K v with K'K = 2.
        omega = data.matrix_field(now.S).flatten(1) @ basis / 2 - now.V * now.f
        f, slope = message(omega, now.V)
        A = -len(data) / d**2 * slope
        B = A * now.S + data.adjoint((f @ basis.T / 2).view(-1, T, T), d) / d
        return _State(B, *denoise(B, A, float(problem.lam), problem.penalty), A, f)

    return step, _State(S, S, start["V"], 1.0, f)


def _messages(problem: Problem, data: Sample) -> tuple[torch.Tensor, Message]:
    """The map K from the fields v that the loss sees to h, shape (T^2, L_eff), and the message."""
    if isinstance(problem.channel, LinearChannel):
        return data.labels.new_full((1, 1), 2**0.5), partial(_linear, data.labels.flatten(1))
    rows = SoftmaxRows(int(problem.tokens), float(problem.beta))
    y = data.labels.permute(2, 1, 0).cpu().numpy()
    return torch.from_numpy(rows.basis).to(data.labels), partial(_softmax, rows, y, rows.preimage(y))


def _linear(labels: torch.Tensor, omega: torch.Tensor, V: float) -> tuple[torch.Tensor, float]:
    return _linear_message()(labels, omega, V)


@lru_cache(maxsize=1)
def _linear_message() -> Any:
    channel = LinearChannel()
    f = linear_message(channel)
    outputs = {"f": f, "slope": sp.diff(f, channel.omega)}
    return compile_function("message", (channel.y, channel.omega, s.V), outputs, "numpy", np)


def _softmax(
    rows: SoftmaxRows, y: Any, fitted: Any, omega: torch.Tensor, V: float
) -> tuple[torch.Tensor, float]:
    """With the loss of seq2lab (seq2seq has it as d -> oo); jumps do not count in the divergence."""
    field = omega.T.cpu().numpy()
    shift = rows.minimise(field, y, V, fitted, None).shift
    response = rows.response(field + shift, y, V)
    divergence = float(np.trace(response, axis1=1, axis2=2).mean())
    return torch.from_numpy(shift.T / V).to(omega), divergence


def denoise(B: torch.Tensor, A: float, lam: float, penalty: str) -> tuple[torch.Tensor, float]:
    """F(B) eigenvalue by eigenvalue, and half the mean divided difference of F over all pairs."""
    if penalty == "frobenius":
        return B / (A + lam), 1 / (2 * (A + lam))
    x, vectors = torch.linalg.eigh(B)
    kept = (x - lam).clamp(min=0)
    S = (vectors * (kept / A)) @ vectors.T
    above = (x > lam).to(x)
    run, rise = x[:, None] - x, kept[:, None] - kept
    # On the same side of the threshold the difference is exact, whatever the distance.
    same = above[:, None] == above
    differences = torch.where(same, above[:, None], rise / torch.where(same, 1.0, run))
    return S, float(differences.mean() / (2 * A))
