"""The life of one answer: reserved, shown, spoken, ended."""

from collections import deque
from dataclasses import replace
from typing import Final, assert_never

from session.config import PlaybackCommitPolicy, ResponseOptions
from session.effects import CancelStages, Effect, Emit, Synthesize
from session.errors import DuplexError
from session.events import (
    SAID,
    AnswerItemOpened,
    ErrorRaised,
    FunctionCalled,
    OutputBufferCleared,
    ResponseFinished,
    ResponseStarted,
    SpeakDecided,
    SpeechDelta,
)
from session.ids import ItemId, ResponseId
from session.item_events import (
    ItemView,
)
from session.ledger.history import Item, message_id
from session.ledger.response import CallJob, Response, SpeechJob, TextJob
from session.lifecycle import TurnTrigger, move_turn
from session.state import SessionState
from session.tools import FunctionCall
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, SpeechChunk, samples_to_ms

COMPLETED: Final = ("completed", "stop")
CUT: Final = ("incomplete", "max_output_tokens")
"""How an answer ends by itself: status and reason."""


def reserve_answer(state: SessionState, options: ResponseOptions) -> Response:
    """Make an answer that the client does not see yet."""
    response_id = ResponseId(state.ids.new("resp"))
    config = state.config
    return state.response.reserve(
        Response(
            response_id=response_id,
            item_id=message_id(response_id),
            previous_item_id=None if options.is_out_of_band else state.history.last_id,
            fence=state.fence,
            options=options,
            output_modalities=options.output_modalities or config.output_modalities,
            output_format=options.output_format or config.output_format,
        )
    )


def show_answer(state: SessionState) -> list[Effect]:
    """Let the client see the active answer.

    Its message takes its place in the history now; where the model may call a tool instead, it
    does so with the first word.
    """
    response = state.response.show()
    state.playback.open(response.response_id)
    state.overlap.speech_ms = 0
    state.turn = move_turn(state.turn, TurnTrigger.ANSWER_STARTED)
    if not _may_call(state, response):
        _take_place(state, response)
    return [
        Emit(
            ResponseStarted(
                fence=response.fence,
                response_id=response.response_id,
                item_id=response.item_id,
                previous_item_id=response.previous_item_id,
                output_modalities=response.output_modalities,
                output_format=response.output_format,
                metadata=response.options.metadata,
                is_out_of_band=response.options.is_out_of_band,
                has_message=response.message_index is not None,
            )
        )
    ]


def _may_call(state: SessionState, response: Response) -> bool:
    return bool(response.options.settings.apply_to(state.runtime(state.config)).tools)


def _take_place(state: SessionState, response: Response) -> None:
    response.message_index = len(response.calls)
    if response.options.is_out_of_band:
        return
    response.previous_item_id = state.history.last_id
    state.playback.cursor(response.response_id).has_place = True
    state.history.add(
        Item(
            response.item_id,
            "assistant",
            text="",
            is_audio=response.wants_audio,
            is_done=False,
            response_id=response.response_id,
        )
    )


def _open_message(state: SessionState, response: Response) -> Effect:
    """Give an answer that has begun without one its message."""
    index = len(response.calls)
    _take_place(state, response)
    return Emit(
        AnswerItemOpened(
            response_id=response.response_id,
            item_id=response.item_id,
            previous_item_id=response.previous_item_id,
            output_index=index,
            is_text_only=not response.wants_audio,
            is_out_of_band=response.options.is_out_of_band,
        )
    )


def show_speaking(state: SessionState, response: Response) -> list[Effect]:
    """Make sure that response.created and response.speak have gone out before output does."""
    effects = [] if response.is_visible else show_answer(state)
    if response.message_index is None:
        effects.append(_open_message(state, response))
    if not response.is_speak_decided:
        response.is_speak_decided = True
        effects.append(Emit(SpeakDecided(state.fence, response.response_id, response.item_id)))
    return effects


def show_chunk(
    state: SessionState, response: Response, chunk: SpeechChunk, now: float
) -> list[Effect]:
    """Send a piece of the answer: sound with the words it adds, or either alone."""
    effects = show_speaking(state, response)
    response.transcript += chunk.transcript
    cursor = state.playback.send(
        response.response_id, samples=chunk.samples, text_chars=len(chunk.transcript), now=now
    )
    delta = SpeechDelta(
        fence=state.fence,
        response_id=response.response_id,
        item_id=response.item_id,
        pcm=chunk.pcm,
        transcript=chunk.transcript,
        audio_ms=cursor.sent_ms,
        marks=tuple(cursor.marks[-1:]),
        playback=cursor.view(),
        output_format=response.output_format,
        is_turn_end=chunk.turn_end,
        is_text_only=not response.wants_audio,
        metrics=tuple(response.metrics),
    )
    return [*effects, Emit(delta)]


def speak_next(state: SessionState, response: Response, now: float) -> list[Effect]:
    """Go on with the answer: the next unit to Stage1, or its end when all has been said."""
    effects: list[Effect] = []
    while response.speaking is None and response.jobs:
        match response.jobs.popleft():
            case SpeechJob() as job:
                response.speaking = job
                effects.append(Synthesize(state.fence, job.seq))
            case TextJob(text=text, is_turn_end=is_turn_end):
                chunk = SpeechChunk(b"", text, turn_end=is_turn_end)
                effects += show_chunk(state, response, chunk, now)
            case CallJob(call=call):
                effects += _show_call(state, response, call)
            case _ as never:
                assert_never(never)
    if response.is_idle and response.is_turn_ended:
        status, reason = CUT if response.is_cut else COMPLETED
        effects += end_answer(state, status, reason)
    return effects


def _show_call(state: SessionState, response: Response, call: FunctionCall) -> list[Effect]:
    """Tell the client of a function call; from now on its output is awaited."""
    effects = [] if response.is_visible else show_answer(state)
    item_id = ItemId(state.ids.new("item"))
    item = ItemView(
        item_id=item_id,
        role="assistant",
        status="completed",
        text=call.arguments,
        is_audio=False,
        call_id=call.call_id,
        call_name=call.name,
    )
    has_message = response.message_index is not None
    called = FunctionCalled(
        response_id=response.response_id,
        item=item,
        previous_item_id=None if response.options.is_out_of_band else state.history.last_id,
        output_index=len(response.calls) + int(has_message),
        is_out_of_band=response.options.is_out_of_band,
    )
    response.calls.append(item)
    state.calls.make(call.call_id)
    if not response.options.is_out_of_band:
        state.history.add(
            Item(item_id, "assistant", call.arguments, call_id=call.call_id, call_name=call.name)
        )
    return [*effects, Emit(called)]


def end_answer(state: SessionState, status: str, reason: str) -> list[Effect]:
    """Take the active answer out; a visible one gets its one terminal."""
    response = state.response.finish()
    state.input.queue.drop_request()
    if not response.is_visible:
        return []
    state.turn = move_turn(state.turn, TurnTrigger.ANSWER_ENDED)
    _settle_history(state, response, status)
    response_id = response.response_id
    if status not in SAID:
        state.playback.flush(response_id)
    playback = state.playback.view(response_id)
    if status in SAID and playback.committed_ms >= playback.sent_ms:
        state.turn = move_turn(state.turn, TurnTrigger.ANSWER_HEARD)
    item = state.history.get(response.item_id)
    taken_bytes = state.input.accepted_bytes - state.answered_bytes
    state.answered_bytes = state.input.accepted_bytes
    return [
        Emit(
            ResponseFinished(
                fence=response.fence,
                current=state.fence,
                response_id=response_id,
                item=finished_view(state, response, status),
                previous_item_id=response.previous_item_id,
                status=status,
                reason=reason,
                playback=playback,
                is_committed=item is not None and bool(item.text),
                output_modalities=response.output_modalities,
                metadata=response.options.metadata,
                is_out_of_band=response.options.is_out_of_band,
                metrics=tuple(response.metrics),
                message_index=response.message_index,
                calls=tuple(response.calls),
                input_audio_ms=samples_to_ms(taken_bytes // SAMPLE_BYTES, INPUT_RATE_HZ),
            )
        )
    ]


def finished_view(state: SessionState, response: Response, status: str) -> ItemView:
    """Return the answer's item as its terminal shows it: all that was said, or what was heard."""
    heard = heard_text(state, response)
    return ItemView(
        item_id=response.item_id,
        role="assistant",
        status="completed" if status == "completed" else "incomplete",
        text=response.transcript if status in SAID else heard,
        is_audio=response.wants_audio,
        audio_ms=state.playback.view(response.response_id).sent_ms,
        marks=state.playback.marks(response.response_id),
    )


def heard_text(state: SessionState, response: Response) -> str:
    """Return the part of the answer that the user has heard, in whole words."""
    if not response.is_visible:
        return ""
    if not response.wants_audio:
        return response.transcript
    return state.playback.cursor(response.response_id).heard_of(response.transcript)


def interrupt(state: SessionState, reason: str) -> list[Effect]:
    """End what the assistant is doing, for good: a new epoch, and both stages told.

    seed: Irreversible cancellation fence. Input that was on its way comes back; the user's
    interrupting words are the next epoch's first input.
    """
    response = state.response.active
    last_id = state.response.last_id
    cancel = leave_epoch(state)
    effects: list[Effect] = []
    if response is not None:
        effects += end_answer(state, "cancelled", reason)
    elif last_id is not None:
        state.playback.flush(last_id)
        effects.append(Emit(OutputBufferCleared(last_id)))
    state.overlap.speech_ms = 0
    state.turn = move_turn(state.turn, TurnTrigger.INTERRUPTED)
    return [*effects, cancel]


def leave_epoch(state: SessionState) -> CancelStages:
    """Enter the next epoch; return what tells the stages, and how much of the old was heard."""
    cancelled, consumed_seq = state.fence, state.append.committed_seq
    response = state.response.active
    heard = heard_text(state, response) if response is not None else heard_of_last(state)
    enter_next_epoch(state)
    return CancelStages(cancelled, state.fence, heard, consumed_seq)


def enter_next_epoch(state: SessionState) -> None:
    """Move the fence on; nothing that was out under the old one can come back.

    A unit that was out counts as not consumed, so its input returns. A question to the stages
    about new settings is asked again, since its answer would be stale.
    """
    state.fence = state.fence.next_epoch()
    state.append.enter_epoch()
    state.input.roll_back(keeps_wanted=state.config.auto_response)
    state.turns_expected = False
    state.utterances = deque(replace(u, last_seq=None) for u in state.utterances)
    if state.updates:
        state.updates[0] = replace(state.updates[0], generation=None)


def heard_of_last(state: SessionState) -> str:
    """Return what was heard of the last finished answer."""
    last_id = state.response.last_id
    item = state.history.of_response(last_id) if last_id is not None else None
    return item.text if item is not None else ""


def fail_answer(state: SessionState, error: DuplexError, reason: str) -> list[Effect]:
    """A stage failed under the answer: say so, end it, and start a new epoch on both stages."""
    response = state.response.active
    cancel = leave_epoch(state)
    effects: list[Effect] = [Emit(ErrorRaised(error))]
    if response is not None:
        effects += end_answer(state, "failed", reason)
    return [*effects, cancel]


def _settle_history(state: SessionState, response: Response, status: str) -> None:
    commits_all = state.config.playback_commit_policy is PlaybackCommitPolicy.COMMIT_ALL_ON_DONE
    if status in SAID and commits_all:
        state.playback.commit_all(response.response_id)
    item = state.history.of_response(response.response_id)
    if item is None:
        return
    state.history.change(
        item.item_id,
        text=heard_text(state, response),
        full_text=response.transcript,
        is_done=True,
        is_truncated=item.is_truncated or status not in SAID,
        is_cut=response.is_cut,
        audio_ms=state.playback.view(response.response_id).sent_ms,
    )
