"""The facts of one session, and the laws that hold across its ledgers."""

from collections import deque
from dataclasses import dataclass, field

from session.config import ConfigPatch, RuntimeConfig, SessionConfig, SessionLimits
from session.errors import LocalProtocolError
from session.fence import Fence
from session.ids import IdFactory, ItemId, ResponseId
from session.ledger.append import AppendLedger
from session.ledger.attachment import AttachmentLedger
from session.ledger.calls import CallLedger
from session.ledger.history import HistoryLedger
from session.ledger.input import InputLedger
from session.ledger.lease import LeaseLedger
from session.ledger.playback import PlaybackLedger
from session.ledger.response import ResponseLedger
from session.lifecycle import Life, TurnState
from session.model_profile import ModelProfile
from session.snapshot import SessionSnapshot
from session.tools import FREE_CHOICE
from session.unit import INPUT_RATE_HZ, SAMPLE_BYTES
from session.vad import SpeechDetector


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """A `session.update` that waits for the append tail or for the stages."""

    patch: ConfigPatch
    candidate: SessionConfig
    """What the settings become, should it and all that wait before it be accepted."""
    event_id: str | None
    is_lenient: bool = False
    generation: int | None = None
    """Set once the stages have been asked."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Where the user spoke, in milliseconds of the session's input, and as which item."""

    item_id: ItemId
    began_ms: int
    ended_ms: int | None = None
    end_byte: int = 0
    """Where its end was found, in bytes of the session's input."""
    last_seq: int | None = None
    """The unit that brought its end to the model: no words by then, no words at all."""
    is_whole: bool = False
    """Its audio came with its item, not with the stream."""
    is_deleted: bool = False
    """The client has deleted the item; its words, when they come, are nobody's."""


@dataclass(slots=True)
class Overlap:
    """Speech over the current answer."""

    speech_ms: int = 0
    owner: str = ""
    told: str = ""
    """The reason of the last decision about this answer."""

    def begin(self, owner: str) -> bool:
        """Start anew when the answer is another one; say whether it is."""
        if owner == self.owner:
            return False
        self.owner, self.speech_ms, self.told = owner, 0, ""
        return True


@dataclass(frozen=True, slots=True)
class Drain:
    """The end that was asked for comes when what goes on now has come to its own end, or then."""

    until_s: float
    reason: str
    event_id: str | None


@dataclass(frozen=True, slots=True)
class Lull:
    """Nobody speaks and the server owes nothing, while the client owes the same as before."""

    since_s: float
    owed: tuple[int, ...]
    """How much of each thing; zeros where it owes nothing."""


@dataclass(slots=True)
class Leaving:
    """The server is about to go away: the session ends at a quiet moment, or then."""

    until_s: float
    is_told: bool = False
    lull: Lull | None = None


@dataclass(slots=True)
class IdleWatch:
    """Since when nobody has spoken (`session.idle_user`)."""

    answer: ResponseId | None = None
    """The last answer, once it is over."""
    config: SessionConfig | None = None
    generation: int = 0
    """The attachment: a client that has come back is waited for anew."""
    since_s: float = 0.0
    start_byte: int | None = None
    """Where in the input the silence began, once the answer has been played."""
    has_asked: bool = False


@dataclass(slots=True)
class SessionState:
    """Everything a session knows. Mutated by the handlers, under `DuplexSession.handle`, only."""

    fence: Fence
    config: SessionConfig
    limits: SessionLimits
    profile: ModelProfile
    ids: IdFactory
    life: Life = Life.OPENING
    turn: TurnState = TurnState.IDLE
    input: InputLedger = field(default_factory=InputLedger)
    append: AppendLedger = field(default_factory=AppendLedger)
    response: ResponseLedger = field(default_factory=ResponseLedger)
    playback: PlaybackLedger = field(default_factory=PlaybackLedger)
    history: HistoryLedger = field(default_factory=HistoryLedger)
    calls: CallLedger = field(default_factory=CallLedger)
    attachment: AttachmentLedger = field(default_factory=AttachmentLedger)
    lease: LeaseLedger = field(default_factory=LeaseLedger)
    overlap: Overlap = field(default_factory=Overlap)
    detector: SpeechDetector | None = None
    speech_item_id: ItemId | None = None
    """Item named by a speech_started that has no speech_stopped yet."""
    utterances: deque[Utterance] = field(default_factory=deque)
    """The user's utterances, oldest first, whose words the model has not told yet."""
    updates: deque[PendingUpdate] = field(default_factory=deque)
    config_generation: int = 0
    flush_wanted: bool = False
    """The residue of an utterance shall not wait for a full unit."""
    turns_expected: bool = False
    """Stage0 was given a turn to answer and has not said listen or speak to it yet."""
    open_event_id: str | None = None
    """The client's name for the event that opened the session."""
    wake_at_s: float | None = None
    """The wake-up that has been asked for and has not come yet."""
    release_retry_at_s: float | None = None
    """When the stages are asked again to release what they have not confirmed."""
    idle: IdleWatch = field(default_factory=IdleWatch)
    answered_bytes: int = 0
    """Audio that the model had taken in when the last answer ended."""
    input_told_ms: int = 0
    """How much input the client has been told of."""
    wants_comment: bool = False
    """The model shall tell the user what it was told, once nobody is speaking."""
    drain: Drain | None = None
    """Nothing new begins: the session waits for the end of what is being said."""
    leaving: Leaving | None = None
    """Everything goes on as before, but not for long."""
    close_reason: str = ""
    close_code: int = 1000
    close_event_id: str | None = None
    is_expiring: bool = False

    @property
    def unit_bytes(self) -> int:
        """Size of one full unit of input PCM."""
        return self.profile.unit_ms * INPUT_RATE_HZ // 1000 * SAMPLE_BYTES

    @property
    def accepts_input(self) -> bool:
        """Whether client commands still mean anything."""
        return self.life in (Life.OPENING, Life.OPEN) and self.drain is None

    @property
    def is_busy(self) -> bool:
        """Whether an answer is being made or may come, or the stages think about settings."""
        asked = self.turns_expected or self.input.has_wanted_turn or self.append.is_busy
        return asked or self.response.active is not None or bool(self.updates)

    def answer_in_progress(self, now: float) -> bool:
        """Whether the assistant is making an answer or the client still plays one."""
        if self.response.active is not None:
            return True
        return self.playback.outstanding(self.response.last_id, now=now)

    def runtime(self, config: SessionConfig) -> RuntimeConfig:
        """Derive what the stages are told from the public settings."""
        return RuntimeConfig(
            instructions=config.instructions or "",
            voice=config.voice or "",
            voice_sample=config.ref_audio if self.profile.ref_audio else b"",
            temperature=config.temperature,
            max_output_tokens=config.max_output_tokens,
            speed=1.0 if config.speed is None else config.speed,
            force_listen_count=config.force_listen_count,
            auto_response=config.auto_response,
            tools=config.tools.tools if self.profile.tools else (),
            tool_choice=config.tool_choice if self.profile.tools else FREE_CHOICE,
        )

    def snapshot(self) -> SessionSnapshot:
        """Return the session as a client may see it."""
        active = self.response.active
        shown = active.response_id if active is not None and active.is_visible else None
        return SessionSnapshot(
            fence=self.fence,
            state=self.life.value,
            turn_state=self.turn.value,
            config=self.config,
            playback=self.playback.view(self.response.last_id),
            active_response_id=shown,
            config_generation=self.config_generation,
        )

    def validate(self) -> None:
        """Raise LocalProtocolError unless every ledger balances and they agree."""
        self.input.validate()
        self.response.validate()
        self.playback.validate()
        self.attachment.validate()
        if self.life is Life.CLOSED and self.response.active is not None:
            raise LocalProtocolError("closed with an answer still active")
        if self.append.pending is not None and self.life is Life.CLOSED:
            raise LocalProtocolError("closed with a unit still out")


def make_detector(config: SessionConfig) -> SpeechDetector | None:
    """Return a detector for the settings, or None when detection is off."""
    return None if config.turn_detection is None else SpeechDetector(config.turn_detection)
