"""The audio encoder: a second of mel to ten embeddings, for many conversations at once.

Rule 1: the first unit's mel has 102 frames, every later one's 104. The extra ones are the
        convolutions' context; what they become is cut off, and 50 rows always remain. (Vectors,
        section 2, clause 1.)
Rule 2: rows see each other and everything that the conversation still remembers. (Clause 3.)
Rule 3: conversations in a batch do not see each other: each one's keys are filled up with zeros
        that a mask hides, and a unit that is not finite fails alone.
Rule 4: a unit changes its state only when it is committed (`stages.minicpmo.audio_state`).
Rule 5: a voice's recording is encoded at once, and each block of 50 rows sees itself and all
        before it. (Section 3.)

Everything runs where the weights are. A call waits for the device once, at its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from session.errors import StageFailed, UnsupportedOption
from stages.minicpmo.audio_layers import AudioLayers, take_audio_layers
from stages.minicpmo.audio_state import (
    UNIT_POSITIONS,
    AudioEncoderSizes,
    EncodedUnit,
    EncoderState,
)
from stages.minicpmo.named_tensors import NamedTensors

Mel = npt.NDArray[np.float32]

FIRST_FRAMES: Final = 102
LATER_FRAMES: Final = 104

_HIDDEN_KEY: Final = float("-inf")
_BAD_MEL: Final = "the unit's mel can not be used: its size or its values are wrong"


class AudioEncoder:
    """The network on one device. It holds no conversation."""

    def __init__(self, sizes: AudioEncoderSizes, layers: AudioLayers) -> None:
        self._sizes = sizes
        self._layers = layers
        table = layers.positions
        self._device, self._dtype = table.device, table.dtype
        # Padding is cut from this: the most that a conversation can lack of another's length.
        shape = (2, sizes.positions_kept, sizes.hidden)
        self._zeros = torch.zeros(shape, device=self._device, dtype=self._dtype)

    @classmethod
    def from_tensors(
        cls,
        sizes: AudioEncoderSizes,
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> "AudioEncoder":
        """Build the encoder of `apm.*` and `audio_projection_layer.*`, and of nothing else.

        Raise WrongTensors, which names them, for tensors that lack, do not fit or are surplus.
        """
        named = NamedTensors(tensors, device, dtype)
        layers = take_audio_layers(sizes, named)
        named.finish()
        return cls(sizes, layers)

    def new_state(self) -> EncoderState:
        """Return the memory of a conversation that has not begun: `state_bytes` on the device."""
        return EncoderState(self._sizes, self._device, self._dtype)

    def encode(
        self, states: Sequence[EncoderState], mels: Sequence[Mel]
    ) -> list[EncodedUnit | StageFailed]:
        """Return each conversation's next unit, which is yet to be committed, or why there is none.

        Each mel is float32 [bands, 102] for a first unit, else [bands, 104]. Raise ValueError if
        there are not as many mels as states, or a state comes twice.
        """
        if not len({id(state) for state in states}) == len(states) == len(mels):
            raise ValueError("every conversation needs one mel and comes once")
        good = [i for i in range(len(states)) if self._can_use(states[i], mels[i])]
        encoded = self._encode([states[i] for i in good], [mels[i] for i in good]) if good else []
        results = dict(zip(good, encoded, strict=True))
        return [results.get(i, StageFailed(_BAD_MEL)) for i in range(len(states))]

    def encode_reference(self, mel: Mel) -> torch.Tensor:
        """Return [rows, llm_hidden], ten a second, for a voice's [bands, frames] mel.

        Raise UnsupportedOption for one that gives no row, or more than there are positions, and
        StageFailed if the result is not finite.
        """
        rows = -(-mel.shape[-1] // 2)
        if mel.shape != (self._sizes.mel_bands, mel.shape[-1]) or not np.isfinite(mel).all():
            raise UnsupportedOption("the voice's recording can not be used")
        if not self._sizes.pool <= rows <= self._sizes.positions:
            raise UnsupportedOption("the voice's recording is too short or too long")
        with torch.inference_mode():
            x = self._layers.convolutions(self._on_device([mel])) + self._layers.positions[:rows]
            block = torch.arange(rows, device=self._device) // self._sizes.block
            hidden, _ = self._layers.encode(x, _Alone(block[None] <= block[:, None]))
            embeddings = self._layers.project(hidden)[0]
            if not bool(embeddings.isfinite().all()):
                raise StageFailed("the voice's recording became numbers that are not finite")
        return embeddings

    def warm_up(self, batch_sizes: Sequence[int]) -> None:
        """Run batches of these sizes at full length, so that no conversation pays for the first."""
        sizes = self._sizes
        shape = (sizes.layers, 2, sizes.positions_kept - UNIT_POSITIONS, sizes.hidden)
        first, later = (
            np.zeros((sizes.mel_bands, frames), np.float32)
            for frames in (FIRST_FRAMES, LATER_FRAMES)
        )
        with torch.inference_mode():
            full = torch.zeros(shape, device=self._device, dtype=self._dtype)
            none = full[:, :, :0]
            for size in batch_sizes:
                self._compute([none] * size, [first] * size)
                # One of another length, so that the padding and the mask are used.
                self._compute([full] * (size - 1) + [none], [later] * (size - 1) + [first])
                embeddings, _ = self._compute([full] * size, [later] * size)
                # Waits until the device has done it.
                embeddings.isfinite().all().item()

    def _can_use(self, state: EncoderState, mel: Mel) -> bool:
        frames = LATER_FRAMES if state.units else FIRST_FRAMES
        return (
            mel.dtype == np.float32
            and mel.shape == (self._sizes.mel_bands, frames)
            and bool(np.isfinite(mel).all())
        )

    def _encode(
        self, states: Sequence[EncoderState], mels: Sequence[Mel]
    ) -> list[EncodedUnit | StageFailed]:
        with torch.inference_mode():
            embeddings, rows = self._compute([state.past() for state in states], mels)
            is_finite = embeddings.isfinite().flatten(1).all(1).tolist()
        return [
            EncodedUnit(embeddings[i], state, state.changes, rows[:, :, i])
            if is_finite[i]
            else StageFailed("the unit's sound became numbers that are not finite")
            for i, state in enumerate(states)
        ]

    def _compute(
        self, past: Sequence[torch.Tensor], mels: Sequence[Mel]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return [batch, 10, llm_hidden] and the new [layers, 2, batch, 50, hidden]."""
        starts = [one.shape[2] for one in past]
        table = self._layers.positions
        x = self._rows_of(mels)
        x = x + torch.stack([table[start : start + UNIT_POSITIONS] for start in starts])
        hidden, rows = self._layers.encode(x, _Memories(past, self._zeros))
        return self._layers.project(hidden), rows

    def _rows_of(self, mels: Sequence[Mel]) -> torch.Tensor:
        """Return [batch, 50, hidden]: the convolutions' rows without those of the extra frames."""
        rows: list[torch.Tensor | None] = [None] * len(mels)
        for frames, first in ((FIRST_FRAMES, 0), (LATER_FRAMES, 1)):
            chosen = [i for i, mel in enumerate(mels) if mel.shape[1] == frames]
            if chosen:
                x = self._layers.convolutions(self._on_device([mels[i] for i in chosen]))
                for i, one in zip(chosen, x[:, first : first + UNIT_POSITIONS], strict=True):
                    rows[i] = one
        return torch.stack([one for one in rows if one is not None])

    def _on_device(self, mels: Sequence[Mel]) -> torch.Tensor:
        return torch.from_numpy(np.stack(mels)).to(self._device, self._dtype)


@dataclass(frozen=True, slots=True, eq=False)
class _Alone:
    """A pass that sees only its own rows."""

    mask: torch.Tensor | None

    def joined(self, layer: int, new: torch.Tensor) -> torch.Tensor:
        return new


class _Memories:
    """What each conversation of a batch remembers, brought to one length a layer at a time.

    One concatenation a layer copies what is remembered, and nothing else, once.
    """

    def __init__(self, past: Sequence[torch.Tensor], zeros: torch.Tensor) -> None:
        """`past` is [layers, 2, start, hidden] a conversation; `zeros` [2, longest, hidden]."""
        starts = [one.shape[2] for one in past]
        self._batch = len(past)
        self._past = [one.unbind(0) for one in past]
        self._padding = [zeros[:, : max(starts) - start] for start in starts]
        self.mask = None if min(starts) == max(starts) else self._mask(starts, zeros)

    def joined(self, layer: int, new: torch.Tensor) -> torch.Tensor:
        """Return [2, batch, keys, hidden]; each conversation's own rows come first."""
        pieces = [
            piece
            for i, fresh in enumerate(new.unbind(1))
            for piece in (self._past[i][layer], fresh, self._padding[i])
        ]
        return torch.cat(pieces, dim=1).view(2, self._batch, -1, new.shape[-1])

    @staticmethod
    def _mask(starts: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        seen = torch.tensor(starts, device=like.device) + UNIT_POSITIONS
        keys = torch.arange(max(starts) + UNIT_POSITIONS, device=like.device)
        mask = torch.zeros(len(starts), len(keys), device=like.device, dtype=like.dtype)
        return mask.masked_fill_(keys >= seen[:, None], _HIDDEN_KEY)[:, None, None]
