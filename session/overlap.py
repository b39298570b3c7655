"""What to do with user audio that comes while the assistant is answering. Pure decisions."""

import enum
from dataclasses import dataclass

from session.config import OverlapPolicy


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


def rule(facts: OverlapFacts) -> OverlapRuling | None:
    """Return the ruling; None when a continuous session has nothing to rule about."""
    forced = _client_ruling(facts)
    if forced is not None:
        return forced
    if facts.had_onset and facts.interrupts:
        return OverlapRuling(OverlapAction.BARGE_IN, "server_vad_speech_started")
    if facts.auto_response:
        return _continuous_ruling(facts)
    return _turn_ruling(facts)


def _client_ruling(facts: OverlapFacts) -> OverlapRuling | None:
    if facts.client_action is not None:
        return OverlapRuling(OverlapAction(facts.client_action), "client_overlap_action")
    if facts.force_barge_in:
        return OverlapRuling(OverlapAction.BARGE_IN, "client_force_barge_in")
    if facts.force_listen:
        return OverlapRuling(OverlapAction.LISTEN, "client_force_listen")
    return None


def _continuous_ruling(facts: OverlapFacts) -> OverlapRuling | None:
    wants_barge_in = facts.policy is OverlapPolicy.BARGE_IN_ON_SPEECH
    if wants_barge_in and facts.is_speech and not facts.has_detector:
        return OverlapRuling(OverlapAction.BARGE_IN, "barge_in_on_speech")
    return None


def _turn_ruling(facts: OverlapFacts) -> OverlapRuling:
    if not facts.is_speech:
        return OverlapRuling(OverlapAction.DROP, "silence_or_noise")
    if facts.policy is OverlapPolicy.LISTEN_ONLY:
        return OverlapRuling(OverlapAction.LISTEN, "policy_listen_only")
    if facts.overlap_ms >= facts.barge_in_ms and not facts.has_detector:
        return OverlapRuling(OverlapAction.BARGE_IN, "long_overlap_speech")
    if facts.overlap_ms <= facts.short_ack_ms:
        return OverlapRuling(OverlapAction.LISTEN, "short_ack")
    return OverlapRuling(OverlapAction.LISTEN, "accumulating_overlap_speech")
