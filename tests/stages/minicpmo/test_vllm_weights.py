"""Which of a checkpoint's tensors go to the language model in vLLM, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stages.minicpmo.tiny_checkpoint import DATA
from stages.minicpmo.weight_rule import rules

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]


def whole() -> Iterator[tuple[str, torch.Tensor]]:
    for name in rules("model"):
        yield name, torch.zeros(1)


def test_the_language_models_tensors_are_all_of_llm() -> None:
    from stages.minicpmo.vllm_model import (  # noqa: PLC0415 - takes seconds
        language_model_names,
        language_model_weights,
    )

    expected = language_model_names(2, is_tied=False)
    passed = [name for name, _ in language_model_weights(whole(), expected)]
    assert set(passed) == expected == {name for name in rules("model") if name.startswith("llm.")}
    assert "llm.lm_head.weight" not in language_model_names(2, is_tied=True)


def test_what_is_missing_or_unknown_is_named() -> None:
    from stages.minicpmo.vllm_model import (  # noqa: PLC0415 - takes seconds
        language_model_names,
        language_model_weights,
    )

    expected = language_model_names(2, is_tied=False)
    gone = "llm.model.layers.1.self_attn.q_proj.weight"
    with pytest.raises(ValueError, match=gone):
        list(language_model_weights((one for one in whole() if one[0] != gone), expected))
    surplus = ("llm.model.layers.2.mlp.up_proj.weight", "audio.first.weight", "lm_head.weight")
    for name in surplus:
        with pytest.raises(ValueError, match=name):
            list(language_model_weights([(name, torch.zeros(1))], expected))


def test_the_published_configs_layout_is_read_without_its_code(tmp_path: Path) -> None:
    from transformers import AutoConfig  # noqa: PLC0415 - takes seconds

    from stages.vllm_plugin import register  # noqa: PLC0415

    register()
    register()
    (tmp_path / "config.json").write_bytes((DATA / "config.json").read_bytes())
    config = AutoConfig.from_pretrained(tmp_path)
    assert (config.model_type, config.num_hidden_layers, config.head_dim) == ("minicpmo", 2, 32)
    assert (config.hidden_size, config.vocab_size) == (128, 151_748)
    assert config.audio_config["d_model"] == 64
