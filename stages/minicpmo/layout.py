"""What is fed to the language model, in order: the context once, then unit after unit.

The template of the vectors, section 3. A piece is some token ids or some rows of embeddings; each
takes one position an id or row, and positions run on without gaps, so counts here are exact:
a placeholder too many would stay in the model's memory as padding.

1. The context is `prefix`, the reference audio's rows if there are any, `suffix`. The two texts are
   tokenised apart, because the tokenizer would merge across the seam.
2. A unit is `<unit>`, its camera frames each between `<image>` and `</image>`, and its audio.
   The logits of the last audio row choose its first token.
3. A terminator is not fed when it is chosen, but with `</unit>` before the next unit.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from session.errors import UnsupportedOption
from stages.log_mel import HOP
from stages.minicpmo.mel import REFERENCE_SAMPLES
from stages.minicpmo.special_tokens import NAMES, SpecialTokens

Tokens = tuple[int, ...]
Tokenise = Callable[[str], Tokens]
"""The tokenizer without any template; it knows special tokens by their spelling."""

DEFAULT_SYSTEM: Final = "Streaming Omni Conversation."

_ENCODER_FRAMES_PER_UNIT: Final = 50


class RowKind(Enum):
    """Where rows of embeddings come from."""

    REFERENCE = "reference"
    IMAGE = "image"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True)
class Ids:
    """Token ids to embed and feed."""

    ids: Tokens

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Rows:
    """A place for `count` rows of embeddings."""

    kind: RowKind
    count: int

    def __len__(self) -> int:
        return self.count


Piece = Ids | Rows
Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of embeddings that a checkpoint's config gives to an input."""

    audio: int
    """For a unit of one second."""
    image: int
    """For a camera frame that is not sliced."""
    pool: int
    """Encoder frames, of 20 ms, that make one audio row."""

    @classmethod
    def from_config(cls, *, audio_pool_step: int, query_num: int) -> "RowCounts":
        """Read the config's two fields; a unit's 50 encoder frames are to be whole pools."""
        if audio_pool_step < 1 or _ENCODER_FRAMES_PER_UNIT % audio_pool_step or query_num < 1:
            raise ValueError(
                f"config: audio_pool_step {audio_pool_step} does not divide "
                f"{_ENCODER_FRAMES_PER_UNIT}, or query_num {query_num} is not positive"
            )
        return cls(
            audio=_ENCODER_FRAMES_PER_UNIT // audio_pool_step,
            image=query_num,
            pool=audio_pool_step,
        )

    def reference(self, samples: int) -> int:
        """Return the rows of a reference recording of 16 kHz: an odd rest of a pool is lost."""
        if not 0 < samples <= REFERENCE_SAMPLES:
            raise ValueError(
                f"a reference recording has 1 to {REFERENCE_SAMPLES} samples, not {samples}; cut it"
            )
        mel_frames = -(-samples // HOP)
        return -(-mel_frames // 2) // self.pool


@dataclass(frozen=True, slots=True)
class ContextText:
    """The two texts around the reference audio."""

    prefix: str
    suffix: str


def context_text(
    system: str, *, has_reference: bool, special_texts: Collection[str]
) -> ContextText:
    """Return the context's texts; without reference audio nothing stands between them.

    `special_texts` are the spellings of all of the tokenizer's special tokens. A client's text
    that holds one is refused: it would become that token and forge the template.
    """
    spelt = sorted(text for text in special_texts if text in system)
    if spelt:
        raise UnsupportedOption(
            f"instructions can not hold the model's control tokens: leave out {', '.join(spelt)}",
            param="session.instructions",
        )
    prefix = f"{NAMES['im_start']}system\n{system}"
    if not has_reference:
        return ContextText(prefix, NAMES["im_end"])
    return ContextText(
        f"{prefix}\n{NAMES['audio_start']}", f"{NAMES['audio_end']}{NAMES['im_end']}"
    )


def context_pieces(
    text: ContextText, tokenise: Tokenise, *, reference_rows: int, previous: Tokens = ()
) -> Pieces:
    """Return the context. `previous` is what a window carried over, its marker included."""
    prefix, suffix = Ids(tokenise(text.prefix)), Ids(tokenise(text.suffix))
    between: Pieces = (Rows(RowKind.REFERENCE, reference_rows),) if reference_rows else ()
    carried: Pieces = (Ids(previous),) if previous else ()
    return (prefix, *between, *carried, suffix)


def unit_pieces(tokens: SpecialTokens, counts: RowCounts, *, frames: int) -> Pieces:
    """Return a unit's input with so many camera frames; the last row's logits are wanted."""
    frame: Pieces = (
        Ids((tokens.image,)),
        Rows(RowKind.IMAGE, counts.image),
        Ids((tokens.image_end,)),
    )
    return (Ids((tokens.unit,)), *frame * frames, Rows(RowKind.AUDIO, counts.audio))


def closing_piece(terminator: int, tokens: SpecialTokens) -> Ids:
    """Return what closes a unit."""
    if terminator not in tokens.terminators:
        raise ValueError(f"token {terminator} does not end a unit")
    return Ids((terminator, tokens.unit_end))


def append_pieces(
    tokens: SpecialTokens, counts: RowCounts, *, frames: int, last_terminator: int | None
) -> Pieces:
    """Return what one append feeds: the closing of the unit before, if any, and a unit."""
    unit = unit_pieces(tokens, counts, frames=frames)
    if last_terminator is None:
        return unit
    return (closing_piece(last_terminator, tokens), *unit)


def positions(pieces: Iterable[Piece]) -> int:
    """Return how many positions the pieces take."""
    return sum(len(piece) for piece in pieces)


def unit_length(counts: RowCounts, *, frames: int, fed: int) -> int:
    """Return the positions of a closed unit in which `fed` tokens were generated and fed."""
    return 1 + frames * (counts.image + 2) + counts.audio + fed + 2
