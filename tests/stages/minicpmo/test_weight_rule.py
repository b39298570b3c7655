import hashlib

import numpy as np
import pytest

from stages.minicpmo.weight_rule import make_tensor, rules, unit_noise

SHA256 = {
    "model": "b6db7d6edafafec89cf1a3b27a64fec097fea99dd847ce41fed4223343a42641",
    "flow": "3b4fae0d3b6c0b3da3cea60ba4045bf54734793ae8a6945282dbab884ca24ece",
    "hift": "4d3db94be3ee7f7614b8f8a6072763631382a29af19039ae05e5aedbb8fe6fe4",
    "noise": "56ccaa1b0fc8711a5dd1da2c1b83b640e9c4a76eadda8994013c06d456e6fb6f",
}


@pytest.mark.parametrize("group", SHA256)
def test_a_group_has_the_published_sum(group: str) -> None:
    digest = hashlib.sha256()
    for name, rule in rules(group).items():
        values = make_tensor(group, name)
        assert values.shape == rule.shape
        assert values.dtype == np.float32
        digest.update(values.astype("<f4").data)
    assert digest.hexdigest() == SHA256[group]


def test_the_group_is_part_of_the_label() -> None:
    assert unit_noise("model/x", 4).tolist() != unit_noise("flow/x", 4).tolist()


def test_a_longer_draw_begins_like_a_shorter_one() -> None:
    assert unit_noise("model/x", 7)[:4].tolist() == unit_noise("model/x", 4).tolist()


def test_a_name_without_a_rule_is_no_tensor() -> None:
    with pytest.raises(KeyError):
        make_tensor("model", "llm.model.layers.2.mlp.up_proj.weight")


def test_only_the_talkers_unread_table_may_be_missing() -> None:
    unread = [name for name, rule in rules("model").items() if rule.unused]
    assert unread == ["tts.model.embed_tokens.weight"]
