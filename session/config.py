"""Configuration values: the server's limits, the session's public settings, the stages' settings.

Public settings come from the client and are echoed to it. `RuntimeConfig` is derived on the
server from them and from the model's descriptor; a client never writes it.
"""

import enum
from dataclasses import dataclass, field, replace

from session.model_profile import ModelProfile


class AudioEncoding(enum.Enum):
    """Wire encodings of mono audio."""

    PCM16 = "pcm16"
    PCM_F32LE = "pcm_f32le"
    G711_ULAW = "g711_ulaw"
    G711_ALAW = "g711_alaw"
    WAV = "wav"


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """An encoding and its sample rate. For WAV the rate is that of its own header."""

    encoding: AudioEncoding
    rate_hz: int


class OverlapPolicy(enum.Enum):
    """What user speech does while the assistant speaks."""

    LISTEN_ONLY = "listen_only"
    BARGE_IN_ON_SPEECH = "barge_in_on_speech"


class PlaybackCommitPolicy(enum.Enum):
    """When spoken text counts as heard."""

    ACK_ONLY = "ack_only"
    COMMIT_ALL_ON_DONE = "commit_all_on_done"


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Server voice activity detection (`type: server_vad`)."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    min_speech_duration_ms: int = 96
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Server-owned bounds; from the deploy file, never from a client. Defaults are the seed's."""

    idle_ttl_s: float | None = 300.0
    """A session in which nothing happens ends after this; null: never for that reason."""
    disconnect_grace_s: float = 30.0
    """A session without a client keeps its stages for this long."""
    reaper_interval_s: float = 5.0
    """How often leases are looked at, and a failed release is tried again."""
    lease_ttl_s: float = 15.0
    """A stage frees a session whose gateway has not renewed its lease for this long."""
    resume_replay_ttl_s: float = 60.0
    """Events are kept for a client that comes back for this long."""
    resume_replay_max_bytes_per_session: int = 8_388_608
    """Events kept for a client that comes back."""
    max_pending_input_bytes_per_session: int = 16_777_216
    """Input that waits for the model; more is refused."""
    max_pending_turns_per_session: int = 4
    """Committed items that wait for the model; more are refused."""
    max_sessions: int = 1
    """Sessions that one stage replica serves at once."""
    completed_append_cache_size: int = 256
    """Answers a stage remembers, so that a repeated call runs nothing."""
    max_session_s: float | None = 3600.0
    """A session ends after this, whatever happens in it; null: no such end."""
    max_output_bytes_per_session: int = 2_097_152
    """Output that waits for a slow reader; beyond it the session closes."""
    max_event_bytes: int = 15_728_640
    """One client event, as UTF-8 text; a longer one is refused."""
    config_timeout_s: float = 10.0
    """A new connection must have configured its session within this."""
    stage_timeout_s: float = 30.0
    """A stage that has not answered a call within this has failed it."""
    heartbeat_s: float = 20.0
    """How often an idle connection is probed."""
    max_continuations: int = 64
    """Units of silence fed on while an answer lasts and the user says nothing."""
    max_continuations_turn_mode: int = 8
    """The same, where each answer is asked for by the client."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The session's public settings, complete and validated."""

    model: str
    output_modalities: tuple[str, ...] = ("text", "audio")
    instructions: str | None = None
    voice: str | None = None
    input_format: AudioFormat = AudioFormat(AudioEncoding.PCM16, 16_000)
    output_format: AudioFormat = AudioFormat(AudioEncoding.PCM16, 24_000)
    temperature: float | None = None
    max_output_tokens: int | None = None
    speed: float | None = None
    turn_detection: TurnDetection | None = None
    overlap_policy: OverlapPolicy = OverlapPolicy.LISTEN_ONLY
    overlap_short_ack_ms: int = 700
    overlap_barge_in_ms: int = 1200
    overlap_silence_rms: float = 0.003
    playback_commit_policy: PlaybackCommitPolicy = PlaybackCommitPolicy.ACK_ONLY
    auto_response: bool = False
    force_listen_count: int = 0
    idle_timeout_s: float = 300.0
    echoed: tuple[tuple[str, str], ...] = ()
    """Fields we accept and do not use: name and its JSON text, echoed as they came."""


@dataclass(frozen=True, slots=True)
class ConfigPatch:
    """A partial update in domain terms: exactly the fields the client named.

    `changes` maps names of `SessionConfig` fields to already validated values of their types.
    """

    changes: tuple[tuple[str, object], ...] = ()

    def apply_to(self, config: SessionConfig) -> SessionConfig:
        """Return `config` with exactly the named fields replaced."""
        return replace(config, **dict(self.changes))  # type: ignore[arg-type]  # checked by decode


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What the stages are told about a session."""

    instructions: str = ""
    voice: str = ""
    temperature: float | None = None
    max_output_tokens: int | None = None
    speed: float = 1.0
    force_listen_count: int = 0
    auto_response: bool = True


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Immutable options of one `response.create`; they never touch the session's settings."""

    output_modalities: tuple[str, ...] | None = None
    output_format: AudioFormat | None = None
    instructions: str | None = None
    voice: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    speed: float | None = None
    is_out_of_band: bool = False
    """`conversation: "none"`: the answer is not kept in the history."""
    metadata: tuple[tuple[str, str], ...] = field(default=())


def default_config(model_id: str, profile: ModelProfile) -> SessionConfig:
    """Settings of a session whose client said nothing."""
    detection = TurnDetection() if profile.default_server_vad else None
    policy = OverlapPolicy.BARGE_IN_ON_SPEECH if detection else OverlapPolicy.LISTEN_ONLY
    return SessionConfig(
        model=model_id,
        turn_detection=detection,
        overlap_policy=policy,
        auto_response=profile.default_server_vad,
    )
