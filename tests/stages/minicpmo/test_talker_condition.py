"""What the talker's condition refuses."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from session.errors import StageFailed
from stages.minicpmo.config import TtsConfig, read_config
from stages.minicpmo.talker_condition import TalkerCondition, TalkerUnsupported, require_followed
from stages.minicpmo.tiny_checkpoint import DATA

pytestmark = pytest.mark.models

CONFIG: TtsConfig = replace(read_config(DATA).tts, num_text_tokens=12, audio_bos_token_id=11)
LLM, HIDDEN = 6, 4
CPU = torch.device("cpu")


def made(dtype: torch.dtype = torch.float32) -> TalkerCondition:
    source = torch.Generator().manual_seed(1)
    shapes = {
        "emb_text.weight": (12, HIDDEN),
        "projector_semantic.linear1.weight": (HIDDEN, LLM),
        "projector_semantic.linear1.bias": (HIDDEN,),
        "projector_semantic.linear2.weight": (HIDDEN, HIDDEN),
        "projector_semantic.linear2.bias": (HIDDEN,),
    }
    tensors = {
        f"tts.{name}": torch.randn(*shape, generator=source) for name, shape in shapes.items()
    }
    return TalkerCondition.from_tensors(CONFIG, tensors, CPU, dtype)


def hidden(count: int) -> Any:
    return np.random.default_rng(0).standard_normal((count, LLM)).astype(np.float32)


def test_rows_are_apart_and_of_the_models_numbers() -> None:
    condition = made(torch.bfloat16)
    rows = condition.rows([1, 2, 2], hidden(3))
    assert (rows.dtype, rows.shape) == (torch.bfloat16, (4, HIDDEN))
    assert torch.equal(condition.rows([1], hidden(3)[:1])[0], rows[0])
    assert torch.equal(condition.rows([], None)[0], rows[3])
    rows.zero_()
    assert condition.rows([], None).any()  # what is handed out is a copy


def test_rows_that_may_not_be_written_to_are_taken() -> None:
    given = hidden(1)
    given.flags.writeable = False
    assert torch.equal(made().rows([1], given), made().rows([1], hidden(1)))


@pytest.mark.parametrize(
    ("switch", "value"),
    [
        ("condition_type", "llm_hidden"),
        ("projector_type", "linear"),
        ("attention_type", "sliding_window"),
        ("normalize_projected_hidden", False),
        ("num_vq", 4),
    ],
)
def test_a_switch_that_is_not_built_is_refused_by_name(switch: str, value: Any) -> None:
    config = replace(CONFIG, **{switch: value})
    with pytest.raises(TalkerUnsupported, match=f"tts_config.{switch}") as refused:
        TalkerCondition.from_tensors(config, {}, CPU, torch.float32)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (again.field, again.value, str(again)) == (switch, value, str(refused.value))


@pytest.mark.parametrize("attention", ["full_attention", "sliding_recompute"])
def test_both_memories_are_built(attention: str) -> None:
    require_followed(replace(CONFIG, attention_type=attention))


def test_a_tensor_that_is_missing_is_named() -> None:
    with pytest.raises(KeyError, match="emb_text"):
        TalkerCondition.from_tensors(CONFIG, {}, CPU, torch.float32)


@pytest.mark.parametrize(
    ("ids", "rows"),
    [
        ([1, 2], hidden(1)),
        ([1], hidden(2)),
        ([1], None),
        ([1], hidden(1)[:, :5]),
        ([1], hidden(1) * np.nan),
        ([12], hidden(1)),
        ([-1], hidden(1)),
    ],
)
def test_what_does_not_fit_fails_the_unit(ids: list[int], rows: Any) -> None:
    with pytest.raises(StageFailed):
        made().rows(ids, rows)
