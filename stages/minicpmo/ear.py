"""The ear: mel and audio encoder for many conversations at once, and the eye beside it.

Rule 1: one thread does all of it, in rounds. A round takes one second of each conversation that
        waits, up to a number; who has more seconds than one waits for the next round again.
Rule 2: a place is a memory and a count of units. Whoever hears from a place goes back to it first,
        so an attempt that failed leaves nothing behind.
Rule 3: where the encoder forgets everything in the middle of an append, what follows is written
        into a memory of its own, because the append may still fail and the place be heard again.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
import torch

from session.errors import DuplexError, StageFailed
from stages.engine.values import Embeddings
from stages.log_mel import Floats
from stages.minicpmo.audio_encoder import AudioEncoder
from stages.minicpmo.audio_state import EncodedUnit, EncoderState
from stages.minicpmo.mel import MelState, hear, reference_mel
from stages.minicpmo.ports import EncoderPlace, Heard
from stages.minicpmo.vision import VisionEncoder
from stages.minicpmo.voice_pcm import voice_at_16k, voice_floats

T = TypeVar("T")

AUDIO = "audio"
IMAGE = "image"
_FULL_SCALE = 32_768
_PICTURES_AT_ONCE = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    state: EncoderState
    units: int


@dataclass(slots=True, eq=False)
class _Wanted:
    """One append on its way through the encoder."""

    place: _Place
    mel: MelState
    pcm: bytes
    done: asyncio.Future[Heard]
    features: tuple[Floats, ...] = ()
    state: EncoderState | None = None
    rows: list[Embeddings] = field(default_factory=list)
    failure: DuplexError | None = None

    @property
    def is_over(self) -> bool:
        return self.failure is not None or (
            bool(self.features) and len(self.rows) == len(self.features)
        )


class EncoderEar:
    """Implements `stages.minicpmo.ports.Ear`."""

    def __init__(self, audio: AudioEncoder, vision: VisionEncoder, *, batch: int) -> None:
        """`batch` is how many conversations a round takes at most."""
        self._audio = audio
        self._vision = vision
        self._batch = batch
        self._thread = ThreadPoolExecutor(1, "encoder")
        self._waiting: list[_Wanted] = []
        self._rounds: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End the thread once it has done what it does."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def warm_up(self) -> None:
        """Run the batches that rounds will have."""
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64, 128, 256) if size < self._batch]
        await self.in_thread(lambda: self._audio.warm_up([*sizes, self._batch]))

    def new_place(self) -> EncoderPlace:
        """Return where a conversation begins; this takes its memory."""
        return EncoderPlace(_Place(self._audio.new_state(), 0))

    async def hear(self, place: EncoderPlace, mel: MelState, pcm: bytes) -> Heard:
        """Encode whole seconds of 16 kHz PCM. A failure leaves `place` as good as it was."""
        done: asyncio.Future[Heard] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wanted(cast(_Place, place), mel, pcm, done))
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._run())  # noqa: TID251 - ends when none waits
        return await done

    async def see(self, images: Sequence[bytes]) -> tuple[Embeddings, ...]:
        """Encode JPEG or PNG pictures. Raises StageFailed."""
        if not images:
            return ()
        seen: list[torch.Tensor | StageFailed] = []
        for first in range(0, len(images), _PICTURES_AT_ONCE):
            # Between two lots the thread has time for those who are to be heard.
            lot = images[first : first + _PICTURES_AT_ONCE]
            seen += await self.in_thread(lambda lot=lot: self._vision.encode(lot))  # type: ignore[misc]
        for one in seen:
            if isinstance(one, StageFailed):
                raise one
        rows = [one for one in seen if isinstance(one, torch.Tensor)]
        return tuple(Embeddings(IMAGE, one.to("cpu").contiguous()) for one in rows)

    async def learn_voice(self, pcm: bytes) -> Embeddings:
        """Encode the recording of a voice, VOICE_RATE_HZ PCM of up to 30 s.

        Raises UnsupportedOption.
        """
        rows = await self.in_thread(
            lambda: self._audio.encode_reference(reference_mel(voice_at_16k(voice_floats(pcm)))).to(
                "cpu"
            )
        )
        return Embeddings(AUDIO, rows.contiguous())

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do `work` in the encoder's thread, between two rounds."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run(self) -> None:
        """Go round until nobody waits."""
        try:
            while self._waiting:
                # Whoever gave up takes no part; the memory that it wrote to is gone back in.
                self._waiting = [one for one in self._waiting if not one.done.cancelled()]
                turn, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
                try:
                    await self.in_thread(lambda turn=turn: self._round(turn))  # type: ignore[misc]
                except Exception as error:  # noqa: BLE001 - reaches those whose round it was
                    _fail(turn, StageFailed(f"the encoder failed: {error}"))
                self._settle(turn)
        finally:
            self._rounds = None

    def _settle(self, turn: list[_Wanted]) -> None:
        for one in turn:
            if not one.is_over:
                self._waiting.append(one)
            elif not one.done.done():
                if one.failure is not None:
                    one.done.set_exception(one.failure)
                else:
                    one.done.set_result(_heard(one))

    def _round(self, turn: list[_Wanted]) -> None:
        """Encode the next second of each; in the thread."""
        for one in turn:
            try:
                _begin(one)
            except DuplexError as error:
                one.failure = error
            except RuntimeError as error:  # torch says so, too, when there is no memory left
                one.failure = StageFailed(f"the encoder has no room for the unit: {error}")
        ready = [one for one in turn if one.failure is None]
        states = [one.state for one in ready if one.state is not None]
        mels = [one.features[len(one.rows)] for one in ready]
        for one, unit in zip(ready, self._audio.encode(states, mels), strict=True):
            if isinstance(unit, StageFailed):
                one.failure = unit
            else:
                _take(one, unit)


def _begin(one: _Wanted) -> None:
    """Make the state ready for the second that comes next."""
    if one.state is None:
        one.mel, one.features = hear(one.mel, _floats(one.pcm))
        one.place.state.rewind(one.place.units)
        one.state = one.place.state
    elif not one.state.start:
        one.state = one.state.successor()


def _take(one: _Wanted, unit: EncodedUnit) -> None:
    unit.state.commit(unit)
    one.rows.append(Embeddings(AUDIO, unit.embeddings.to("cpu").contiguous()))


def _heard(one: _Wanted) -> Heard:
    state = one.state if one.state is not None else one.place.state
    return Heard(one.mel, EncoderPlace(_Place(state, state.units)), tuple(one.rows))


def _fail(turn: list[_Wanted], failure: DuplexError) -> None:
    for one in turn:
        one.failure = failure


def _floats(pcm: bytes) -> Floats:
    """Return 16-bit PCM as float32 in -1..1."""
    return np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32) / np.float32(
        _FULL_SCALE
    )
