"""Watches what one session does and checks the laws that a client or a stage could check.

The laws' numbers are those of docs/session.md.
"""

from collections import Counter, defaultdict

from session.effects import CancelStages, CloseStages, Effect, Emit, SubmitUnit, Synthesize
from session.events import (
    AnswerItemOpened,
    Event,
    FunctionCalled,
    ListenDecided,
    OutputBufferCleared,
    PlaybackAdvanced,
    ResponseFinished,
    ResponseStarted,
    SessionClosed,
    SessionCreated,
    SessionExpired,
    SpeakDecided,
    SpeechDelta,
    UserSpeechStarted,
    UserSpeechStopped,
)
from session.fence import Fence, FenceVerdict
from session.ids import ResponseId


class Observer:
    """Accumulates what was seen; any broken law is an AssertionError."""

    def __init__(self, fence: Fence) -> None:
        self.fence = fence
        self.started: dict[ResponseId, ResponseStarted] = {}
        self.finished: set[ResponseId] = set()
        self.spoken: Counter[ResponseId] = Counter()
        self.transcripts: dict[ResponseId, str] = {}
        self.calls: defaultdict[ResponseId, list[str]] = defaultdict(list)
        self.played: dict[ResponseId, tuple[int, int]] = {}
        self.units: set[str] = set()
        self.out: tuple[Fence, int] | None = None
        self.last_seq = 0
        self.terminals = 0
        self.speech_open = False

    def see(self, effects: list[Effect], fence: Fence) -> None:
        """Check one step: its effects, and the fence after it."""
        for effect in effects:
            self._effect(effect)
        assert fence.epoch == self.fence.epoch, "an epoch moves only with a cancel or a close"
        self.fence = fence

    def _enter(self, fence: Fence) -> None:
        assert fence.epoch == self.fence.epoch + 1, "an epoch rises by one"
        self.out, self.last_seq, self.fence = None, 0, fence

    def answered(self) -> None:
        """The unit that was out has been answered under the current fence."""
        assert self.out is not None
        self.last_seq, self.out = self.out[1], None

    def rolled_back(self) -> None:
        self.out = None

    def _effect(self, effect: Effect) -> None:
        match effect:
            case Emit(event=event):
                assert self.terminals == 0, f"after the terminal there is silence: {event}"
                self._event(event)
            case SubmitUnit():
                assert self.out is None, "one unit at a time"
                assert effect.seq == self.last_seq + 1, "no gap in the numbers of an epoch"
                assert effect.operation_id not in self.units, "an operation id is used once"
                assert self.fence.judge(effect.fence) is FenceVerdict.CURRENT
                self.units.add(effect.operation_id)
                self.out = (effect.fence, effect.seq)
            case CancelStages():
                assert self.fence.judge(effect.cancelled) is FenceVerdict.CURRENT
                self._enter(effect.current)
            case CloseStages():
                if effect.fence != self.fence:  # the release is not asked for again
                    self._enter(effect.fence)
            case Synthesize():
                assert self.fence.judge(effect.fence) is FenceVerdict.CURRENT
            case _:
                pass

    def _event(self, event: Event) -> None:
        match event:
            case SessionCreated():
                assert not self.started
            case SessionClosed() | SessionExpired():
                self.terminals += 1
                assert set(self.started) == self.finished, "law 3: every answer has its end"
                assert not self.speech_open, "speech_started is always paired"
            case UserSpeechStarted():
                assert not self.speech_open
                self.speech_open = True
            case UserSpeechStopped():
                assert self.speech_open
                self.speech_open = False
            case _:
                self._answer_event(event)

    def _answer_event(self, event: Event) -> None:
        match event:
            case ResponseStarted(response_id=response_id):
                assert response_id not in self.started, "law 3: an id is never reused"
                assert len(self.started) == len(self.finished), "one answer at a time"
                self.started[response_id] = event
                self.transcripts[response_id] = ""
            case SpeakDecided(response_id=response_id):
                self._is_open(response_id)
                self.spoken[response_id] += 1
                assert self.spoken[response_id] == 1, "response.speak at most once"
            case SpeechDelta(response_id=response_id):
                self._is_open(response_id)
                assert self.spoken[response_id] == 1, "speak precedes output"
                assert self.fence.judge(event.fence) is FenceVerdict.CURRENT
                self.transcripts[response_id] += event.transcript
            case ResponseFinished(response_id=response_id):
                self._is_open(response_id)
                self.finished.add(response_id)
                assert [each.call_id for each in event.calls] == self.calls[response_id]
                said = self.transcripts[response_id]
                assert said.startswith(event.item.text), "law 5: only what was said"
                if event.status == "completed":
                    assert said == event.item.text, "law 4"
            case ListenDecided(response_id=response_id) if response_id is not None:
                self._is_open(response_id)
            case PlaybackAdvanced(response_id=response_id):
                assert response_id in self.started
                view = event.playback
                assert 0 <= view.committed_ms <= view.played_ms <= view.sent_ms, "law 5"
                before = self.played.get(response_id, (0, 0))
                assert (view.played_ms, view.committed_ms) >= before, "law 5: monotonic"
                self.played[response_id] = (view.played_ms, view.committed_ms)
            case OutputBufferCleared(response_id=response_id):
                assert response_id in self.started
            case _:
                self._item_event(event)

    def _item_event(self, event: Event) -> None:
        match event:
            case AnswerItemOpened(response_id=response_id):
                self._is_open(response_id)
                assert not self.started[response_id].has_message, "one message an answer"
                assert self.spoken[response_id] == 0, "the message precedes output"
            case FunctionCalled(response_id=response_id, item=item):
                self._is_open(response_id)
                assert item.call_id is not None
                self.calls[response_id].append(item.call_id)
            case _:
                pass

    def _is_open(self, response_id: ResponseId) -> None:
        assert response_id in self.started, "law 3: created first"
        assert response_id not in self.finished, "law 3: nothing after the terminal"
