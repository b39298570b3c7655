import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from stages.minicpmo import tiny_checkpoint
from stages.minicpmo.checkpoint import TensorsMismatch, load_tensors
from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.config import MiniCPMOConfig, read_config
from stages.minicpmo.tensor_shapes import PREFIXES
from stages.minicpmo.weight_rule import make_tensor, rules

pytestmark = pytest.mark.models

CONFIG: MiniCPMOConfig = read_config(tiny_checkpoint.DATA)
PROJECTOR = ("audio_projection_layer",)
LINEAR1 = "audio_projection_layer.linear1.weight"
LINEAR2 = "audio_projection_layer.linear2.weight"

Tensors = dict[str, torch.Tensor]


def network(*prefixes: str) -> Tensors:
    names = [name for name in rules("model") if name.split(".")[0] in prefixes]
    return {name: torch.from_numpy(make_tensor("model", name)) for name in names}


def write(folder: Path, tensors: Tensors, name: str = "model.safetensors") -> Path:
    save_file(tensors, folder / name)
    return folder


def write_shards(folder: Path, shards: dict[str, Tensors]) -> Path:
    for name, tensors in shards.items():
        write(folder, tensors, name)
    places = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    return write_index(folder, {"metadata": {"total_size": 1}, "weight_map": places})


def write_index(folder: Path, index: object) -> Path:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def mismatch(folder: Path) -> TensorsMismatch:
    with pytest.raises(TensorsMismatch) as caught:
        load_tensors(folder, CONFIG, PROJECTOR)
    return caught.value


def assert_equal(loaded: Tensors, expected: Tensors) -> None:
    assert loaded.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(loaded[name], tensor)


def test_the_tiny_checkpoint_holds_every_network(tiny_folder: Path) -> None:
    loaded = load_tensors(tiny_folder, read_config(tiny_folder), tuple(PREFIXES))
    assert len(loaded) == 147
    for name in ("llm.lm_head.weight", "apm.conv1.weight", "tts.emb_code.0.weight"):
        assert np.array_equal(loaded[name].numpy(), make_tensor("model", name))


def test_a_network_alone_is_loaded(tmp_path: Path) -> None:
    write(tmp_path, network("apm", "audio_projection_layer"))
    loaded = load_tensors(tmp_path, CONFIG, PROJECTOR)
    assert_equal(loaded, network("audio_projection_layer"))


def test_a_dtype_is_made_of_any_other(tmp_path: Path) -> None:
    halves = {name: one.bfloat16() for name, one in network("audio_projection_layer").items()}
    write(tmp_path, halves)
    assert_equal(load_tensors(tmp_path, CONFIG, PROJECTOR), halves)
    wide = load_tensors(tmp_path, CONFIG, PROJECTOR, dtype=torch.float32)
    assert {one.dtype for one in wide.values()} == {torch.float32}
    assert_equal(wide, {name: one.float() for name, one in halves.items()})


def test_shards_are_found_through_the_index(tmp_path: Path) -> None:
    parts = network("audio_projection_layer")
    first = {LINEAR1: parts.pop(LINEAR1)}
    write_shards(tmp_path, {"model-00001-of-00002.safetensors": first | network("apm"), "b": parts})
    assert_equal(
        load_tensors(tmp_path, CONFIG, (*PROJECTOR, "apm")),
        network("audio_projection_layer", "apm"),
    )


def test_shards_of_other_networks_need_not_be_there(tmp_path: Path) -> None:
    write_shards(tmp_path, {"a": network("audio_projection_layer"), "b": network("apm")})
    (tmp_path / "b").unlink()
    assert len(load_tensors(tmp_path, CONFIG, PROJECTOR)) == 4
    with pytest.raises(CheckpointUnreadable, match="can not be read") as caught:
        load_tensors(tmp_path, CONFIG, ("apm",))
    assert caught.value.file == tmp_path / "b"


def test_all_that_does_not_fit_is_in_one_error(tmp_path: Path) -> None:
    tensors = network("audio_projection_layer")
    tensors["audio_projection_layer.linear3.weight"] = tensors.pop(LINEAR1)
    tensors[LINEAR2] = tensors[LINEAR2][:64].clone()
    error = mismatch(write(tmp_path, tensors))
    assert error.missing == (LINEAR1,)
    assert error.surplus == ("audio_projection_layer.linear3.weight",)
    assert error.odd == (f"{LINEAR2} [64, 128] instead of [128, 128]",)
    for part in (*error.missing, *error.surplus, *error.odd, str(tmp_path)):
        assert part in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_only_the_first_of_many_names_are_said(tmp_path: Path) -> None:
    write(tmp_path, network("audio_projection_layer"))
    with pytest.raises(TensorsMismatch) as caught:
        load_tensors(tmp_path, CONFIG, ("apm",))
    assert len(caught.value.missing) == 37
    assert "missing (37): apm.conv1.bias, " in str(caught.value)
    assert str(caught.value).endswith(", …")
    assert "not known" not in str(caught.value)


def test_whole_numbers_are_no_weights(tmp_path: Path) -> None:
    tensors = network("audio_projection_layer")
    tensors[LINEAR1] = tensors[LINEAR1].to(torch.int32)
    (odd,) = mismatch(write(tmp_path, tensors)).odd
    assert odd.startswith(f"{LINEAR1} of I32")


@pytest.mark.parametrize("has_unread", [True, False])
def test_the_talkers_unread_table_may_be_there(tmp_path: Path, has_unread: bool) -> None:
    small = replace(CONFIG, tts=replace(CONFIG.tts, num_text_tokens=16))
    tensors = network("tts")
    tensors["tts.emb_text.weight"] = tensors["tts.emb_text.weight"][:16].clone()
    if not has_unread:
        del tensors["tts.model.embed_tokens.weight"]
    loaded = load_tensors(write(tmp_path, tensors), small, ("tts",))
    assert "tts.model.embed_tokens.weight" not in loaded
    assert len(loaded) == 31


@pytest.mark.parametrize("kept_bytes", [0, 5, 100, 60_000])
def test_a_file_that_was_cut_short_is_named(tmp_path: Path, kept_bytes: int) -> None:
    file = write(tmp_path, network("audio_projection_layer")) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept_bytes])
    with pytest.raises(CheckpointUnreadable, match="damaged, or cut short") as caught:
        load_tensors(tmp_path, CONFIG, PROJECTOR)
    assert caught.value.file == file


def test_another_kind_of_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(CheckpointUnreadable, match="damaged"):
        load_tensors(tmp_path, CONFIG, PROJECTOR)


def test_a_folder_without_weights_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match=r"no model\.safetensors\.index\.json"):
        load_tensors(tmp_path, CONFIG, PROJECTOR)


def test_a_shard_that_lacks_what_the_index_promises_is_named(tmp_path: Path) -> None:
    write(tmp_path, network("apm"), "a")
    write_index(tmp_path, {"weight_map": {LINEAR1: "a"}})
    with pytest.raises(CheckpointUnreadable, match=f"lacks {LINEAR1}") as caught:
        load_tensors(tmp_path, CONFIG, PROJECTOR)
    assert caught.value.file == tmp_path / "a"


@pytest.mark.parametrize(
    "index",
    [{}, {"weight_map": []}, {"weight_map": {LINEAR1: 1}}, {"weight_map": {LINEAR1: "../a"}}, []],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, index: object) -> None:
    with pytest.raises(CheckpointUnreadable) as caught:
        load_tensors(write_index(tmp_path, index), CONFIG, PROJECTOR)
    assert caught.value.file == tmp_path / "model.safetensors.index.json"
