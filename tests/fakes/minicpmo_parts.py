"""MiniCPM-o's ear and language model without a network: what they answer follows from what is held.

The language model decides each step by a digest of everything that it holds, so two sessions that
hold the same answer the same, and one position more or less shows in everything that follows.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from session.errors import AdmissionRefused, StageFailed, StageRefused
from session.ids import SessionId
from session.unit import VOICE_RATE_HZ
from stages.engine.values import Embeddings, EngineCapacity, Ids, Pieces, SegmentTiming
from stages.minicpmo.mel import MelState, hear
from stages.minicpmo.policy import Decision
from stages.minicpmo.ports import EncoderPlace, Heard, Question, Thought
from stages.minicpmo.special_tokens import SpecialTokens
from stages.minicpmo.unit_decoder import Ended, Fed, Tokens, advance, start_unit
from tests.support.models import Gate

HIDDEN = 8


def digest(pieces: Pieces) -> bytes:
    """Return what all that is held comes to."""
    held = hashlib.blake2b(digest_size=8)
    for piece in pieces:
        # One position after another, so that it does not matter how they came.
        ids = "".join(f"{one}," for one in piece.ids) if isinstance(piece, Ids) else ""
        held.update(ids.encode() if isinstance(piece, Ids) else _bytes_of(piece))
    return held.digest()


def _bytes_of(rows: Embeddings) -> bytes:
    return bytes(cast(Any, rows.rows).tobytes())


@dataclass(frozen=True)
class _Place:
    units: int


class DigestEar:
    """Implements `stages.minicpmo.ports.Ear`: a second's rows are its samples' digest."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.places_made = 0

    def new_place(self) -> EncoderPlace:
        """Count."""
        self.places_made += 1
        return EncoderPlace(_Place(0))

    async def hear(self, place: EncoderPlace, mel: MelState, pcm: bytes) -> Heard:
        """Wait at the gate, then answer by place and samples."""
        await self.gate.go()
        units = cast(_Place, place).units
        assert units == mel.units, "the ear and the mel stand at different places"
        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32_768)
        mel, features = hear(mel, samples)
        seconds = tuple(
            _rows("audio", f"{units + index}".encode() + feature.tobytes(), 10)
            for index, feature in enumerate(features)
        )
        return Heard(mel, EncoderPlace(_Place(units + len(seconds))), seconds)

    async def see(self, images: Sequence[bytes]) -> tuple[Embeddings, ...]:
        """Answer by the bytes; `bad` is no picture."""
        if b"bad" in images:
            raise StageFailed("a picture can not be read")
        return tuple(_rows("image", image, 64) for image in images)

    async def learn_voice(self, pcm: bytes) -> Embeddings:
        """Answer by the bytes."""
        return _rows("audio", pcm, len(pcm) // 2 // (VOICE_RATE_HZ // 10))


def _rows(modality: str, of: bytes, count: int) -> Embeddings:
    seed = int.from_bytes(hashlib.blake2b(of, digest_size=4).digest(), "big")
    values = np.random.default_rng(seed).random((count, HIDDEN), np.float32)
    return Embeddings(modality, cast(Any, values))


class DigestModel:
    """Implements `stages.minicpmo.ports.UnitModel`."""

    def __init__(
        self, tokens: SpecialTokens, decode: Callable[[Tokens], str], *, slots: int = 4
    ) -> None:
        self._tokens = tokens
        self._decode = decode
        self._slots = slots
        self.held: dict[SessionId, Pieces] = {}
        self.asked: list[Question] = []
        self.prepared: list[SessionId] = []
        self.replaced = 0
        self.gate = Gate()
        self.faults: list[Exception] = []
        self._cancels = 0

    async def open(self, session_id: SessionId) -> None:
        """Take a slot."""
        if len(self.held) == self._slots:
            raise AdmissionRefused("no slot is left")
        self.held[session_id] = ()

    async def think(self, session_id: SessionId, question: Question) -> Thought:
        """Wait at the gate; then decide by all that is held."""
        self.asked.append(question)
        cancels = self._cancels
        await self.gate.go()
        if self._cancels != cancels:
            raise StageRefused("cancelled")
        if self.faults:
            raise self.faults.pop(0)
        held = (*self.held[session_id], *question.pieces)
        ended = self._ended(held, question)
        self.held[session_id] = (*held, Ids(ended.fed))
        timing = SegmentTiming(0.0, 3.0, (1.0,) * len(ended.fed), len(ended.fed) + 1)
        return Thought(ended, np.zeros((len(ended.fed), HIDDEN), np.float32), timing)

    def _ended(self, held: Pieces, question: Question) -> Ended:
        unit = start_unit(
            question.speech, self._tokens, question.rules, must_listen=question.must_listen
        )
        salt = repr((question.decode.temperature, question.seed if not question.is_greedy else 0))
        while True:
            fed = unit.fed

            def decide(history: Tokens, fed: Tokens = fed) -> Decision:
                del history
                return self._choice(digest((*held, Ids(fed))) + salt.encode())

            step = advance(
                unit,
                decide,
                tokens=self._tokens,
                rules=question.rules,
                decode_text=self._decode,
            )
            if not isinstance(step, Fed):
                return replace(step, speech=replace(step.speech, history=()))
            unit = step.unit

    def _choice(self, of: bytes) -> Decision:
        number = int.from_bytes(hashlib.blake2b(of, digest_size=4).digest(), "big")
        special = (
            *(self._tokens.listen,) * 4,
            *(self._tokens.speak,) * 4,
            *(self._tokens.chunk_eos,) * 3,
            self._tokens.turn_eos,
        )
        choice = number % 24
        token = special[choice] if choice < len(special) else 1000 + number % 50
        return Decision(token, joins_history=token != self._tokens.chunk_eos)

    async def replace(self, session_id: SessionId, pieces: Pieces) -> None:
        """Hold exactly these."""
        if digest(self.held[session_id]) != digest(pieces):
            self.replaced += 1
        self.held[session_id] = pieces

    async def prepare(self, session_id: SessionId) -> None:
        """Note it."""
        self.prepared.append(session_id)

    async def cancel(self, session_id: SessionId) -> None:
        """Let who waits at the gate fail."""
        del session_id
        self._cancels += 1
        self.gate.release()

    async def close(self, session_id: SessionId) -> None:
        """Give the slot back."""
        self.held.pop(session_id, None)

    def capacity(self) -> EngineCapacity:
        """Return how many slots are taken."""
        return EngineCapacity(self._slots, len(self.held), 0, 0, 0)

    async def died(self) -> str:
        """Return at once."""
        return "it was asked"
