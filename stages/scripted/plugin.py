"""The scripted model's descriptor and factories."""

from typing import Any

from session.model_profile import ModelProfile
from stages.contract import Plugin
from stages.descriptor import Descriptor
from stages.scripted.hearing import ScriptedStage0
from stages.scripted.settings import read_settings
from stages.scripted.speaking import ScriptedStage1


def _check(settings: dict[str, Any]) -> None:
    read_settings(settings)


def _stage0(settings: dict[str, Any]) -> ScriptedStage0:
    return ScriptedStage0(read_settings(settings))


def _stage1(settings: dict[str, Any]) -> ScriptedStage1:
    return ScriptedStage1(read_settings(settings))


PLUGIN = Plugin(
    descriptor=Descriptor(
        name="scripted",
        model_id="scripted",
        description="Deterministic answers on a timetable, for tests and load.",
        profile=ModelProfile(
            unit_ms=1000,
            accepts_short_units=False,
            default_server_vad=False,
            text_input=True,
            input_transcription=False,
            messages=True,
            tools=True,
            voices=frozenset({"low", "high"}),
            response_options=frozenset(
                {
                    *("instructions", "voice", "max_output_tokens", "speed"),
                    *("tools", "tool_choice", "input"),
                }
            ),
            # The temperature is taken and changes nothing: there is nothing to sample.
            updatable=frozenset(
                {"instructions", "voice", "temperature", "max_output_tokens", "speed"}
            ),
        ),
    ),
    make_stage0=_stage0,
    make_stage1=_stage1,
    check_settings=_check,
)
