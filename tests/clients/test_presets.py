"""The presets, and that the service understands every one of them."""

import base64
import json

import pytest

from clients import commands, embedded, minicpmo_4_5, personaplex, scripted
from clients.presets import PRESET_NAMES, preset
from clients.session_config import SessionSettings, with_input
from session.realtime.decode import decode
from session.stimuli import EventRefused, SessionConfigured

ALL: dict[str, SessionSettings] = {
    "embedded": embedded.create_duplex_session_config(instructions="be brief"),
    "scripted": scripted.create_duplex_session_config(input_rate_hz=48_000),
    "minicpmo_4_5": minicpmo_4_5.create_duplex_session_config(ref_audio=b"RIFF"),
    "personaplex": personaplex.create_duplex_session_config(voice="NATF0"),
    **{f"named {name}": preset(name) for name in PRESET_NAMES},
}


def changes(settings: SessionSettings) -> dict[str, object]:
    """Return what the service's own decoder makes of settings."""
    text = json.dumps(commands.update_session(settings))
    command = decode(text, max_bytes=1_000_000)
    assert not isinstance(command, EventRefused), command.error.message
    assert isinstance(command, SessionConfigured)
    return dict(command.patch.changes)


@pytest.mark.parametrize("name", ALL)
def test_in_every_preset_the_model_speaks_on_its_own(name: str) -> None:
    decoded = changes(ALL[name])
    assert decoded["auto_response"] is True
    assert "model" not in ALL[name]


def test_embedded_lets_the_server_find_turns() -> None:
    assert ALL["embedded"]["turn_detection"] == {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
        "create_response": True,
        "interrupt_response": True,
    }


def test_minicpmo_is_native_and_its_voice_travels_as_data() -> None:
    settings = ALL["minicpmo_4_5"]
    assert settings["turn_detection"] is None
    extra = settings["extra_body"]
    assert isinstance(extra, dict)
    assert extra["native_duplex"] is True
    voice = str(settings["ref_audio"])
    assert base64.b64decode(voice.removeprefix("data:audio/wav;base64,")) == b"RIFF"
    assert "ref_audio" not in minicpmo_4_5.create_duplex_session_config()


def test_personaplex_declares_float_samples_at_its_own_rate() -> None:
    settings = ALL["personaplex"]
    assert (settings["input_audio_format"], settings["sample_rate_hz"]) == ("pcm_f32le", 24_000)


def test_declaring_another_input_changes_a_copy() -> None:
    settings = embedded.create_duplex_session_config()
    declared = with_input(settings, rate_hz=44_100)
    assert declared["sample_rate_hz"] == 44_100
    assert declared["audio"] == {
        "input": {"sample_rate_hz": 44_100},
        "output": {"sample_rate_hz": 24_000},
    }
    assert settings["sample_rate_hz"] == 16_000
    assert settings["audio"] != declared["audio"]


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="auto, embedded"):
        preset("gpt")
