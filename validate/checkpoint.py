"""Query and key matrices of attention heads from a safetensors or PyTorch checkpoint."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from derive.exact import ProblemError

__all__ = ["Head", "Layout", "read_heads"]

Array = NDArray[np.float64]

# What the usual libraries call the weights; the numbers before that name the layer.
_QUERY = r"(?:^|[._])(?:query|q_proj|q_lin|to_q|wq|q)\.weight$"
_KEY = r"(?:^|[._])(?:key|k_proj|k_lin|to_k|wk|k)\.weight$"
_FUSED = r"(?:^|[._])(?:qkv|qkv_proj|query_key_value|Wqkv|c_attn|in_proj)[._]weight$"
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KEY_HEADS = ("num_key_value_heads", "n_head_kv")
_NESTED = ("state_dict", "model", "model_state_dict", "module")


@dataclass(frozen=True)
class Layout:
    """How a checkpoint holds its heads.

    Attributes
    ----------
    heads, key_heads : int, optional
        Query heads, and key heads where fewer are shared; read from a config.json beside the file if not
        stated.
    query, key, fused : str, optional
        Patterns (regular expressions, searched in the names) of separate and of fused weights; ``fused``
        holds query, key and value stacked along the output.
    per_head : bool
        Fused weights are stacked head by head (q1 k1 v1 q2 ...) rather than all queries first.
    transposed : bool
        Separate weights are (inputs, outputs) rather than (outputs, inputs). Of fused ones the shape
        tells.
    """

    heads: int | None = None
    key_heads: int | None = None
    query: str | None = None
    key: str | None = None
    fused: str | None = None
    per_head: bool = False
    transposed: bool = False


@dataclass(frozen=True)
class Head:
    """Weights of one head: ``query`` and ``key``, shape (d, p), so that the map is query key'."""

    layer: str
    head: int
    query: Array
    key: Array


class _Tensors:
    """Names of a checkpoint and its tensors, read one at a time."""

    def __init__(self, names: list[str], read: Callable[[str], Any]) -> None:
        self.names, self._read = names, read

    def matrix(self, name: str) -> Array:
        """A weight in float64, whatever precision it is stored in."""
        tensor = self._read(name)
        if not getattr(tensor, "is_floating_point", lambda: False)():
            raise ProblemError(f"{name} holds no real numbers (quantised weights are not read)")
        if tensor.ndim != 2:
            raise ProblemError(f"{name} must be a matrix, not of shape {tuple(tensor.shape)}")
        values: Array = tensor.double().numpy()
        if not np.isfinite(values).all():
            raise ProblemError(f"{name} holds values that are not finite")
        return values


def read_heads(path: Path, layout: Layout, layer: str | None = None) -> Iterator[Head]:
    """Every head of a checkpoint, or of one layer, as they are read: one layer is held at a time.

    Biases and rotary phases are not part of the map W_Q W_K'.

    Raises
    ------
    ProblemError
        The file is no checkpoint or is damaged; no weight matches; shapes do not fit the number of
        heads; that number is unknown; a package is missing.
    """
    tensors = _open(path)
    layout = _completed(layout, path)
    found = {
        kind: _matches(tensors.names, getattr(layout, kind) or default)
        for kind, default in (("query", _QUERY), ("key", _KEY), ("fused", _FUSED))
    }
    if found["fused"] and (layout.fused or not found["query"]):
        groups: dict[str, tuple[str, ...]] = {place: (name,) for place, name in found["fused"].items()}
        return _from(tensors, groups, layout, layer)
    if not found["query"] or not found["key"]:
        some = ", ".join(n for n in tensors.names if n.endswith("weight")) or ", ".join(tensors.names)
        raise ProblemError(
            f"no query and key weights are found in {path}; its names are like {some[:200]}: state "
            "--query and --key, or --fused"
        )
    pairs: dict[str, tuple[str, ...]] = {}
    for place, name in found["query"].items():
        if place not in found["key"]:
            raise ProblemError(f"no key weight stands beside {name} in {path}")
        pairs[place] = (name, found["key"][place])
    return _from(tensors, pairs, layout, layer)


def _matches(names: list[str], pattern: str) -> dict[str, str]:
    """Names that match, by what stands before the match."""
    hits = ((re.search(pattern, name), name) for name in names)
    return {name[: hit.start()]: name for hit, name in hits if hit}


def _from(
    tensors: _Tensors, groups: dict[str, tuple[str, ...]], layout: Layout, only: str | None
) -> Iterator[Head]:
    numbers = {place: tuple(map(int, re.findall(r"\d+", place))) for place in groups}
    distinct = len(set(numbers.values())) == len(numbers) and all(numbers.values())
    for place in sorted(groups, key=lambda place: (numbers[place], place)):
        layer = ".".join(map(str, numbers[place])) if distinct else place or "0"
        if only not in (None, layer):
            continue
        names = groups[place]
        matrices = [tensors.matrix(name) for name in names]
        parts = (
            _split(matrices[0], names[0], layout) if len(names) == 1 else _pair(matrices, names, layout)
        )
        for head, (query, key) in enumerate(parts):
            yield Head(layer, head, query, key)


def _pair(
    matrices: list[Array], names: tuple[str, ...], layout: Layout
) -> Iterator[tuple[Array, Array]]:
    """Heads of separate weights."""
    query, key = (m if layout.transposed else m.T for m in matrices)
    count, shared = _counts(layout)
    if query.shape[0] != key.shape[0]:
        raise ProblemError(
            f"{names[0]} and {names[1]} do not fit: shapes {matrices[0].shape} and {matrices[1].shape} "
            "have different inputs"
        )
    if query.shape[1] % count or key.shape[1] * count != query.shape[1] * shared:
        raise ProblemError(
            f"{names[0]} and {names[1]} of shapes {matrices[0].shape} and {matrices[1].shape} do not "
            f"divide into {count} query and {shared} key heads"
        )
    size = query.shape[1] // count
    return _blocks(query, key, count, shared, size)


def _split(matrix: Array, name: str, layout: Layout) -> Iterator[tuple[Array, Array]]:
    """Heads of a fused weight: query, key and value along its longer side."""
    inputs_last = matrix.shape[0] > matrix.shape[1]
    columns = matrix.T if inputs_last else matrix
    count, shared = _counts(layout)
    size, rest = divmod(columns.shape[1], count + 2 * shared)
    if rest:
        raise ProblemError(
            f"{name} of shape {matrix.shape} does not divide into {count} query and {shared} key and "
            "value heads"
        )
    if layout.per_head:
        if count != shared:
            raise ProblemError("weights stacked head by head have as many key heads as query heads")
        blocks = columns.reshape(columns.shape[0], count, 3, size)
        query, key = (blocks[:, :, i].reshape(columns.shape[0], -1) for i in (0, 1))
    else:
        query, key = columns[:, : count * size], columns[:, count * size : (count + shared) * size]
    return _blocks(query, key, count, shared, size)


def _blocks(
    query: Array, key: Array, count: int, shared: int, size: int
) -> Iterator[tuple[Array, Array]]:
    group = count // shared
    for head in range(count):
        own, other = head * size, head // group * size
        yield query[:, own : own + size], key[:, other : other + size]


def _counts(layout: Layout) -> tuple[int, int]:
    count = layout.heads or 0
    shared = layout.key_heads or count
    if count < 1 or shared < 1 or count % shared:
        raise ProblemError(f"{count} query heads cannot share {shared} key heads")
    return count, shared


def _completed(layout: Layout, path: Path) -> Layout:
    """With the numbers of heads from config.json beside the file, where they are not stated."""
    for pattern in (layout.query, layout.key, layout.fused):
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ProblemError(f"{pattern!r} is no regular expression: {error}") from None
    if layout.heads is not None:
        return layout
    config = path.parent / "config.json"
    try:
        stated = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        stated = {}
    stated = stated if isinstance(stated, dict) else {}
    count = next((stated[name] for name in _HEADS if isinstance(stated.get(name), int)), None)
    if count is None:
        raise ProblemError(f"no config.json beside {path} says how many heads there are: state --heads")
    shared = next((stated[name] for name in _KEY_HEADS if isinstance(stated.get(name), int)), None)
    found = {"heads": count, "key_heads": layout.key_heads or shared}
    return Layout(**(vars(layout) | found))


def _open(path: Path) -> _Tensors:
    try:
        with path.open("rb") as file:
            if not file.read(1):
                raise ProblemError(f"{path} is empty")
    except OSError as error:
        raise ProblemError(f"cannot read {path}: {error.strerror}") from None
    return _open_safetensors(path) if path.suffix == ".safetensors" else _open_torch(path)


def _open_safetensors(path: Path) -> _Tensors:
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as missing:
        raise _missing(missing) from None
    try:
        file = safe_open(path, framework="pt")
        names = list(file.keys())
    except SafetensorError as error:
        raise ProblemError(f"{path} is no whole safetensors file: {error}") from None
    return _Tensors(names, file.get_tensor)


def _open_torch(path: Path) -> _Tensors:
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise _missing(missing) from None
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, UnicodeDecodeError):
        raise ProblemError(
            f"{path} is no whole PyTorch checkpoint of plain tensors (a safetensors file is told by its "
            "ending .safetensors)"
        ) from None
    for name in _NESTED:
        if isinstance(stored, dict) and isinstance(stored.get(name), dict):
            stored = stored[name]
    tensors = (
        {k: v for k, v in stored.items() if isinstance(v, torch.Tensor)}
        if isinstance(stored, dict)
        else {}
    )
    if not tensors:
        raise ProblemError(f"{path} holds no named tensors")
    return _Tensors(list(tensors), tensors.__getitem__)


def _missing(error: ModuleNotFoundError) -> ProblemError:
    return ProblemError(f"reading weights needs {error.name}: install onehead with the weights extra")
