"""Every metric of the service, once. What records, documents, draws or alerts is derived from here.

Ray's exporter puts `ray_` in front of each name; `GET /metrics` of the gateway does not. What
belongs to one model alone is not here: vLLM reports its own (`ray_vllm_*`).
"""

from typing import Final

from serve_app.metrics.label_values import (
    ANSWER_EDGES,
    BATCH_EDGES,
    CHUNK_EDGES,
    CLOSE_CODES,
    DIALECTS,
    DURATION_EDGES,
    END_REASONS,
    ERRORS,
    FACTOR_EDGES,
    FAST_EDGES,
    GAP_EDGES,
    OPEN_REFUSALS,
    OVERLAPS,
    RESPONSE_ENDS,
    RESUME_RESULTS,
    STAGES,
    STOP_EDGES,
    UNIT_EDGES,
    UNIT_PARTS,
)
from serve_app.metrics.metric import OTHER, Merge, Metric, Owner, counter, gauge, histogram

GATEWAY: Final = Owner.GATEWAY
ENGINES: Final = Owner.ENGINES
STAGE1: Final = Owner.STAGE1
EVERY: Final = Owner.EVERY

# --- admission ----------------------------------------------------------------------------------

OPEN_SESSIONS: Final = gauge(
    GATEWAY,
    "duplex_open_sessions",
    "Sessions by where they are: waiting for their stages, with a client, without one that "
    "may come back, or giving their stages back.",
    labels={"state": ("opening", "active", "detached", "closing")},
)
DRAINING: Final = gauge(
    GATEWAY,
    "duplex_draining",
    "1 while the gateway takes no new sessions because it was asked to drain, otherwise 0.",
)
GATEWAY_STARTED: Final = gauge(
    GATEWAY,
    "duplex_gateway_start_time_seconds",
    "When the gateway came up, in Unix time; of several, the newest. A change is a restart.",
    merge=Merge.MAX,
)
SESSIONS_BEGUN: Final = counter(
    GATEWAY,
    "duplex_sessions_begun_total",
    "Sessions that asked for their stages.",
    labels={"dialect": DIALECTS},
)
SESSIONS_REFUSED: Final = counter(
    GATEWAY,
    "duplex_sessions_refused_total",
    "Sessions that got no stages. `admission_refused`: no slot was free. `too_many_sessions`, "
    "`too_many_opens`: its client has what its key may have.",
    labels={"reason": OPEN_REFUSALS},
)
SESSIONS_ENDED: Final = counter(
    GATEWAY,
    "duplex_sessions_ended_total",
    "Sessions that are over, whoever ended them. `not_opened`: it never got its stages.",
    labels={"reason": END_REASONS},
)
SESSION_DURATION: Final = histogram(
    GATEWAY,
    "duplex_session_duration_seconds",
    "How long sessions that were open lasted.",
    buckets=DURATION_EDGES,
)
SESSION_OPEN: Final = histogram(
    GATEWAY,
    "duplex_session_open_seconds",
    "From a session's first event to its stages being open.",
    buckets=UNIT_EDGES,
)
STAGE_LIMIT: Final = gauge(
    ENGINES,
    "duplex_stage_limit_sessions",
    "Slots that are configured (`limits.max_sessions`), of all replicas together.",
    labels={"stage": STAGES},
)
STAGE_SLOTS: Final = gauge(
    ENGINES,
    "duplex_stage_slots",
    "Slots of the stage's engines. One that could not be released yet is taken.",
    labels={"stage": STAGES, "state": ("free", "taken")},
)
LEASES_REFUSED: Final = counter(
    ENGINES,
    "duplex_leases_refused_total",
    "Requests for a slot that an engine refused; another replica may have had one.",
    labels={"stage": STAGES},
)
LEASES_ENDED: Final = counter(
    ENGINES,
    "duplex_leases_ended_total",
    "Leases that ended, by why. `given_back`: without a close, as when a gateway dies; `expired`: "
    "a gateway hung.",
    labels={"stage": STAGES, "reason": ("closed", "given_back", "expired")},
)

# --- the unit loop ------------------------------------------------------------------------------

UNIT_SECONDS: Final = histogram(
    GATEWAY,
    "duplex_unit_seconds",
    "Time of one unit at a stage, as the gateway sees it (`total`), and where it went: "
    "before the model began (`queue`), in the model (`compute`), the rest (`transfer`). At Stage0 "
    "to its answer, at Stage1 to the first chunk of the unit's speech.",
    labels={"stage": STAGES, "part": UNIT_PARTS},
    buckets=UNIT_EDGES,
)
UNITS: Final = counter(
    GATEWAY,
    "duplex_units_total",
    "Units that Stage0 has answered, by what the model decided. `stale`: an interruption "
    "came first. `silence` is fed while an answer goes on and the user sends nothing.",
    labels={"outcome": ("listen", "speak", "failed", "stale"), "fed": ("user", "silence")},
)
DEADLINE_MISSES: Final = counter(
    GATEWAY,
    "duplex_unit_deadline_misses_total",
    "Units that took longer than they last: at Stage0 than one unit or the sound it was "
    "given, at Stage1 than the speech made of it.",
    labels={"stage": STAGES},
)
UNIT_GAP: Final = histogram(
    GATEWAY,
    "duplex_unit_gap_seconds",
    "Between one unit's going to Stage0 and the next one's, in sessions whose model hears "
    "the stream without pause. One unit's length when all is well.",
    buckets=GAP_EDGES,
)
UNIT_LAG: Final = histogram(
    GATEWAY,
    "duplex_unit_lag_seconds",
    "Sound that waits behind a unit which goes to Stage0 in such a session: how far the "
    "model is behind the user.",
    buckets=UNIT_EDGES,
)
GATEWAY_SECONDS: Final = histogram(
    GATEWAY,
    "duplex_gateway_seconds",
    "The gateway's own share: a frame of audio until it is dealt with, until its unit is on "
    "the way to Stage0, a chunk of speech until it is sent, and how late its event loop is.",
    labels={"part": ("frame_to_handled", "frame_to_append", "chunk_to_frame", "loop_delay")},
    buckets=FAST_EDGES,
)

# --- decisions and interruptions ----------------------------------------------------------------

RESPONSES: Final = counter(
    GATEWAY,
    "duplex_responses_total",
    "Answers that have ended. `cancelled` with `other`: their session ended.",
    labels={"status": (), "reason": ()},
    only=RESPONSE_ENDS,
)
BARGE_IN_STOP: Final = histogram(
    GATEWAY,
    "duplex_barge_in_stop_seconds",
    "From the user's first sound in the stream (`speech`), or from the client's event, to "
    "the event that cancels the answer.",
    labels={"by": ("speech", "client")},
    buckets=STOP_EDGES,
)
OVERLAPPED: Final = counter(
    GATEWAY,
    "duplex_overlaps_total",
    "Rulings on sound that came during an answer. `short_ack`, `short_ack_transcript` and "
    "`silence_or_noise` did not mean to interrupt.",
    labels={"action": (), "reason": ()},
    only=OVERLAPS,
)

# --- audio out ----------------------------------------------------------------------------------

FIRST_AUDIO: Final = histogram(
    GATEWAY,
    "duplex_first_audio_seconds",
    "To the first sound of an answer: from the end of the user's speech in the stream, as "
    "the voice detection found it, or from the client's commit or request.",
    labels={"since": ("speech_end", "commit")},
    buckets=ANSWER_EDGES,
)
SPEECH_FACTOR: Final = histogram(
    GATEWAY,
    "duplex_speech_real_time_factor",
    "Time that Stage1 took for a unit's speech, by the time it lasts: above 1 playback runs dry.",
    buckets=FACTOR_EDGES,
)
SPOKEN: Final = counter(
    GATEWAY,
    "duplex_spoken_responses_total",
    "Answers with sound that have ended. `underrun`: a client that plays at once had to wait.",
    labels={"playback": ("smooth", "underrun")},
)
UNDERRUN: Final = counter(
    GATEWAY,
    "duplex_underrun_seconds_total",
    "How long such clients had to wait within answers.",
)
ACK_LAG: Final = histogram(
    GATEWAY,
    "duplex_playback_ack_lag_seconds",
    "How far an acknowledged position is behind what a client that plays at once has played.",
    buckets=ANSWER_EDGES,
)
BUFFERED: Final = gauge(
    GATEWAY,
    "duplex_output_buffered_bytes",
    "Output that waits for clients to read it. Serve's own proxy takes it at once, whether they "
    "read or not.",
)

# --- sockets ------------------------------------------------------------------------------------

OPEN_SOCKETS: Final = gauge(
    GATEWAY,
    "duplex_open_sockets",
    "WebSockets that are open.",
)
SOCKETS_OPENED: Final = counter(
    GATEWAY,
    "duplex_sockets_opened_total",
    "WebSockets that were accepted. `other`: the URL named no dialect that there is.",
    labels={"dialect": (*DIALECTS, OTHER)},
)
SOCKETS_CLOSED: Final = counter(
    GATEWAY,
    "duplex_sockets_closed_total",
    "WebSockets that are closed, by who closed them and the code. The peer's 1005 has no "
    "code, its 1006 is a connection that broke; Serve's own proxy says 1005 of both.",
    labels={"by": ("server", "client"), "code": CLOSE_CODES},
)
DETACHED: Final = counter(
    GATEWAY,
    "duplex_sessions_detached_total",
    "Sessions whose socket broke, or was let go for its silence, and that may be resumed.",
    labels={"reason": ("lost", "idle")},
)
RESUMES: Final = counter(
    GATEWAY,
    "duplex_resumes_total",
    "Attempts to go on with a session over another socket.",
    labels={"result": RESUME_RESULTS},
)
TAKEOVERS: Final = counter(
    GATEWAY,
    "duplex_takeovers_total",
    "Sockets that lost their session to another socket.",
)
SLOW_READERS: Final = counter(
    GATEWAY,
    "duplex_slow_readers_total",
    "Sessions that ended because their client did not read. Serve's own proxy takes all that it "
    "is sent, so behind it there are none.",
)
FLOODS: Final = counter(
    GATEWAY,
    "duplex_floods_total",
    "Sockets that were closed because they sent on and on although they were refused.",
)
DOOR_REFUSALS: Final = counter(
    GATEWAY,
    "duplex_door_refusals_total",
    "Requests that were turned away before anything was opened for them. `429`: client secrets.",
    labels={"of": ("socket", "http"), "status": ("401", "403", "429", "503", OTHER)},
)
KEY_FILE_FAULTS: Final = counter(
    GATEWAY,
    "duplex_key_file_faults_total",
    "Times that a request found a file of keys, API or admin, that could not be read or has a "
    "wrong line; once for each change. Its keys then stay as they were.",
    labels={"fault": ("unreadable", "wrong")},
)
ERRORS_SENT: Final = counter(
    GATEWAY,
    "duplex_errors_sent_total",
    "`error` events that clients were sent, by the classes of docs/errors.md.",
    labels={"type": (), "error": ()},
    only=ERRORS,
)

# --- engines ------------------------------------------------------------------------------------

ENGINE_UP: Final = gauge(
    ENGINES,
    "duplex_engine_up_replicas",
    "Engines that are warm and ready.",
    labels={"stage": STAGES},
)
ENGINE_STARTED: Final = gauge(
    ENGINES,
    "duplex_engine_start_time_seconds",
    "When the engine was ready, in Unix time; of several, the newest. A change is a restart.",
    labels={"stage": STAGES},
    merge=Merge.MAX,
)
KV_TOKENS: Final = gauge(
    ENGINES,
    "duplex_engine_kv_tokens",
    "Positions of an engine's memory: what open sessions hold, what is set aside for them, and "
    "all there is. Zero where the model has no such memory.",
    labels={"stage": STAGES, "state": ("used", "reserved", "capacity")},
)

# --- Stage1's own -------------------------------------------------------------------------------

STAGE1_AUDIO: Final = counter(
    STAGE1,
    "duplex_stage1_audio_seconds_total",
    "Sound that Stage1 has made.",
)
STAGE1_CHUNK: Final = histogram(
    STAGE1,
    "duplex_stage1_chunk_seconds",
    "Time that one chunk took: in the talker, the flow, the vocoder, and how long it waited "
    "for a place in the talker's engine or in a batch. MiniCPM-o alone says so. Each chunk of a "
    "batch counts the whole batch's time.",
    labels={"part": ("talker", "flow", "vocoder", "waited")},
    buckets=CHUNK_EDGES,
)
STAGE1_FACTOR: Final = histogram(
    STAGE1,
    "duplex_stage1_real_time_factor",
    "Time that a chunk took, by the time it lasts. MiniCPM-o alone says so.",
    buckets=FACTOR_EDGES,
)
STAGE1_BATCH: Final = histogram(
    STAGE1,
    "duplex_stage1_batch_sessions",
    "Sessions whose sound was made together. MiniCPM-o alone says so.",
    buckets=BATCH_EDGES,
)

# --- fairness and cost --------------------------------------------------------------------------

LAG_RATIO: Final = gauge(
    GATEWAY,
    "duplex_fairness_lag_ratio",
    "The slowest session's mean unit time by the mean of all sessions, over the last minute.",
    merge=Merge.MAX,
    starts_at=1.0,
)
JAIN: Final = gauge(
    GATEWAY,
    "duplex_fairness_jain_index",
    "Jain's index of the sessions' mean unit times over the last minute: 1 when all wait "
    "alike, 1/n when one of n does all the waiting.",
    merge=Merge.MIN,
    starts_at=1.0,
)
SESSION_SECONDS: Final = counter(
    GATEWAY,
    "duplex_session_seconds_total",
    "Time that sessions have held their stages, added up over all of them.",
)
AUDIO_SECONDS: Final = counter(
    GATEWAY,
    "duplex_audio_seconds_total",
    "Sound that sessions have taken in and given out.",
    labels={"direction": ("in", "out")},
)

# --- traces -------------------------------------------------------------------------------------

SPANS_DROPPED: Final = counter(
    EVERY,
    "duplex_trace_spans_dropped_total",
    "Spans that were dropped: there was no room for more, or the endpoint for traces did not "
    "take them.",
    labels={"reason": ("no_room", "not_sent")},
)

METRICS: Final = tuple(value for value in globals().copy().values() if isinstance(value, Metric))
"""All of them, in the order of this file."""
