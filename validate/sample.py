"""Labelled data of one run: pre-activations of a student, its loss, and the gradients of both.

The gradients are written out, because a training step is then hardly more than its matrix products.
"""

from dataclasses import dataclass

import torch

__all__ = ["Sample", "pack", "softmax_labels"]


@dataclass(frozen=True)
class Sample:
    """n labelled samples of T tokens.

    Attributes
    ----------
    labels : torch.Tensor, shape (n, T, T)
        y, or the attention matrix Y.
    beta : float or None
        Inverse temperature of the student; None for the linear task.
    tokens : torch.Tensor, shape (n, T, d), or None
        x_a; None where Gaussian sensing matrices take their place.
    sensing : torch.Tensor, shape (n, L, d (d + 1)/2), or None
        Upper triangles of the sensing matrices of the pairs a <= b, off-diagonal entries doubled.
    gram : torch.Tensor, shape (n, T, T), or None
        X X'/d of seq2seq: norm((Y - A) X)^2/d = tr (Y - A) X X'/d (Y - A)'.
    """

    labels: torch.Tensor
    beta: float | None = None
    tokens: torch.Tensor | None = None
    sensing: torch.Tensor | None = None
    gram: torch.Tensor | None = None

    def __len__(self) -> int:
        return self.labels.shape[0]

    def map(self, change: "torch.device | torch.dtype | torch.Tensor") -> "Sample":
        """The same sample on a device, in a precision, or the rows that an index picks."""

        def changed(part: torch.Tensor | None) -> torch.Tensor | None:
            if part is None:
                return None
            return part[change] if isinstance(change, torch.Tensor) else part.to(change)

        labels, *parts = map(changed, (self.labels, self.tokens, self.sensing, self.gram))
        assert labels is not None
        return Sample(labels, self.beta, *parts)

    # --- pre-activations h_ab = (x_a' S x_b - delta_ab Tr S)/sqrt(d) ------------------------------

    def matrix_field(self, S: torch.Tensor) -> torch.Tensor:
        """h(S), shape (n, T, T), for symmetric S of shape (d, d)."""
        if self.tokens is None:
            return self._square(self._sensed() @ pack(S)) / S.shape[0] ** 0.5
        n, T, d = self.tokens.shape
        products = (self.tokens.reshape(n * T, d) @ S).view(n, T, d)
        h = torch.bmm(products, self.tokens.transpose(1, 2))
        h.diagonal(dim1=1, dim2=2).sub_(S.trace())
        return h / d**0.5

    def factor_field(self, W: torch.Tensor) -> torch.Tensor:
        """h(W W'/sqrt(p d)) for W of shape (d, p), without forming S where tokens allow it."""
        return self._factor_field(W)[0]

    def _factor_field(self, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        d, p = W.shape
        if self.tokens is None:
            return self.matrix_field(W @ W.T / (p * d) ** 0.5), None
        n, T, _ = self.tokens.shape
        keys = (self.tokens.reshape(n * T, d) @ W).view(n, T, p)
        h = torch.bmm(keys, keys.transpose(1, 2))
        h.diagonal(dim1=1, dim2=2).sub_(W.square().sum())
        return h.mul_((p * d * d) ** -0.5), keys

    def _sensed(self) -> torch.Tensor:
        assert self.sensing is not None
        return self.sensing.flatten(0, 1)

    def _square(self, values: torch.Tensor) -> torch.Tensor:
        """Values of the pairs a <= b, sample by sample, as symmetric matrices."""
        T = self.labels.shape[1]
        rows, columns = torch.triu_indices(T, T)
        h = values.new_empty(len(self), T, T)
        h[:, rows, columns] = h[:, columns, rows] = values.view(len(self), -1)
        return h

    # --- loss ---------------------------------------------------------------------------------

    def misfit(self, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss summed over samples, and its derivative in the T^2 entries of h."""
        if self.beta is None:
            error = h - self.labels
            return error.square().sum(), 2 * error
        P = torch.softmax(self.beta * h, -1)
        error = P - self.labels
        pulled = error if self.gram is None else torch.bmm(error, self.gram)
        loss = (error * pulled).sum()
        slope = P * (pulled - (P * pulled).sum(-1, keepdim=True))
        return loss, slope.mul_(2 * self.beta)

    def factor_gradient(self, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss summed over samples and its gradient in W, shape (d, p)."""
        h, keys = self._factor_field(W)
        loss, slope = self.misfit(h)
        d, p = W.shape
        if keys is None:
            S_gradient = self.adjoint(slope, d)
            return loss, 2 / (p * d) ** 0.5 * (S_gradient @ W)
        assert self.tokens is not None
        n, T, _ = self.tokens.shape
        both = slope + slope.transpose(1, 2)
        back = _mix(both, keys).view(n * T, p)
        gradient = self.tokens.reshape(n * T, d).T @ back
        trace = both.diagonal(dim1=1, dim2=2).sum()
        return loss, gradient.sub_(trace * W).mul_((p * d * d) ** -0.5)

    def matrix_gradient(self, S: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss summed over samples and its gradient in symmetric S, shape (d, d)."""
        loss, slope = self.misfit(self.matrix_field(S))
        return loss, self.adjoint(slope, S.shape[0])

    def adjoint(self, slope: torch.Tensor, d: int) -> torch.Tensor:
        """The adjoint of `matrix_field`: from slopes in h, shape (n, T, T), to symmetric S, (d, d)."""
        both = (slope + slope.transpose(1, 2)) / 2
        if self.tokens is None:
            T = self.labels.shape[1]
            rows, columns = torch.triu_indices(T, T)
            # An entry off the diagonal stands for two.
            twice = both[:, rows, columns] * torch.where(rows == columns, 1.0, 2.0).to(both)
            packed = self._sensed().T @ twice.flatten()
            return _unpack(packed, d) / d**0.5
        n, T, _ = self.tokens.shape
        back = _mix(both, self.tokens).view(n * T, d)
        gradient = self.tokens.reshape(n * T, d).T @ back
        gradient.diagonal().sub_(both.diagonal(dim1=1, dim2=2).sum())
        return gradient / d**0.5


def _mix(weights: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """weights (n, T, T) @ vectors (n, T, p), faster than a batched product of such small matrices."""
    out = torch.empty_like(vectors)
    for a in range(vectors.shape[1]):
        torch.mul(vectors[:, 0], weights[:, a, 0:1], out=out[:, a])
        for b in range(1, vectors.shape[1]):
            out[:, a].addcmul_(vectors[:, b], weights[:, a, b : b + 1])
    return out


def pack(S: torch.Tensor) -> torch.Tensor:
    """Upper triangle of a symmetric matrix, row by row."""
    rows, columns = torch.triu_indices(*S.shape, device=S.device)
    return S[rows, columns]


def _unpack(gradient: torch.Tensor, d: int) -> torch.Tensor:
    """Gradient in the upper triangle as a symmetric one in all entries."""
    rows, columns = torch.triu_indices(d, d, device=gradient.device)
    S = gradient.new_zeros(d, d)
    S[rows, columns] = gradient / 2
    return S + S.T


def softmax_labels(h: torch.Tensor, beta0: float) -> torch.Tensor:
    """Attention matrices of the target, shape (n, T, T)."""
    return torch.softmax(beta0 * h, -1)
