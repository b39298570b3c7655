"""Random numbers that follow from a seed alone, the same on every machine."""

from functools import lru_cache
from typing import Final

import numpy as np

MOST_SEED: Final = 2**63 - 1
_BITS: Final = 53


@lru_cache(maxsize=1024)
def uniforms(seed: int, block: int, count: int) -> tuple[float, ...]:
    """Return `count` numbers in [0, 1); each block of a seed, 0 … MOST_SEED, has its own.

    A generator costs as much as many numbers, so those of several steps are best made together.
    """
    words = np.random.Philox(key=[seed, block]).random_raw(count)
    return tuple(((words >> (64 - _BITS)) / 2**_BITS).tolist())
