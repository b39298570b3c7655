"""Requests as plain values in `Sampling.extra_args`, which is what vLLM carries to its worker."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

Request = TypeVar("Request")


def write_extra_args(key: str, request: object) -> dict[str, Any]:
    """Return `Sampling.extra_args` that hold a request under `key`."""
    return {key: msgspec.to_builtins(request)}


def read_extra_args(
    key: str, kind: type[Request], extra_args: Mapping[str, Any] | None
) -> Request | None:
    """Read what `write_extra_args` wrote; None if there is none, ValueError if it is wrong."""
    if not extra_args or key not in extra_args:
        return None
    # msgspec's ValidationError is a ValueError and names the field.
    return msgspec.convert(extra_args[key], kind)
