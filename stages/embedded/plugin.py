"""The embedded model as a plugin."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from session.model_profile import ModelProfile
from stages.contract import Plugin, Stage0Model, Stage1Model
from stages.descriptor import Descriptor
from stages.embedded.settings import read_settings

_SETTINGS: Final = frozenset({"instructions", "temperature", "max_output_tokens", "speed"})

DESCRIPTOR: Final = Descriptor(
    name="embedded",
    model_id="duplex-embedded-1",
    description="Silero VAD, Whisper tiny.en, rules and SmolLM2-135M, hibari: a cascade for "
    "trying the server, English only, on any CPU",
    profile=ModelProfile(
        unit_ms=1000,
        accepts_short_units=True,
        default_server_vad=True,
        text_input=True,
        messages=True,
        tools=True,
        input_transcription=True,
        response_options=_SETTINGS | {"tools", "tool_choice", "input"},
        updatable=_SETTINGS,
    ),
)


def local_time() -> datetime:
    """Return the time on the clock of the machine's time zone."""
    return datetime.now(UTC).astimezone()


def _make_stage0(settings: Mapping[str, Any]) -> Stage0Model:
    # Each half's libraries are imported only where that half runs.
    from stages.embedded.stage0 import EmbeddedStage0  # noqa: PLC0415

    return EmbeddedStage0(read_settings(settings), local_time)


def _make_stage1(settings: Mapping[str, Any]) -> Stage1Model:
    from stages.embedded.stage1 import EmbeddedStage1  # noqa: PLC0415

    return EmbeddedStage1(read_settings(settings))


def _check_settings(settings: Mapping[str, Any]) -> None:
    read_settings(settings)


PLUGIN: Final = Plugin(
    descriptor=DESCRIPTOR,
    make_stage0=_make_stage0,
    make_stage1=_make_stage1,
    check_settings=_check_settings,
)
