"""What else tells the dialects apart, read from the gateway's kits."""

from collections.abc import Callable
from typing import Final

from serve_app.dialects import KITS, Dialect, DialectKit
from session.config import AudioFormat, PlaybackCommitPolicy, SessionConfig
from stages.embedded.plugin import DESCRIPTOR

Aspect = Callable[[DialectKit, SessionConfig], str]

_HEARD: Final = {
    PlaybackCommitPolicy.ACK_ONLY: "what the client acknowledges",
    PlaybackCommitPolicy.COMMIT_ALL_ON_DONE: "all of an answer that ended",
    PlaybackCommitPolicy.REAL_TIME: "what will have been played by then",
}


def differences(dialect: Dialect) -> tuple[str, ...]:
    """Return what holds on a dialect, in the order of `ASPECTS`."""
    kit = KITS[dialect]
    config = kit.defaults(DESCRIPTOR.model_id, DESCRIPTOR.profile)
    return tuple(aspect(kit, config) for aspect in ASPECTS.values())


def _first(kit: DialectKit, _: SessionConfig) -> str:
    return "the server" if kit.greets else "the client"


def _resumes(kit: DialectKit, _: SessionConfig) -> str:
    return "another socket can go on" if kit.is_resumable else "the session ends"


def _speaks(_: DialectKit, config: SessionConfig) -> str:
    return "on its own" if config.auto_response else "when a turn of the user ends, or when asked"


def _turns(_: DialectKit, config: SessionConfig) -> str:
    return "off" if config.turn_detection is None else "`server_vad`"


def _audio(audio: AudioFormat) -> str:
    return f"{audio.encoding.value}, {audio.rate_hz // 1000} kHz"


def _sound_in(_: DialectKit, config: SessionConfig) -> str:
    return _audio(config.input_format)


def _sound_out(_: DialectKit, config: SessionConfig) -> str:
    return _audio(config.output_format)


def _answers(_: DialectKit, config: SessionConfig) -> str:
    return ", ".join(config.output_modalities)


def _heard(_: DialectKit, config: SessionConfig) -> str:
    return _HEARD[config.playback_commit_policy]


ASPECTS: Final[dict[str, Aspect]] = {
    "who says something first": _first,
    "when a socket breaks": _resumes,
    "the model speaks": _speaks,
    "turn detection": _turns,
    "sound in": _sound_in,
    "sound out": _sound_out,
    "an answer is": _answers,
    "counts as heard": _heard,
}
"""Each thing that may differ, and how it is told."""
