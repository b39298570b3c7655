"""Which of a checkpoint's tensors the talker's model takes, and as what."""

from collections.abc import Iterator

import pytest
import torch

from stages.minicpmo.weight_rule import make_tensor, rules
from tests.stages.minicpmo.reference_talker import ReferenceTalker

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("ignore")]

HEAD = "tts.head_code.0.parametrizations.weight."


def whole(*without: str) -> Iterator[tuple[str, torch.Tensor]]:
    for name in rules("model"):
        if name not in without:
            yield (
                name,
                torch.from_numpy(make_tensor("model", name)) if "_code" in name else torch.zeros(1),
            )


def test_the_head_is_multiplied_and_codes_have_one_id_more() -> None:
    from stages.minicpmo.talker_model import talker_names, talker_weights  # noqa: PLC0415 - slow

    expected = talker_names(2)
    passed = dict(talker_weights(whole(), expected))
    assert set(passed) - {"tts.lm_head.weight", "tts.model.embed_tokens.weight"} == {
        name for name in expected if name.startswith("tts.model.")
    }
    head, codes = passed["tts.lm_head.weight"], passed["tts.model.embed_tokens.weight"]
    torch.testing.assert_close(head[:-1], ReferenceTalker().head(), atol=1e-6, rtol=0)
    assert torch.equal(codes[:-1], dict(whole())["tts.emb_code.0.weight"])
    assert not head[-1].any()
    assert not codes[-1].any()


def test_the_published_modules_unread_tensor_may_be_left_out() -> None:
    from stages.minicpmo.talker_model import UNREAD, talker_names, talker_weights  # noqa: PLC0415

    assert UNREAD in dict(talker_weights(whole(UNREAD), talker_names(2)))


def test_what_is_missing_or_unknown_is_named() -> None:
    from stages.minicpmo.talker_model import talker_names, talker_weights  # noqa: PLC0415 - slow

    for gone in ("tts.model.layers.1.mlp.up_proj.weight", f"{HEAD}original0"):
        with pytest.raises(ValueError, match=gone):
            list(talker_weights(whole(gone), talker_names(2)))
    for surplus in ("tts.head_code.1.parametrizations.weight.original0", "tts.other", "lm_head"):
        with pytest.raises(ValueError, match=surplus):
            list(talker_weights([(surplus, torch.zeros(1))], talker_names(2)))
