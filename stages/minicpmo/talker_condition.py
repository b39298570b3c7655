"""What the talker hears of a unit: a row for each token, and the row that starts the sound.

1. A token's row is its talker embedding plus the projection of the language model's hidden row,
   which is brought to length 1 (vectors, section 6). The last row is that of `audio_bos` alone; a
   unit without tokens has only that one.
2. The config has switches for other conditions. What is not built here is refused when the service
   starts, not heard in its voice.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import torch
from torch.nn.functional import linear, normalize, relu

from session.errors import StageFailed
from stages.minicpmo.config import TtsConfig

Rows = torch.Tensor

ATTENTION_KEEPS: Final = "full_attention"
"""The whole turn stays in the talker's memory, as long as there is room."""
ATTENTION_RECOMPUTES: Final = "sliding_recompute"
"""Before each unit the memory is made the unit before it, computed anew."""

_FOLLOWED: Final[Mapping[str, tuple[Any, ...]]] = {
    "condition_type": ("hidden_text_merge",),
    "projector_type": ("mlp",),
    "attention_type": (ATTENTION_KEEPS, ATTENTION_RECOMPUTES),
    "normalize_projected_hidden": (True,),
    "num_vq": (1,),
}
_PROJECTOR: Final = ("linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias")


class TalkerUnsupported(ValueError):
    """The checkpoint's talker is of a kind that is not built here."""

    def __init__(self, field: str, value: object) -> None:
        super().__init__(
            f"tts_config.{field}: {value!r} is not what is built here, "
            f"{' or '.join(map(repr, _FOLLOWED[field]))}"
        )
        self.field = field
        self.value = value

    def __reduce__(self) -> tuple[type["TalkerUnsupported"], tuple[str, object]]:
        """Keep both parts across a process boundary."""
        return (type(self), (self.field, self.value))


def require_followed(config: TtsConfig) -> None:
    """Raise TalkerUnsupported for the first switch in a position that is not built here."""
    for field, allowed in _FOLLOWED.items():
        value = getattr(config, field)
        if value not in allowed:
            raise TalkerUnsupported(field, value)


class TalkerCondition:
    """Makes conditions. It holds two networks and no state, so threads may share it."""

    def __init__(self, emb_text: Rows, projector: Sequence[Rows], audio_bos: int) -> None:
        self._emb_text: Final = emb_text
        self._projector: Final = tuple(projector)
        self._audio_bos: Final = audio_bos

    @classmethod
    def from_tensors(
        cls,
        config: TtsConfig,
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> Self:
        """Take the tensors `tts.emb_text` and `tts.projector_semantic`; others are not looked at.

        Raises TalkerUnsupported, or KeyError with the name of a tensor that is missing.
        """
        require_followed(config)
        names = ("emb_text.weight", *(f"projector_semantic.{name}" for name in _PROJECTOR))
        text, *projector = (tensors[f"tts.{name}"].to(device, dtype) for name in names)
        return cls(text, projector, config.audio_bos_token_id)

    @torch.no_grad()
    def rows(self, token_ids: Sequence[int], hidden: Any) -> Rows:
        """Return a unit's condition [n + 1, talker's hidden], contiguous on the CPU.

        `hidden` is an array [n, language model's hidden]; for n = 0 it may be None. StageFailed if
        the two do not fit each other, the checkpoint, or are no numbers.
        """
        count, device = len(token_ids), self._emb_text.device
        if count and not 0 <= min(token_ids) <= max(token_ids) < len(self._emb_text):
            raise StageFailed(f"tokens {list(token_ids)} are not all known to the talker")
        ids = torch.tensor([*token_ids, self._audio_bos], device=device)
        condition = self._emb_text[ids]
        if count:
            condition[:count] += normalize(self._projected(hidden, count), dim=-1)
        return condition.cpu().contiguous()

    def _projected(self, hidden: Any, count: int) -> Rows:
        first, first_bias, second, second_bias = self._projector
        wanted = (count, first.shape[1])
        # A copy, for what came from another process may not be written to, and torch minds.
        rows = torch.tensor(np.asarray([] if hidden is None else hidden))
        if tuple(rows.shape) != wanted:
            raise StageFailed(f"hidden rows must be {list(wanted)}, these are {list(rows.shape)}")
        if not bool(rows.isfinite().all()):
            raise StageFailed("hidden rows must be finite")
        rows = rows.to(first.device, first.dtype)
        return linear(relu(linear(rows, first, first_bias)), second, second_bias)
