"""What to do with user audio that comes while the assistant is answering. Pure decisions."""

import enum
from dataclasses import dataclass
from typing import Final

from session.config import OverlapPolicy

SHORT_ACKS: Final = frozenset(
    [
        *("ok", "okay", "yes", "yeah", "yep", "yup", "right", "all right", "sure", "go on"),
        *("i see", "mhm", "mm-hmm", "mm hmm", "uh-huh", "uh huh", "hmm"),
        *("嗯", "嗯嗯", "好", "好的", "对", "是", "是的", "行", "哦", "继续"),
    ]
)
"""Transcripts of words that only tell the speaker to go on."""


class OverlapAction(enum.Enum):
    """Outcome for one append."""

    BARGE_IN = "barge_in"
    LISTEN = "listen"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class OverlapRuling:
    """An outcome and its reason, as shown to clients."""

    action: OverlapAction
    reason: str
    keeps_audio: bool = True
    """Whether the audio is kept for the model, if the answer goes on."""


@dataclass(frozen=True, slots=True)
class OverlapFacts:
    """All that the ruling depends on."""

    policy: OverlapPolicy
    auto_response: bool
    is_speech: bool
    had_onset: bool
    """Server voice activity detection found an onset in this append."""
    has_detector: bool
    interrupts: bool
    duration_ms: int
    overlap_ms: int
    """Speech over this answer so far, this append included."""
    short_ack_ms: int
    barge_in_ms: int
    client_action: str | None = None
    force_barge_in: bool = False
    force_listen: bool = False
    text_hint: str = ""
    """What the client thinks was said."""
    has_frames: bool = False


def rule(facts: OverlapFacts) -> OverlapRuling | None:
    """Return the ruling; None when a continuous session has nothing to rule about."""
    forced = _client_ruling(facts)
    if forced is not None:
        return forced
    if facts.auto_response:
        return _continuous_ruling(facts)
    if facts.is_speech and is_short_ack(facts.text_hint):
        return OverlapRuling(OverlapAction.LISTEN, "short_ack_transcript", keeps_audio=False)
    if facts.had_onset and facts.interrupts:
        return OverlapRuling(OverlapAction.BARGE_IN, "server_vad_speech_started")
    return _turn_ruling(facts)


def is_short_ack(text: str) -> bool:
    """Whether a transcript only tells the speaker to go on."""
    words = "".join(sign for sign in text if sign.isalnum() or sign in " -")
    return words.strip().casefold() in SHORT_ACKS


def _client_ruling(facts: OverlapFacts) -> OverlapRuling | None:
    if facts.client_action is not None:
        action = OverlapAction(facts.client_action)
        keeps = action is not OverlapAction.DROP
        return OverlapRuling(action, "client_overlap_action", keeps_audio=keeps)
    if facts.force_barge_in:
        return OverlapRuling(OverlapAction.BARGE_IN, "client_force_barge_in")
    if facts.force_listen:
        return OverlapRuling(OverlapAction.LISTEN, "client_force_listen")
    return None


def _continuous_ruling(facts: OverlapFacts) -> OverlapRuling | None:
    """A session whose model hears everything: the stream goes on in any case."""
    if facts.had_onset and facts.interrupts:
        return OverlapRuling(OverlapAction.BARGE_IN, "server_vad_speech_started")
    if facts.policy is OverlapPolicy.LISTEN_ONLY:
        return None
    if not facts.is_speech:
        return OverlapRuling(OverlapAction.LISTEN, "auto_response_continuous")
    if facts.has_detector:
        return OverlapRuling(OverlapAction.LISTEN, "server_vad_utterance_active")
    return OverlapRuling(OverlapAction.BARGE_IN, "barge_in_on_speech")


def _turn_ruling(facts: OverlapFacts) -> OverlapRuling:
    if not facts.is_speech:
        if facts.has_frames:
            return OverlapRuling(OverlapAction.LISTEN, "vision_follow")
        # Voice detection needs the audio just before an onset: it keeps that much of a pause.
        return OverlapRuling(OverlapAction.DROP, "silence_or_noise", keeps_audio=facts.has_detector)
    if facts.policy is OverlapPolicy.LISTEN_ONLY:
        return OverlapRuling(OverlapAction.LISTEN, "policy_listen_only")
    if facts.has_detector:
        return OverlapRuling(OverlapAction.LISTEN, "server_vad_utterance_active")
    if facts.overlap_ms >= facts.barge_in_ms:
        return OverlapRuling(OverlapAction.BARGE_IN, "long_overlap_speech")
    if facts.overlap_ms <= facts.short_ack_ms:
        return OverlapRuling(OverlapAction.LISTEN, "short_ack")
    return OverlapRuling(OverlapAction.LISTEN, "accumulating_overlap_speech")
