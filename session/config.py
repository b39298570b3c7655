"""Configuration values: the server's limits, the session's public settings, the stages' settings.

Public settings come from the client and are echoed to it. `RuntimeConfig` is derived on the
server from them and from the model's descriptor; a client never writes it.
"""

import enum
from dataclasses import dataclass, field, fields, replace
from typing import Final

from session.context import ContextMessage, ItemReference
from session.echoed import EchoedPatch
from session.model_profile import ModelProfile
from session.tools import FREE_CHOICE, NO_TOOLS, Tool, ToolChoice, ToolFault, ToolList

MAX_INSTRUCTIONS_CHARS: Final = 65_536
"""Bound of the instructions, whatever has been added to them."""


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


@dataclass(frozen=True, slots=True)
class AudioFormatPatch:
    """A partial audio format: None keeps what the session has."""

    encoding: AudioEncoding | None
    rate_hz: int | None
    natural_rate_hz: int
    """Rate of a newly named encoding when no rate comes with it."""

    def resolve(self, current: AudioFormat) -> AudioFormat:
        """Return the format that `current` becomes."""
        encoding = self.encoding or current.encoding
        kept_hz = current.rate_hz if encoding is current.encoding else self.natural_rate_hz
        return AudioFormat(encoding, kept_hz if self.rate_hz is None else self.rate_hz)


class OverlapPolicy(enum.Enum):
    """What user speech does while the assistant speaks."""

    LISTEN_ONLY = "listen_only"
    BARGE_IN_ON_SPEECH = "barge_in_on_speech"


class PlaybackCommitPolicy(enum.Enum):
    """When spoken text counts as heard."""

    ACK_ONLY = "ack_only"
    COMMIT_ALL_ON_DONE = "commit_all_on_done"
    REAL_TIME = "real_time"
    """For clients that never acknowledge: what was sent counts as heard once it will have been
    played, by a client that plays it as it comes."""


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Server voice activity detection (`type: server_vad`)."""

    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 500
    min_speech_duration_ms: int = 96
    create_response: bool = True
    interrupt_response: bool = True
    interrupt_confidence: float = 0.95
    """During an answer that speech interrupts, it begins only where the detector is at least so
    sure of one window: coughs, slams and tunes are like speech, but never that much."""
    idle_timeout_ms: int | None = None
    eagerness: str | None = None
    """Set for semantic_vad, in the client's word; the silence is what that word stands for."""


@dataclass(frozen=True, slots=True)
class TurnDetectionPatch:
    """A partial `turn_detection` object: switches detection on and changes only what it names.

    `changes` maps names of `TurnDetection` fields to already validated values of their types.
    """

    changes: tuple[tuple[str, object], ...] = ()
    of_kind: tuple[tuple[str, object], ...] = ()
    """What a kind that is named, semantic_vad or server_vad, begins with where it was the other."""

    def resolve(self, current: TurnDetection | None) -> TurnDetection:
        """Return the settings that `current` becomes."""
        base = current or TurnDetection()
        begun = replace(base, **dict(self.of_kind))  # type: ignore[arg-type]  # the same
        if (begun.eagerness is None) is not (base.eagerness is None):
            base = begun
        return replace(base, **dict(self.changes))  # type: ignore[arg-type]  # checked by decode


@dataclass(frozen=True, slots=True)
class TextAppendix:
    """A text to add to one that the session has, as a paragraph of its own."""

    text: str

    def resolve(self, current: str | None) -> str:
        """Return the text that `current` becomes."""
        return f"{current}\n\n{self.text}" if current else self.text


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Server-owned bounds; from the deploy file, never from a client. Defaults are the seed's."""

    idle_ttl_s: float | None = 300.0
    """A session in which nothing happens ends after this; null: never for that reason."""
    disconnect_grace_s: float = 30.0
    """A session without a client keeps its stages for this long; 0: it ends with its socket, and
    no session can be resumed."""
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
    max_sessions_per_key: int | None = None
    """Sessions that the owner of an API key has at once, unless the key's line says otherwise;
    where no key is asked for, all clients are one owner. null: as many as there is room for."""
    max_opens_per_key_per_minute: int | None = None
    """Sessions that the owner opens within any 60 s, and client secrets that it makes; likewise."""
    completed_append_cache_size: int = 256
    """Answers a stage remembers, so that a repeated call runs nothing."""
    max_session_s: float | None = 3600.0
    """A session ends after this, whatever happens in it; null: no such end."""
    expiring_notice_s: float = 60.0
    """How long before `max_session_s` the client is told; half of it for a shorter session."""
    max_output_bytes_per_session: int = 2_097_152
    """Output that waits for a slow reader; beyond it the session closes."""
    max_output_events_per_session: int = 512
    """The same, counted in events."""
    max_event_bytes: int = 15_728_640
    """One client event, as UTF-8 text; a longer one is refused."""
    config_timeout_s: float = 10.0
    """A new connection must have configured its session within this."""
    stage_timeout_s: float = 30.0
    """A stage that has not answered a call within this has failed it."""
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
    ref_audio: bytes = field(default=b"", repr=False)
    """A recording of the voice to speak with, as the client sent it; empty for none."""
    input_format: AudioFormat = AudioFormat(AudioEncoding.PCM16, 16_000)
    output_format: AudioFormat = AudioFormat(AudioEncoding.PCM16, 24_000)
    temperature: float | None = None
    max_output_tokens: int | None = None
    speed: float | None = None
    tools: ToolList = NO_TOOLS
    """What the client offers; a model without tools never hears of it."""
    tool_choice: ToolChoice = FREE_CHOICE
    turn_detection: TurnDetection | None = None
    overlap_policy: OverlapPolicy = OverlapPolicy.LISTEN_ONLY
    overlap_short_ack_ms: int = 700
    overlap_barge_in_ms: int = 1200
    overlap_silence_rms: float = 0.003
    playback_commit_policy: PlaybackCommitPolicy = PlaybackCommitPolicy.ACK_ONLY
    auto_response: bool = False
    force_listen_count: int = 0
    idle_timeout_s: float = 300.0
    counts_input: bool = False
    """Whether the client is told how much input has come in (`session.stream_events`)."""
    opening_messages: tuple[ContextMessage, ...] = ()
    """What was said before the session, oldest first; once it is open they are items."""
    wants_transcription: bool = False
    """Whether the client asks to be told what the user said, where its dialect has it ask."""
    echoed: tuple[tuple[str, str], ...] = ()
    """Fields we accept and do not use: name and its JSON text, echoed as they came."""

    @property
    def conflict(self) -> str:
        """Say why the overlap policy contradicts the turn detection; empty when it does not."""
        follows = overlap_policy_for(self.turn_detection)
        if self.overlap_policy is follows:
            return ""
        return (
            f"overlap_policy {self.overlap_policy.value} contradicts turn_detection, which makes "
            f"it {follows.value}: leave overlap_policy out, or change turn_detection"
        )

    @property
    def tools_fault(self) -> ToolFault | None:
        """Say why a model that calls tools can not take these; None when it can."""
        fault, choice = self.tools.fault or self.tool_choice.fault, self.tool_choice
        if fault is None and choice.name and choice.name not in {x.name for x in self.tools.tools}:
            return ToolFault(
                f"session.tool_choice names {choice.name}, which is not among the tools: "
                "name one of session.tools",
                "bad_event",
                "session.tool_choice",
            )
        return fault


@dataclass(frozen=True, slots=True)
class ConfigPatch:
    """A partial update in domain terms: exactly the fields the client named.

    `changes` maps names of `SessionConfig` fields to already validated values of their types, or
    to a patch of such a value. Turn detection takes the overlap policy with it.
    """

    changes: tuple[tuple[str, object], ...] = ()

    @property
    def is_appendix(self) -> bool:
        """Whether it adds to a text instead of setting anything."""
        return any(isinstance(value, TextAppendix) for _, value in self.changes)

    def apply_to(self, config: SessionConfig) -> SessionConfig:
        """Return `config` with exactly the named fields replaced."""
        values = {name: _resolved(value, getattr(config, name)) for name, value in self.changes}
        patched = replace(config, **values)  # type: ignore[arg-type]  # checked by decode
        if "turn_detection" not in values:
            return patched
        return replace(patched, overlap_policy=overlap_policy_for(patched.turn_detection))


def _resolved(value: object, current: object) -> object:
    match value, current:
        case AudioFormatPatch(), AudioFormat():
            return value.resolve(current)
        case TurnDetectionPatch(), TurnDetection() | None:
            return value.resolve(current)
        case TextAppendix(), str() | None:
            return value.resolve(current)
        case EchoedPatch(), tuple():
            return value.resolve(current)
        case _:
            return value


def overlap_policy_for(detection: TurnDetection | None) -> OverlapPolicy:
    """Return what user speech does during an answer under `detection`."""
    if detection is not None and detection.interrupt_response:
        return OverlapPolicy.BARGE_IN_ON_SPEECH
    return OverlapPolicy.LISTEN_ONLY


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What the stages are told about a session."""

    instructions: str = ""
    voice: str = ""
    temperature: float | None = None
    max_output_tokens: int | None = None
    voice_sample: bytes = field(default=b"", repr=False)
    """A recording of the voice to speak with; empty for none. The kernel has it as the client sent
    it, the stages get PCM at `session.unit.VOICE_RATE_HZ`, and once, at the open."""
    speed: float = 1.0
    force_listen_count: int = 0
    auto_response: bool = True
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = FREE_CHOICE


NO_TOKEN_LIMIT: Final = 0


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """Settings of one answer, carried by the unit that asks for it. None: the session's."""

    instructions: str | None = None
    voice: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    """NO_TOKEN_LIMIT: none, whatever the session has."""
    speed: float | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: ToolChoice | None = None
    is_out_of_band: bool = False
    """The model shall not remember the answer, either."""

    def apply_to(self, runtime: RuntimeConfig) -> RuntimeConfig:
        """Return the session's settings as they hold for this answer."""
        named = {
            name: value for name in ANSWER_SETTINGS if (value := getattr(self, name)) is not None
        }
        if self.max_output_tokens == NO_TOKEN_LIMIT:
            named["max_output_tokens"] = None
        return replace(runtime, **named)


ANSWER_SETTINGS: Final = tuple(
    each.name for each in fields(AnswerSettings) if each.name != "is_out_of_band"
)
"""Options of an answer that a model must have to honour; a descriptor names those it has."""


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Immutable options of one `response.create`; they never touch the session's settings."""

    output_modalities: tuple[str, ...] | None = None
    output_format: AudioFormat | None = None
    settings: AnswerSettings = AnswerSettings()
    is_out_of_band: bool = False
    """`conversation: "none"`: the answer is not kept in the history."""
    metadata: tuple[tuple[str, str], ...] = field(default=())
    input: tuple[ContextMessage | ItemReference, ...] | None = None
    """What the answer sees instead of the conversation; None: the conversation."""


def openai_config(model_id: str, profile: ModelProfile) -> SessionConfig:
    """Settings of a session in the OpenAI dialect whose client said nothing.

    There the client takes turns with the model, and never says what it has played.
    """
    del profile  # the same for every model
    detection = TurnDetection()
    pcm = AudioFormat(AudioEncoding.PCM16, 24_000)
    return SessionConfig(
        model=model_id,
        output_modalities=("audio",),
        input_format=pcm,
        output_format=pcm,
        turn_detection=detection,
        overlap_policy=overlap_policy_for(detection),
        overlap_short_ack_ms=-1,  # nothing that is committed is too short to be an item
        playback_commit_policy=PlaybackCommitPolicy.REAL_TIME,
    )


def default_config(model_id: str, profile: ModelProfile) -> SessionConfig:
    """Settings of a session whose client said nothing."""
    detection = TurnDetection() if profile.default_server_vad else None
    return SessionConfig(
        model=model_id,
        turn_detection=detection,
        overlap_policy=overlap_policy_for(detection),
        auto_response=profile.default_server_vad,
    )
