"""Weights that follow from their names: a checkpoint of MiniCPM-o's shapes that needs no download.

1. A tensor's values are noise that its group, its name and nothing else decide, times `std`, plus
   `mean`. Two machines that know the rules hold the same weights to the last bit.
2. All arithmetic is float32 with one rounding an operation. Only the generator's raw stream is
   used, which numpy promises to keep; its distributions may change from version to version.
3. Single rows may be made anew (`row_salt`), then scaled (`row_scale`), in this order.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

RULES_FILE: Final = Path(__file__).parent / "tiny" / "tensors.json"

_SQRT3: Final = np.float32(3**0.5)
"""Half the width of a uniform distribution of variance 1."""
_KNOWN: Final = frozenset(("shape", "dtype", "mean", "std", "row_salt", "row_scale", "unused"))


@dataclass(frozen=True, slots=True)
class TensorRule:
    """How one tensor is made."""

    shape: tuple[int, ...]
    mean: float
    std: float
    row_salt: Mapping[int, int]
    """Rows of the first axis that are drawn anew, each with its salt."""
    row_scale: Mapping[int, float]
    unused: bool
    """The published module has it and never reads it; a checkpoint may lack it."""


@cache
def rules(group: str) -> Mapping[str, TensorRule]:
    """Return the rules of `model`, `flow`, `hift` or `noise`: name to rule, in file order."""
    groups = json.loads(RULES_FILE.read_text(encoding="utf-8"))
    return MappingProxyType({name: _rule(name, entry) for name, entry in groups[group].items()})


def make_tensor(group: str, name: str) -> Float32:
    """Return a tensor of the group; KeyError if the rules do not list it."""
    rule = rules(group)[name]
    label = f"{group}/{name}"
    std, mean = np.float32(rule.std), np.float32(rule.mean)
    values = (unit_noise(label, prod(rule.shape)) * std + mean).reshape(rule.shape)
    for row, salt in rule.row_salt.items():
        drawn = unit_noise(f"{label}#{row}#{salt}", prod(rule.shape[1:]))
        values[row] = (drawn * std + mean).reshape(rule.shape[1:])
    for row, factor in rule.row_scale.items():
        values[row] *= np.float32(factor)
    return values


def unit_noise(label: str, count: int) -> Float32:
    """Return `count` uniform values of mean 0 and variance 1 that the label decides."""
    generator = np.random.Philox(key=zlib.crc32(label.encode()))
    # The top 24 bits: as many as float32 holds without rounding.
    top = (generator.random_raw(count) >> np.uint64(40)).astype(np.float32)
    return (top / np.float32(2**23) - np.float32(1)) * _SQRT3


def _rule(name: str, entry: Mapping[str, Any]) -> TensorRule:
    unknown = entry.keys() - _KNOWN
    if unknown or entry["dtype"] != "float32":
        raise ValueError(f"{RULES_FILE}: {name}: no rule for {sorted(unknown)}, {entry['dtype']}")
    return TensorRule(
        shape=tuple(entry["shape"]),
        mean=entry["mean"],
        std=entry["std"],
        row_salt={int(row): salt for row, salt in entry.get("row_salt", {}).items()},
        row_scale={int(row): factor for row, factor in entry.get("row_scale", {}).items()},
        unused=entry.get("unused", False),
    )
