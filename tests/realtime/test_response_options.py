"""The response object of response.create: options of one answer."""

import pytest

from session.config import AudioEncoding, AudioFormat, ResponseOptions
from session.realtime.session_fields import PRIVATE_KEYS
from session.stimuli import ResponseRequested
from tests.realtime.wire_texts import refused, sent

Fields = dict[str, object]


def options(**response: object) -> ResponseOptions:
    command = sent("response.create", response=response)
    assert isinstance(command, ResponseRequested), command
    return command.options


def test_all_options_are_read() -> None:
    assert options(
        modalities=["text"],
        output_audio_format="wav",
        instructions="be brief",
        voice="alto",
        temperature=0.5,
        max_output_tokens=7,
        speed=1.25,
        conversation="none",
        metadata={"trace": "t3"},
    ) == ResponseOptions(
        output_modalities=("text",),
        output_format=AudioFormat(AudioEncoding.WAV, 24_000),
        instructions="be brief",
        voice="alto",
        temperature=0.5,
        max_output_tokens=7,
        speed=1.25,
        is_out_of_band=True,
        metadata=(("trace", "t3"),),
    )


def test_nested_names_are_read_too() -> None:
    read = options(
        audio={"output": {"format": {"type": "audio/pcma"}, "voice": "alto", "speed": 1}}
    )
    assert read.output_format == AudioFormat(AudioEncoding.G711_ALAW, 8_000)
    assert (read.voice, read.speed) == ("alto", 1.0)


def test_private_keys_and_the_rest_are_dropped() -> None:
    dropped: Fields = dict.fromkeys(PRIVATE_KEYS, 1)
    dropped |= {"extra_body": {**dropped, "auto_response": True}, "prompt": {"id": "p"}}
    dropped |= {"tools": [], "tool_choice": "auto", "input": None, "conversation": "auto"}
    assert options(**dropped) == ResponseOptions()


@pytest.mark.parametrize(
    ("response", "code", "param"),
    [
        ({"modalities": ["smell"]}, "unsupported_response_modality", "modalities"),
        ({"output_audio_format": "mp3"}, "unsupported_audio_format", "output_audio_format"),
        ({"temperature": 3}, "bad_event", "temperature"),
        ({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
        ({"audio": {"output": {"speed": 9}}}, "bad_event", "audio.output.speed"),
        ({"audio": []}, "bad_event", "audio"),
        ({"conversation": "conv_1"}, "bad_event", "conversation"),
        ({"conversation": {"id": "x"}}, "bad_event", "conversation"),
        ({"input": []}, "unsupported_response_input", "input"),
        ({"tools": [{"name": "f"}]}, "unsupported_native_response_options", "tools"),
        ({"metadata": []}, "bad_event", "metadata"),
        ({"metadata": {str(n): "" for n in range(17)}}, "bad_event", "metadata"),
        ({"metadata": {"a": 1}}, "bad_event", "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "bad_event", "metadata.a"),
        ({"metadata": {"k" * 65: ""}}, "bad_event", "metadata." + "k" * 64),
    ],
)
def test_a_wrong_option_is_named(response: Fields, code: str, param: str) -> None:
    assert refused(sent("response.create", response=response)) == (code, f"response.{param}")


def test_metadata_up_to_its_limits_is_kept() -> None:
    metadata = {"k" * 62 + f"{n:02}": "v" * 512 for n in range(16)}
    assert dict(options(metadata=metadata).metadata) == metadata
