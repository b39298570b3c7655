"""Wrong settings are named before anything starts."""

from pathlib import Path

import pytest

from stages.embedded.plugin import PLUGIN
from stages.embedded.settings import Engine, read_settings


def test_an_empty_mapping_gives_the_defaults() -> None:
    settings = read_settings({})
    assert settings.cache_dir is None
    assert settings.silence_ms == 600


def test_values_are_taken_and_converted() -> None:
    settings = read_settings({"cache_dir": "/var/cache/x", "answering_workers": 3})
    assert settings.cache_dir == Path("/var/cache/x")
    assert settings.answering_workers == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("silence_ms", 1),
        ("silence_ms", "long"),
        ("hearing_workers", 0),
        ("speech_threshold", 1.5),
        ("history_tokens", -1),
        ("voice", "emma"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"model_settings\.{name}: "):
        PLUGIN.check_settings({name: value})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"hearing_workers.*answering_workers"):
        PLUGIN.check_settings({"hearing_workers": 0, "answering_workers": 0})


def test_the_engine_is_one_of_two() -> None:
    assert read_settings({}).engine is Engine.CTRANSLATE2
    assert read_settings({"engine": "vllm"}).engine is Engine.VLLM
    with pytest.raises(ValueError, match=r"model_settings\.engine: .*'vllm'"):
        PLUGIN.check_settings({"engine": "llama.cpp"})
