"""How many objects hang on one object."""

import gc
import sys
import types
from dataclasses import dataclass
from typing import Final

SHARED: Final = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
"""What belongs to the program and not to the object."""


@dataclass(frozen=True, slots=True)
class Size:
    """Objects and their bytes."""

    objects: int
    n_bytes: int


def size_of(root: object) -> Size:
    """Count what `root` refers to, itself included, each object once."""
    seen = {id(root)}
    waiting = [root]
    n_bytes = 0
    while waiting:
        found = waiting.pop()
        n_bytes += sys.getsizeof(found)
        for inner in gc.get_referents(found):
            if id(inner) not in seen and not isinstance(inner, SHARED):
                seen.add(id(inner))
                waiting.append(inner)
    return Size(len(seen), n_bytes)
