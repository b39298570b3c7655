"""Clients that never say how much they have played: what the clock says counts as heard."""

from session.config import PlaybackCommitPolicy
from session.idle_user import begin_wait
from session.ids import ResponseId
from session.lifecycle import TurnTrigger, move_turn
from session.state import SessionState


def note_played(state: SessionState, now: float) -> None:
    """Move what was heard up to `now`, in a session that goes by the clock.

    An answer that is over may still be played, also while the next one is made.
    """
    if state.config.playback_commit_policy is not PlaybackCommitPolicy.REAL_TIME:
        return
    for response_id in state.playback.pending:
        if state.playback.play_until(response_id, now=now):
            _remember(state, response_id)


def _remember(state: SessionState, response_id: ResponseId) -> None:
    """Let the history hold what was heard; that of the answer in the making follows at its end."""
    if state.response.active is not None and state.response.active.response_id == response_id:
        return
    cursor = state.playback.cursor(response_id)
    item = state.history.of_response(response_id)
    if item is not None:
        state.history.change(item.item_id, text=cursor.heard_of(item.full_text))
    is_last = response_id == state.response.last_id and state.response.active is None
    if is_last and not cursor.is_pending:
        # From here on the user is silent; the clock has been looked at a little later.
        begin_wait(state, max(state.idle.since_s, cursor.plays_until_s))
        state.turn = move_turn(state.turn, TurnTrigger.ANSWER_HEARD)
