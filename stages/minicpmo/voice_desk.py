"""Calls of the vocoder from many conversations, made together by one thread.

Rule 1: a round takes the call that has waited longest and those like it (`Token2Wav.speak` makes
        one batch of them), up to a number. Nobody waits for somebody who is not there: a
        conversation that is stuck has no call here, and holds nothing up.
Rule 2: whoever gives up while waiting takes no part; who gives up later gets what was made for it
        thrown away, which is all the memory that the call took.
Rule 3: a failure reaches those whose round it was, and nobody else.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from session.errors import StageFailed
from stages.minicpmo.schedule import VocoderCall
from stages.minicpmo.token2wav import Due, Spoken, Turn, Voice
from stages.minicpmo.voice_prompt import VoicePrompt

T = TypeVar("T")

_ALL_SIZES: Final = 16
"""Batches below it are warmed up in all sizes; larger ones are rare."""


class Voices(Protocol):
    """What a thread is needed for (`stages.minicpmo.token2wav.Token2Wav`)."""

    def prepare(self, key: str, prompt: VoicePrompt) -> Voice:
        """Return the voice of this key."""
        ...

    def begin(self, voice: Voice, seed: int) -> Turn:
        """Return a turn that has not spoken; no thread is needed for that."""
        ...

    def speak(self, due: Sequence[Due]) -> list[Spoken | StageFailed]:
        """Return each call's sound, or why there is none."""
        ...

    def warm_up(self, voice_frames: int, batch_sizes: Sequence[int]) -> None:
        """Run batches of these sizes."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    due: Due
    done: asyncio.Future[Spoken]

    @property
    def kind(self) -> tuple[int, bool]:
        return len(self.due.call.codes), self.due.call.is_last


class VoiceDesk:
    """The thread, and who waits for it."""

    def __init__(self, voices: Voices, *, batch: int) -> None:
        """`batch` is how many calls a round takes at most."""
        self._voices = voices
        self._batch = batch
        self._thread = ThreadPoolExecutor(1, "voice")
        self._waiting: list[_Waiting] = []
        self._rounds: asyncio.Task[None] | None = None

    def close(self) -> None:
        """End the thread once it has done what it does."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def waiting(self) -> int:
        """Calls that no round has taken yet."""
        return len(self._waiting)

    async def warm_up(self, voice_frames: int, *, all_sizes: bool) -> None:
        """Run the batches that rounds will have, with a voice of so many frames of mel.

        On a GPU the first batch of a size takes some tenths of a second more, and all rounds wait;
        elsewhere one turn alone brings up all that there is.
        """
        sizes = [*range(1, _ALL_SIZES), 16, 32, 64] if all_sizes else []
        sizes = [size for size in sizes if size < self._batch]
        last = self._batch if all_sizes else 1
        await self._in_thread(lambda: self._voices.warm_up(voice_frames, [*sizes, last]))

    async def prepare(self, key: str, prompt: VoicePrompt) -> Voice:
        """Return the voice of this key. Raises UnsupportedOption for one that can not be used."""
        return await self._in_thread(lambda: self._voices.prepare(key, prompt))

    def begin(self, voice: Voice, seed: int) -> Turn:
        """Return a turn that has not spoken; `seed` decides its noise."""
        return self._voices.begin(voice, seed)

    async def speak(self, turn: Turn, call: VocoderCall) -> Spoken:
        """Return what the call sounds like, and the turn after it. Raises StageFailed."""
        done: asyncio.Future[Spoken] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(Due(turn, call), done))
        if self._rounds is None:
            self._rounds = asyncio.create_task(self._run())  # noqa: TID251 - ends when none waits
        return await done

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run(self) -> None:
        """Go round until nobody waits."""
        try:
            while taken := self._take():
                due = [one.due for one in taken]
                try:
                    made = await self._in_thread(lambda due=due: self._voices.speak(due))  # type: ignore[misc]
                except Exception as error:  # noqa: BLE001 - reaches those whose round it was
                    made = [StageFailed(f"the vocoder failed: {error}") for _ in taken]
                _settle(taken, made)
                # What was made must not outlive the round here.
                del taken, due, made
        finally:
            self._rounds = None

    def _take(self) -> list[_Waiting]:
        present = [one for one in self._waiting if not one.done.cancelled()]
        alike = [one for one in present if one.kind == present[0].kind][: self._batch]
        self._waiting = [one for one in present if one not in alike]
        return alike


def _settle(taken: Sequence[_Waiting], made: Sequence[Spoken | StageFailed]) -> None:
    for one, result in zip(taken, made, strict=True):
        if one.done.done():
            continue
        if isinstance(result, StageFailed):
            one.done.set_exception(result)
        else:
            one.done.set_result(result)
