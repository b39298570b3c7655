"""The special tokens that the unit template and the decode policy stand on.

They are looked up by name: a checkpoint with other ids works, one without a name is refused
before it serves anybody (vectors, section 3).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "im_start": "<|im_start|>",
        "im_end": "<|im_end|>",
        "unit": "<unit>",
        "unit_end": "</unit>",
        "image": "<image>",
        "image_end": "</image>",
        "audio_start": "<|audio_start|>",
        "audio_end": "<|audio_end|>",
        "tts_bos": "<|tts_bos|>",
        "tts_eos": "<|tts_eos|>",
        "tts_pad": "<|tts_pad|>",
        "listen": "<|listen|>",
        "speak": "<|speak|>",
        "turn_eos": "<|turn_eos|>",
        "chunk_eos": "<|chunk_eos|>",
        "chunk_tts_eos": "<|chunk_tts_eos|>",
    }
)
"""How the tokenizer spells each field of `SpecialTokens`."""


class SpecialTokensMissing(ValueError):
    """The tokenizer's table lacks tokens without which no unit can be built or read."""

    def __init__(self, missing: tuple[str, ...]) -> None:
        super().__init__(
            f"the tokenizer has no {', '.join(missing)}: this is not the tokenizer of "
            "MiniCPM-o 4.5, or its added_tokens.json was left out"
        )
        self.missing = missing

    def __reduce__(self) -> tuple[type["SpecialTokensMissing"], tuple[tuple[str, ...]]]:
        """Keep the names across a process boundary."""
        return (type(self), (self.missing,))


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids in one tokenizer."""

    im_start: int
    im_end: int
    unit: int
    unit_end: int
    image: int
    image_end: int
    audio_start: int
    audio_end: int
    tts_bos: int
    tts_eos: int
    tts_pad: int
    listen: int
    speak: int
    turn_eos: int
    chunk_eos: int
    chunk_tts_eos: int

    @property
    def terminators(self) -> frozenset[int]:
        """Return the tokens that end a unit. `turn_eos` ends a turn and no unit."""
        return frozenset((self.listen, self.chunk_eos, self.chunk_tts_eos))


def resolve_special_tokens(ids_by_token: Mapping[str, int]) -> SpecialTokens:
    """Look every name up; raise SpecialTokensMissing that names all that are not there."""
    names = tuple(NAMES[field.name] for field in fields(SpecialTokens))
    missing = tuple(name for name in names if name not in ids_by_token)
    if missing:
        raise SpecialTokensMissing(missing)
    return SpecialTokens(*(ids_by_token[name] for name in names))
