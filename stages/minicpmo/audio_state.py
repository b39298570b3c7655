"""What the audio encoder remembers of one conversation: keys and values, and a count of units.

Rule 1: a unit adds 50 positions. A unit that would begin where 52 more no longer fit below the
        number of positions forgets everything before it and begins at position 0. With 1500
        positions these are the units 29, 58, ... (Vectors, section 2, clause 2.)
Rule 2: so the count of units says all: unit u begins at position 50 (u mod 29), and reads the rows
        before it.
Rule 3: only a commit changes a state. What was computed and not committed never happened.
Rule 4: going back is setting the count back, as long as no row was overwritten that the next unit
        reads. The unit committed last can always be undone: if it was the first after everything
        was forgotten, then giving it again reads nothing.
"""

from dataclasses import dataclass, field
from typing import Final

import torch

from session.errors import StageRefused
from stages.minicpmo.config import MiniCPMOConfig

UNIT_POSITIONS: Final = 50
"""What a unit adds: 100 frames of mel, halved."""
_CUT_POSITIONS: Final = 2
"""What is computed on a unit's edges and cut off; the reset rule counts them."""


@dataclass(frozen=True, slots=True)
class AudioEncoderSizes:
    """Sizes of the audio encoder and of what stands between it and the language model."""

    mel_bands: int
    hidden: int
    layers: int
    heads: int
    ffn: int
    positions: int
    """Rows of the table of positions."""
    pool: int
    """Positions that become one embedding."""
    llm_hidden: int
    block: int = UNIT_POSITIONS
    """Positions of a voice's recording that see each other whatever their order."""

    @classmethod
    def of(cls, config: MiniCPMOConfig) -> "AudioEncoderSizes":
        """Return the sizes in a checkpoint's config."""
        audio = config.audio
        return cls(
            mel_bands=audio.num_mel_bins,
            hidden=audio.d_model,
            layers=audio.encoder_layers,
            heads=audio.encoder_attention_heads,
            ffn=audio.encoder_ffn_dim,
            positions=audio.max_source_positions,
            pool=config.audio_pool_step,
            llm_hidden=config.llm.hidden_size,
            block=int(config.audio_chunk_length * UNIT_POSITIONS),
        )

    def __post_init__(self) -> None:
        """Raise ValueError for sizes that no encoder can have."""
        if self.hidden % self.heads:
            raise ValueError(f"{self.heads} heads do not share {self.hidden} values evenly")
        if self.units_kept < 1:
            raise ValueError(f"not even one unit fits into {self.positions} positions")
        if self.block < 1:
            raise ValueError("a block of a voice's recording has no position")

    @property
    def units_kept(self) -> int:
        """Units after which everything is forgotten."""
        # Unit u is the first whose start + 50 + 2 reaches the number of positions.
        room = self.positions - UNIT_POSITIONS - _CUT_POSITIONS
        return -(-room // UNIT_POSITIONS)

    @property
    def positions_kept(self) -> int:
        """The most positions that a conversation ever has in memory."""
        return self.units_kept * UNIT_POSITIONS


def state_bytes(sizes: AudioEncoderSizes, dtype: torch.dtype) -> int:
    """Return what one conversation's state takes, from its first unit to its last.

    layers x 2 (keys and values) x positions kept x hidden x bytes of a number. For the sizes of
    Whisper medium (24 layers, 1024 wide, 1500 positions of which 1450 are ever used) in 16 bits
    that is 142 540 800 bytes; a unit that was computed and not yet committed holds a 29th more.
    """
    return sizes.layers * 2 * sizes.positions_kept * sizes.hidden * dtype.itemsize


class EncoderState:
    """One conversation's memory. Takes `state_bytes` from the beginning; nothing grows."""

    def __init__(
        self,
        sizes: AudioEncoderSizes,
        device: torch.device,
        dtype: torch.dtype,
        units: int = 0,
    ) -> None:
        """`units` have been heard before, all of which are forgotten."""
        shape = (sizes.layers, 2, sizes.positions_kept, sizes.hidden)
        self._rows = torch.empty(shape, device=device, dtype=dtype)
        self._sizes = sizes
        self._units_kept = sizes.units_kept
        self._units = units
        self._written_round = units // sizes.units_kept
        """Which round of `units_kept` units the rows in front belong to."""
        self._changes = 0

    @property
    def units(self) -> int:
        """Units heard so far; what `rewind` takes."""
        return self._units

    @property
    def start(self) -> int:
        """Position at which the next unit begins, and how many rows it reads."""
        return self._units % self._units_kept * UNIT_POSITIONS

    @property
    def changes(self) -> int:
        """Goes up with every change, so that what was computed before it can be told."""
        return self._changes

    def successor(self) -> "EncoderState":
        """Return a memory of its own for what follows, where the next unit forgets everything.

        This one stays as it is. Raise StageRefused anywhere else.
        """
        if self.start:
            raise StageRefused(f"unit {self._units} does not forget what came before it")
        return EncoderState(self._sizes, self._rows.device, self._rows.dtype, self._units)

    def past(self) -> torch.Tensor:
        """Return [layers, 2, start, hidden]: the keys and values that the next unit sees."""
        return self._rows[:, :, : self.start]

    def commit(self, unit: "EncodedUnit") -> None:
        """Remember a unit. Raise StageRefused if it was not computed from what is held now."""
        if unit.state is not self or unit.changes != self._changes:
            raise StageRefused("the unit was computed from another state than the present one")
        with torch.inference_mode():
            self._rows[:, :, self.start : self.start + UNIT_POSITIONS] = unit.rows
        self._written_round = self._units // self._units_kept
        self._units += 1
        self._changes += 1

    def rewind(self, units: int) -> None:
        """Go back to when `units` units had been heard. Raise StageRefused where none can go."""
        round_, inside = divmod(units, self._units_kept)
        if not 0 <= units <= self._units or (inside and round_ != self._written_round):
            raise StageRefused(f"the encoder can not go back from unit {self._units} to {units}")
        self._units = units
        self._changes += 1


@dataclass(frozen=True, slots=True, eq=False)
class EncodedUnit:
    """A unit that was computed, and that its state has not remembered yet."""

    embeddings: torch.Tensor
    """[10, llm_hidden] What the language model gets."""
    state: EncoderState = field(repr=False)
    changes: int
    """`state.changes` when it was computed."""
    rows: torch.Tensor = field(repr=False)
    """[layers, 2, 50, hidden] New keys and values."""
