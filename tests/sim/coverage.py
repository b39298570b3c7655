"""What must have happened in a run that claims to have tried everything."""

from typing import Final

INTERESTING: Final = frozenset(
    {
        # sockets
        *("open", "broken", "broken quietly", "broken in a burst", "stalled", "slow reader"),
        *("resume", "takeover", "takeover of an unread resume", "ghost"),
        *("SessionExpiring", "let go for its silence"),
        *("resume refused: bad token", "resume refused: conflict"),
        *("resume refused: journal_gap", "resume refused: journal_overflow"),
        # the stages
        *("stage: lose", "stage: release_fail", "stage: unit_fail", "stage: voice_fail"),
        *("stage: configure_fail", "stage: again", "error: stage_timeout"),
        *("error: stage_refused", "error: stage_unavailable", "error: resource_exhausted"),
        *("stale UnitFinished", "stale UnitFailed", "stale StagesConfigured", "stale Received"),
        *("stale ConfigureFailed", "stale SpeechArrived", "stale SpeechFinished"),
        # the conversation
        *("answer completed", "answer cancelled", "answer failed", "epoch moved"),
        *("continuation", "overlap deferred", "tool call", "PlaybackAdvanced", "ItemCut"),
        *("bare answer", "answer apart", "told", "spoken item"),
        *("answered early", "early answer taken back"),
        *("InputTimedOut", "error: input_backpressure"),
        # the ends
        *(
            "end: client_close",
            "end: server_drain",
            "end: server_drain_deadline",
            "end: stage0_lost",
            "end: stage1_lost",
        ),
        *("end: idle_ttl_expired", "end: disconnect_grace_expired", "end: slow_reader"),
        *("end: max_session_duration", "end: disconnect"),
    }
)
