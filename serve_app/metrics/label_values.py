"""The closed sets that labels of metrics have, and the edges of histograms' buckets."""

import re
from typing import Final

from serve_app.dialects import Dialect
from serve_app.metrics.metric import OTHER
from session.errors import DuplexError

STAGES: Final = ("stage0", "stage1")
DIALECTS: Final = tuple(dialect.value for dialect in Dialect)
UNIT_PARTS: Final = ("queue", "compute", "transfer", "total")
CLOSE_CODES: Final = (
    *("1000", "1001", "1005", "1006", "1007", "1008", "1009", "1011", "1012", "1013"),
    OTHER,
)
END_REASONS: Final = (
    *("client_close", "disconnect", "disconnect_grace_expired", "idle_timeout"),
    *("idle_ttl_expired", "max_session_duration", "slow_reader"),
    *("input_backpressure", "too_many_refusals"),
    *("stage0_lost", "stage1_lost", "server_shutdown", "server_drain", "server_drain_deadline"),
    *("not_opened", "broken", OTHER),
)
OVER_QUOTA: Final = ("too_many_sessions", "too_many_opens")
OPEN_REFUSALS: Final = (
    *("admission_refused", "stage_timeout", "stage_unavailable", "stage_refused", "stage_failed"),
    *("stage_contract_broken", *OVER_QUOTA, "client_error", OTHER),
)
RESPONSE_ENDS: Final = (
    ("completed", "stop"),
    ("completed", "model_listen"),
    ("completed", "continuation_limit"),
    ("completed", OTHER),
    ("cancelled", "turn_detected"),
    ("cancelled", "barge_in"),
    ("cancelled", "client_cancelled"),
    ("cancelled", "input_cancelled"),
    ("cancelled", "output_audio_buffer_clear"),
    ("cancelled", OTHER),
    ("failed", "runtime_append_failed"),
    ("failed", "speech_failed"),
    ("failed", "stage_lost"),
    ("failed", "slow_reader"),
    ("failed", OTHER),
    ("incomplete", "max_output_tokens"),
    ("incomplete", OTHER),
)
OVERLAPS: Final = (
    ("barge_in", "server_vad_speech_started"),
    ("barge_in", "barge_in_on_speech"),
    ("barge_in", "long_overlap_speech"),
    ("barge_in", "client_force_barge_in"),
    ("barge_in", "client_overlap_action"),
    ("listen", "server_vad_utterance_active"),
    ("listen", "short_ack_transcript"),
    ("listen", "short_ack"),
    ("listen", "accumulating_overlap_speech"),
    ("listen", "policy_listen_only"),
    ("listen", "vision_follow"),
    ("listen", "client_force_listen"),
    ("listen", "client_overlap_action"),
    ("drop", "silence_or_noise"),
    ("drop", "client_overlap_action"),
    ("barge_in", OTHER),
    ("listen", OTHER),
    ("drop", OTHER),
)
"""`short_ack…` and `silence_or_noise` are the overlaps that did not mean to interrupt."""
RESUME_RESULTS: Final = ("resumed", "refused", "conflict", "unsupported", "resync_required")


def error_name(kind: type[DuplexError]) -> str:
    """Return the label value of an error: its class in snake case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _errors(kind: type[DuplexError]) -> tuple[tuple[str, str], ...]:
    """Return type and name of every error below `kind`, in the order of the tree."""
    found: list[tuple[str, str]] = []
    for child in kind.__subclasses__():
        if child.__module__ == DuplexError.__module__:
            found += [(child.wire_type, error_name(child)), *_errors(child)]
    return tuple(found)


ERRORS: Final = _errors(DuplexError)

# --- edges of buckets ---------------------------------------------------------------------------

UNIT_EDGES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
FAST_EDGES: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
ANSWER_EDGES: Final = (0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
STOP_EDGES: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 5.0)
GAP_EDGES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
CHUNK_EDGES: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0)
FACTOR_EDGES: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
DURATION_EDGES: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)
BATCH_EDGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
