"""Loads a network's tensors by name from `model.safetensors`, in one file or in shards.

1. Names and shapes are compared with the config's before anything is read: what is missing, what
   is there besides and what has another shape is said in one error.
2. Tensors are views of the mapped file until they are copied or converted, so a network that is
   not asked for costs nothing, and what the engine reads is not read twice.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from stages.minicpmo.checkpoint_files import CheckpointUnreadable, read_object
from stages.minicpmo.config import MiniCPMOConfig
from stages.minicpmo.tensor_shapes import ExpectedTensors, expected_tensors

WEIGHTS_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"

_NAMED_AT_MOST: Final = 8
_FLOATS: Final = frozenset(("F16", "BF16", "F32", "F64"))


class TensorsMismatch(ValueError):
    """The checkpoint's tensors are not those of its config."""

    def __init__(
        self, folder: Path, missing: tuple[str, ...], surplus: tuple[str, ...], odd: tuple[str, ...]
    ) -> None:
        parts = (
            _listed("missing", missing),
            _listed("not known", surplus),
            _listed("of another kind", odd),
        )
        super().__init__(f"{folder}: tensors {'; '.join(part for part in parts if part)}")
        self.folder = folder
        self.missing = missing
        self.surplus = surplus
        self.odd = odd
        """Name, and what is wrong with its shape or its type."""

    def __reduce__(self) -> tuple[type["TensorsMismatch"], tuple[Any, ...]]:
        """Keep the parts across a process boundary."""
        return (type(self), (self.folder, self.missing, self.surplus, self.odd))


def load_tensors(
    folder: Path,
    config: MiniCPMOConfig,
    prefixes: tuple[str, ...],
    *,
    dtype: torch.dtype | None = None,
) -> dict[str, torch.Tensor]:
    """Return the tensors of the networks in `prefixes`, such as `apm`, on the CPU.

    Without `dtype` each has the file's. Raises CheckpointUnreadable that names the file, or
    TensorsMismatch.
    """
    expected = expected_tensors(config, prefixes)
    with ExitStack() as files:
        stored = _stored(folder, prefixes, files)
        _compare(folder, expected, stored)
        tensors = {name: stored[name].read() for name in expected.shapes}
    if dtype is None:
        return tensors
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def check_tensors(folder: Path, config: MiniCPMOConfig, prefixes: tuple[str, ...]) -> None:
    """Raise what `load_tensors` would, without reading the tensors."""
    with ExitStack() as files:
        _compare(folder, expected_tensors(config, prefixes), _stored(folder, prefixes, files))


@dataclass(frozen=True, slots=True)
class _Stored:
    """Where a tensor lies."""

    name: str
    path: Path
    file: Any
    """The library's open file, which has no type information."""

    def shape_and_type(self) -> tuple[tuple[int, ...], str]:
        header = self.file.get_slice(self.name)
        return tuple(header.get_shape()), header.get_dtype()

    def read(self) -> torch.Tensor:
        try:
            tensor: torch.Tensor = self.file.get_tensor(self.name)
        except SafetensorError as error:
            raise CheckpointUnreadable(self.path, f"{self.name}: {error}") from error
        return tensor


def _stored(folder: Path, prefixes: tuple[str, ...], files: ExitStack) -> dict[str, _Stored]:
    """Open what holds the networks, and return their tensors by name."""
    starts = tuple(f"{prefix}." for prefix in prefixes)
    stored: dict[str, _Stored] = {}
    for path, names in _shards(folder, starts):
        file = _open(path, files)
        held = [name for name in file.keys() if name.startswith(starts)]  # noqa: SIM118 - no dict
        stored |= {name: _Stored(name, path, file) for name in held}
        lost = sorted(names - set(held))
        if lost:
            raise CheckpointUnreadable(path, f"lacks {lost[0]}, which {INDEX_FILE} says it holds")
    return stored


def _shards(folder: Path, starts: tuple[str, ...]) -> Iterator[tuple[Path, frozenset[str]]]:
    """Yield the files to open, each with the names that the index promises."""
    whole, index = folder / WEIGHTS_FILE, folder / INDEX_FILE
    if whole.exists():
        yield whole, frozenset()
        return
    if not index.exists():
        raise CheckpointUnreadable(whole, f"missing, and there is no {INDEX_FILE} beside it")
    places = read_object(index).get("weight_map")
    if not isinstance(places, dict) or not all(_is_file_name(one) for one in places.values()):
        raise CheckpointUnreadable(index, "weight_map: not an object of names of files beside it")
    wanted = {name: place for name, place in places.items() if name.startswith(starts)}
    for place in sorted(set(wanted.values())):
        yield folder / place, frozenset(name for name in wanted if wanted[name] == place)


def _is_file_name(value: object) -> bool:
    return isinstance(value, str) and Path(value).name == value


def _open(path: Path, files: ExitStack) -> Any:
    try:
        return files.enter_context(safe_open(path, framework="pt"))
    except OSError as error:
        raise CheckpointUnreadable(path, f"can not be read: {error}") from error
    except SafetensorError as error:
        raise CheckpointUnreadable(path, f"damaged, or cut short: {error}") from error


def _compare(folder: Path, expected: ExpectedTensors, stored: Mapping[str, _Stored]) -> None:
    missing = tuple(sorted(expected.shapes.keys() - stored.keys()))
    surplus = tuple(sorted(name for name in stored if not expected.may_hold(name)))
    odd = tuple(_odd(expected, stored))
    if missing or surplus or odd:
        raise TensorsMismatch(folder, missing, surplus, odd)


def _odd(expected: ExpectedTensors, stored: Mapping[str, _Stored]) -> Iterator[str]:
    for name in sorted(expected.shapes.keys() & stored.keys()):
        shape, kind = stored[name].shape_and_type()
        if shape != expected.shapes[name]:
            yield f"{name} {list(shape)} instead of {list(expected.shapes[name])}"
        elif kind not in _FLOATS:
            yield f"{name} of {kind}, which is no plain number: a quantised checkpoint?"


def _listed(what: str, names: tuple[str, ...]) -> str:
    """Return `what (count): names`, the first of them only; nothing if there are none."""
    if not names:
        return ""
    rest = "" if len(names) <= _NAMED_AT_MOST else ", …"
    return f"{what} ({len(names)}): {', '.join(names[:_NAMED_AT_MOST])}{rest}"
