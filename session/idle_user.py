"""When nobody speaks after an answer: the silence becomes an item, and the model is asked again.

Rule 1: the wait (`turn_detection.idle_timeout_ms`) begins when the last answer is over and its
        audio has been played, and anew with speech, with an answer, with new settings, and with
        a client that comes back. While nobody is attached, nobody is asked.
Rule 2: at most once an answer that says something. A model that listens to the silence is not
        asked again and again.
Rule 3: input that waits or is at work, and speech that goes on, are not silence.
"""

from session.config import ResponseOptions
from session.effects import Effect, Emit
from session.events import InputTimedOut
from session.ids import ItemId, ResponseId
from session.lifecycle import Life
from session.on_commit import commit_open, show_requested
from session.pump import pump
from session.state import SessionState
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES, samples_to_ms


def watch_user(state: SessionState, now: float) -> None:
    """Notice what begins the wait anew."""
    watch = state.idle
    answer = state.response.last_id if state.response.active is None else None
    if answer is not None and answer != watch.answer and _says_something(state, answer):
        watch.has_asked = False
    generation = state.attachment.generation
    is_same = answer == watch.answer and generation == watch.generation
    if not is_same or state.config is not watch.config:
        watch.answer, watch.config, watch.generation = answer, state.config, generation
        begin_wait(state, now)


def note_place(state: SessionState, now: float, *, began_byte: int) -> None:
    """Audio has come in, from `began_byte` on: find where in it the answer had been played.

    What comes in now was recorded until now.
    """
    late_s = now - _begins_at(state)
    if state.idle.start_byte is None and late_s >= 0:
        late_bytes = int(late_s * INPUT_RATE_HZ) * SAMPLE_BYTES
        state.idle.start_byte = max(began_byte, state.input.total_bytes - late_bytes)


def begin_wait(state: SessionState, now: float) -> None:
    """Somebody has just done something."""
    state.idle.since_s = now
    state.idle.start_byte = None


def idle_deadline(state: SessionState) -> float | None:
    """When the silence is long enough; None when there is none, or nothing waits for its end."""
    detection, watch = state.config.turn_detection, state.idle
    if detection is None or detection.idle_timeout_ms is None or state.life is not Life.OPEN:
        return None
    if watch.answer is None or watch.has_asked or state.detector is None:
        return None
    if state.detector.is_speaking or state.turns_expected or state.updates:
        return None
    if state.attachment.detached_at_s is not None or state.drain is not None:
        return None
    if state.input.turns > 0 or state.input.open_item.texts:
        return None
    return _begins_at(state) + detection.idle_timeout_ms / 1000


def answer_silence(state: SessionState, now: float) -> list[Effect]:
    """Make the silence an item and ask for an answer, if its time has come."""
    due = idle_deadline(state)
    if due is None or now < due:
        return []
    watch, end_byte = state.idle, state.input.total_bytes
    start_byte = end_byte if watch.start_byte is None else watch.start_byte
    watch.has_asked = True
    item_id = ItemId(state.ids.new("item"))
    start_ms, end_ms = _ms(start_byte), _ms(end_byte)
    effects: list[Effect] = [Emit(InputTimedOut(start_ms, end_ms, item_id))]
    effects += commit_open(state, item_id, is_wanted=True, audio_ms=end_ms - start_ms)
    if not state.config.auto_response:
        effects += show_requested(state, ResponseOptions())
    return effects + pump(state, now)


def _says_something(state: SessionState, answer: ResponseId) -> bool:
    item = state.history.of_response(answer)
    return item is not None and bool(item.full_text)


def _begins_at(state: SessionState) -> float:
    return max(state.idle.since_s, state.playback.heard_at(state.idle.answer))


def _ms(n_bytes: int) -> int:
    return samples_to_ms(n_bytes // SAMPLE_BYTES, INPUT_RATE_HZ)
