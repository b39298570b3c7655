"""MiniCPM-o 4.5 as a plugin, and the same with toy weights."""

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from session.model_profile import ModelProfile
from stages.contract import Plugin, Stage0Model, Stage1Model
from stages.descriptor import Descriptor
from stages.minicpmo.settings import CHECKPOINT_VARIABLE, TINY, MiniCPMOSettings, read_settings

PROFILE: Final = ModelProfile(
    unit_ms=1000,
    accepts_short_units=False,
    default_server_vad=False,
    text_input=False,
    video_input=True,
    ref_audio=True,
    input_transcription=False,
    response_options=frozenset({"temperature"}),
    updatable=frozenset({"instructions", "temperature"}),
)

DESCRIPTOR: Final = Descriptor(
    name="minicpmo",
    model_id="openbmb/MiniCPM-o-4_5",
    description="MiniCPM-o 4.5 on vLLM: it hears and sees by itself, and decides each second "
    "whether to listen or to speak, and it speaks with a voice of its own or one that it is given",
    profile=PROFILE,
)

TINY_DESCRIPTOR: Final = Descriptor(
    name="minicpmo_tiny",
    model_id="minicpmo-tiny",
    description="MiniCPM-o 4.5's path through vLLM with made-up toy weights: it answers in "
    "syllables that mean nothing, in noise",
    profile=PROFILE,
)


def _load(settings: MiniCPMOSettings) -> Any:
    # torch and vLLM, which only the process that runs the model needs to have.
    from stages.minicpmo.loading import load  # noqa: PLC0415

    return load(settings)


def _stage0(settings: MiniCPMOSettings) -> Stage0Model:
    from stages.minicpmo.stage0 import MiniCPMOStage0  # noqa: PLC0415

    return MiniCPMOStage0(settings, _load, time.monotonic)


def _make_stage0(raw: Mapping[str, Any]) -> Stage0Model:
    return _stage0(read_settings(raw))


def _make_tiny_stage0(raw: Mapping[str, Any]) -> Stage0Model:
    return _stage0(_tiny(raw))


def _load_voice(settings: MiniCPMOSettings) -> Any:
    from stages.minicpmo.loading_voice import load_voice  # noqa: PLC0415 - torch, as above

    return load_voice(settings)


def _stage1(settings: MiniCPMOSettings) -> Stage1Model:
    from stages.minicpmo.stage1 import MiniCPMOStage1  # noqa: PLC0415

    return MiniCPMOStage1(settings, _load_voice, time.monotonic)


def _make_stage1(raw: Mapping[str, Any]) -> Stage1Model:
    return _stage1(read_settings(raw))


def _make_tiny_stage1(raw: Mapping[str, Any]) -> Stage1Model:
    return _stage1(_tiny(raw))


def machine_faults(name: str, raw: Mapping[str, Any]) -> list[str]:
    """Return what would keep the model called `name` from starting on this machine."""
    from stages.minicpmo.loading import checkpoint_folder  # noqa: PLC0415 - torch, as above
    from stages.minicpmo.machine_check import faults  # noqa: PLC0415

    settings = _tiny(raw) if name == TINY_DESCRIPTOR.name else read_settings(raw)
    return list(faults(settings, checkpoint_folder(settings)))


def _check_settings(raw: Mapping[str, Any]) -> None:
    if not (read_settings(raw).checkpoint or os.environ.get(CHECKPOINT_VARIABLE)):
        raise ValueError(
            f"checkpoint: there is none; name its folder here or in {CHECKPOINT_VARIABLE}"
        )


def _check_tiny_settings(raw: Mapping[str, Any]) -> None:
    _tiny(raw)


def _tiny(raw: Mapping[str, Any]) -> MiniCPMOSettings:
    """Return the settings with the tiny checkpoint, on the CPU unless they say otherwise."""
    if "checkpoint" in raw:
        raise ValueError("checkpoint: this model makes its own; model: minicpmo takes another")
    return read_settings({"device": "cpu", "dtype": "float32", **raw, "checkpoint": TINY})


PLUGIN: Final = Plugin(
    descriptor=DESCRIPTOR,
    make_stage0=_make_stage0,
    make_stage1=_make_stage1,
    check_settings=_check_settings,
)

TINY_PLUGIN: Final = Plugin(
    descriptor=TINY_DESCRIPTOR,
    make_stage0=_make_tiny_stage0,
    make_stage1=_make_tiny_stage1,
    check_settings=_check_tiny_settings,
)
