from dataclasses import replace
from pathlib import Path

import pytest

from stages.minicpmo import tiny_checkpoint
from stages.minicpmo.config import MiniCPMOConfig, read_config
from stages.minicpmo.tensor_shapes import PREFIXES, expected_tensors
from stages.minicpmo.weight_rule import rules
from tests.stages.minicpmo.test_config import released, write

ALL = tuple(PREFIXES)


@pytest.fixture(name="tiny")
def tiny_config() -> MiniCPMOConfig:
    return read_config(tiny_checkpoint.DATA)


@pytest.fixture(name="full")
def released_config(tmp_path: Path) -> MiniCPMOConfig:
    return read_config(write(tmp_path, released()))


def test_the_tiny_sizes_give_the_published_names_and_shapes(tiny: MiniCPMOConfig) -> None:
    published = {name: rule.shape for name, rule in rules("model").items() if not rule.unused}
    assert dict(expected_tensors(tiny, ALL).shapes) == published


def test_what_is_never_read_may_be_there(tiny: MiniCPMOConfig) -> None:
    expected = expected_tensors(tiny, ("tts",))
    (unread,) = [name for name, rule in rules("model").items() if rule.unused]
    assert unread not in expected.shapes
    assert expected.may_hold(unread)
    assert expected.may_hold("tts.emb_text.weight")
    assert not expected.may_hold("tts.model.embed_tokens.weight2")


def test_a_network_at_a_time(tiny: MiniCPMOConfig) -> None:
    names = expected_tensors(tiny, ("apm", "audio_projection_layer")).shapes
    assert {name.split(".")[0] for name in names} == {"apm", "audio_projection_layer"}
    assert len(names) == 37 + 4


def test_the_released_sizes(full: MiniCPMOConfig) -> None:
    shapes = expected_tensors(full, ALL).shapes
    # Eight heads of keys and values serve thirty-two of queries.
    assert shapes["llm.model.layers.35.self_attn.q_proj.weight"] == (4096, 4096)
    assert shapes["llm.model.layers.35.self_attn.k_proj.weight"] == (1024, 4096)
    assert shapes["llm.model.layers.35.self_attn.k_norm.weight"] == (128,)
    assert shapes["apm.layers.23.fc1.weight"] == (4096, 1024)
    assert shapes["audio_projection_layer.linear1.weight"] == (4096, 1024)
    assert shapes["vpm.embeddings.position_embedding.weight"] == (4900, 1152)
    assert shapes["resampler.kv_proj.weight"] == (4096, 1152)
    assert shapes["tts.model.layers.19.mlp.down_proj.weight"] == (768, 3072)
    assert shapes["tts.projector_semantic.linear1.weight"] == (768, 4096)


def test_the_dropped_vision_layer_is_not_read_and_may_be_there(full: MiniCPMOConfig) -> None:
    expected = expected_tensors(full, ("vpm",))
    assert "vpm.encoder.layers.25.layer_norm1.bias" in expected.shapes
    assert "vpm.encoder.layers.26.layer_norm1.bias" not in expected.shapes
    assert expected.may_hold("vpm.encoder.layers.26.layer_norm1.bias")
    assert not expected.may_hold("vpm.encoder.layers.27.layer_norm1.bias")


def test_a_kept_vision_layer_is_read(tiny: MiniCPMOConfig) -> None:
    assert not expected_tensors(tiny, ("vpm",)).may_hold("vpm.encoder.layers.2.layer_norm1.bias")


def test_equal_sizes_need_no_projection_between_them(tiny: MiniCPMOConfig) -> None:
    equal = replace(tiny, vision=replace(tiny.vision, hidden_size=128))
    assert "resampler.kv_proj.weight" in expected_tensors(tiny, ("resampler",)).shapes
    assert "resampler.kv_proj.weight" not in expected_tensors(equal, ("resampler",)).shapes


def test_several_codes_at_a_time_have_a_table_and_a_head_each(tiny: MiniCPMOConfig) -> None:
    two = expected_tensors(replace(tiny, tts=replace(tiny.tts, num_vq=2)), ("tts",)).shapes
    assert two["tts.emb_code.1.weight"] == (6562, 64)
    assert two["tts.head_code.1.parametrizations.weight.original0"] == (6562, 1)


def test_the_talkers_keys_may_be_narrower_than_its_queries(tiny: MiniCPMOConfig) -> None:
    narrow = expected_tensors(
        replace(tiny, tts=replace(tiny.tts, num_key_value_heads=1)), ("tts",)
    ).shapes
    assert narrow["tts.model.layers.0.self_attn.v_proj.weight"] == (32, 64)
    assert narrow["tts.model.layers.0.self_attn.q_proj.weight"] == (64, 64)


def test_there_is_no_other_network(tiny: MiniCPMOConfig) -> None:
    with pytest.raises(KeyError):
        expected_tensors(tiny, ("llm.",))
