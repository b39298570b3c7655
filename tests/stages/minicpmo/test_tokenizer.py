import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.minicpmo.checkpoint_files import CheckpointUnreadable
from stages.minicpmo.layout import DEFAULT_SYSTEM, Ids, context_pieces, context_text
from stages.minicpmo.special_tokens import SpecialTokensMissing
from stages.minicpmo.tiny_tokenizer import BYTE_LETTERS
from stages.minicpmo.tokenizer import Tokenizer
from tests.stages.minicpmo import vectors
from tests.support.tiny_minicpmo import golden_texts

TOKENIZER_FILES = (
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
)


@pytest.fixture(scope="module", params=["tokenizer.json", "vocab.json"])
def tokenizer(
    request: pytest.FixtureRequest, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    """Return the tokenizer as it is read from either kind of file."""
    if request.param == "tokenizer.json":
        return Tokenizer(tiny_folder)
    folder = tmp_path_factory.mktemp("published")
    for name in TOKENIZER_FILES:
        shutil.copyfile(tiny_folder / name, folder / name)
    return Tokenizer(folder)


def test_the_contexts_have_the_recorded_ids(tokenizer: Tokenizer) -> None:
    recorded = vectors.load("context.json")
    for name in ("no_ref_audio", "ref_audio", "camera_frame_in_unit_1"):
        prefix, *_, suffix = [part["ids"] for part in recorded[name]["context"] if "ids" in part]
        assert tokenizer.encode(recorded[name]["prefix_text"]) == tuple(prefix)
        assert tokenizer.encode(recorded[name]["suffix_text"]) == tuple(suffix)


def test_the_default_instructions_fit_the_recorded_layout(tokenizer: Tokenizer) -> None:
    text = context_text(DEFAULT_SYSTEM, has_reference=True, special_texts=tokenizer.special_texts)
    prefix, _, suffix = context_pieces(text, tokenizer.encode, reference_rows=20)
    recorded = vectors.load("context.json")["default_demo_prompt_ids"]
    assert prefix == Ids(tuple(recorded["prefix"]))
    assert suffix == Ids(tuple(recorded["suffix"]))


def test_the_marker_of_a_window_has_the_recorded_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("\n\nprevious: ") == tuple(vectors.load("window.json")["marker_ids"])


def test_recorded_tokens_have_their_recorded_texts(tokenizer: Tokenizer) -> None:
    assert all(tokenizer.decode([one]) == text for one, text in golden_texts().items())
    for unit in vectors.load("free_run.json")["units"]:
        if not unit["is_listen"]:
            assert tokenizer.decode(unit["emitted"][1:]) == unit["text"]


def test_special_tokens_are_the_recorded_ones(tokenizer: Tokenizer) -> None:
    assert tokenizer.specials == vectors.TOKENS
    assert tokenizer.special_ids >= set(vectors.table().values())
    assert tokenizer.special_texts >= set(vectors.table())
    assert len(tokenizer.special_ids) == len(tokenizer.special_texts) == 105
    assert tokenizer.size == vectors.VOCABULARY_SIZE


def test_the_forbidden_tokens_are_the_recorded_ones(tokenizer: Tokenizer) -> None:
    recorded = np.load(vectors.FOLDER / "policy_bad_token_ids.npz")["bad_token_ids"]
    assert tokenizer.forbidden_ids == frozenset(recorded.tolist())


def test_any_text_comes_back(tokenizer: Tokenizer) -> None:
    for text in ("Grüße, 世界! 👋🏽", "  two  spaces\n\n\tand a tab ", "don't 12345", "", "\x00"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_special_tokens_spelling_becomes_the_token(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a<unit>b")
    assert tokens == (64, 151_683, 65)
    assert tokenizer.decode(tokens) == "ab"


def test_incomplete_utf_8_is_shown_as_the_replacement(tokenizer: Tokenizer) -> None:
    first, second, third = tokenizer.encode("世")
    assert tokenizer.decode([64, first, second]) == "a\ufffd"
    assert tokenizer.decode([64, first, second, third]) == "a世"
    # A special token between two halves of a letter does not part them.
    assert tokenizer.decode([first, 151_705, second, third]) == "世"


def test_tokens_beyond_the_tokenizer_have_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([64, 151_748, 151_900, 65]) == "ab"


def test_half_of_a_surrogate_pair_is_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a\ud83db") == tokenizer.encode("a\ufffdb")
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("😀")


def test_threads_may_share_it(tokenizer: Tokenizer) -> None:
    texts = [f"Streaming Omni Conversation {number}." for number in range(200)]
    with ThreadPoolExecutor(4) as threads:
        tokens = list(threads.map(tokenizer.encode, texts))
        back = list(threads.map(tokenizer.decode, tokens))
    assert back == texts


def write(folder: Path, **changes: Any) -> Path:
    """Write a small tokenizer's published files; a change of None leaves a file out."""
    added = {text: 258 + place for place, text in enumerate([*vectors.table(), "<think>"])}
    vocabulary = {
        piece: number for number, piece in enumerate([*BYTE_LETTERS.values(), "ab", "abc"])
    }
    files: dict[str, Any] = {
        "vocab": vocabulary,
        "merges": "#version: 0.2\na b\nab c\n",
        "added_tokens": added,
        "tokenizer_config": {},
    } | changes
    for name, content in files.items():
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / f"{name}.{'txt' if name == 'merges' else 'json'}").write_text(text)
    return folder


def decoder_entry(folder: Path, text: str, **flags: bool) -> dict[str, Any]:
    number = json.loads((folder / "added_tokens.json").read_text())[text]
    return {str(number): {"content": text, "normalized": False} | flags}


def test_merges_follow_their_order(tmp_path: Path) -> None:
    assert Tokenizer(write(tmp_path)).encode("abcab") == (257, 256)


def test_nothing_is_forbidden_where_nothing_is_listed(tmp_path: Path) -> None:
    assert Tokenizer(write(tmp_path)).forbidden_ids == frozenset()
    assert Tokenizer(write(tmp_path, tokenizer_config=None)).forbidden_ids == frozenset()


def test_a_token_that_is_flagged_as_ordinary_has_a_text(tmp_path: Path) -> None:
    folder = write(tmp_path)
    assert Tokenizer(folder).decode(Tokenizer(folder).encode("a<think>")) == "a"
    write(
        folder,
        tokenizer_config={"added_tokens_decoder": decoder_entry(folder, "<think>", special=False)},
    )
    tokenizer = Tokenizer(folder)
    tokens = tokenizer.encode("a<think>")
    assert len(tokens) == 2
    assert tokenizer.decode(tokens) == "a<think>"
    assert "<think>" not in tokenizer.special_texts


def test_a_token_of_the_template_is_special_whatever_the_files_say(tmp_path: Path) -> None:
    folder = write(tmp_path)
    write(
        folder,
        tokenizer_config={"added_tokens_decoder": decoder_entry(folder, "</unit>", special=False)},
    )
    tokenizer = Tokenizer(folder)
    assert tokenizer.specials.unit_end in tokenizer.special_ids
    assert tokenizer.decode(tokenizer.encode("a</unit>b")) == "ab"


def test_a_tokenizer_without_the_templates_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecialTokensMissing) as caught:
        Tokenizer(write(tmp_path, added_tokens=None))
    assert "<unit>" in caught.value.missing


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("vocab.json", None, "can not be read"),
        ("merges.txt", None, "can not be read"),
        ("vocab.json", "{", "not JSON"),
        ("vocab.json", "[]", "not a JSON object"),
        ("vocab.json", {"a": "1"}, "id is not a number"),
        ("merges.txt", "a b c\n", "'a b c' is not a pair"),
        ("merges.txt", "a q\n", "aq"),
        ("tokenizer_config.json", {"bad_token_ids": 7}, "bad_token_ids"),
        ("tokenizer_config.json", {"bad_token_ids": [True]}, "bad_token_ids"),
        ("tokenizer_config.json", {"bad_token_ids": [99_999]}, "bad_token_ids"),
        ("added_tokens.json", {"<unit>": 300}, "listed as 300"),
        ("added_tokens.json", {"<unit>": "x"}, "not an id"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"1": {}}}, "added_tokens_decoder"),
        ("tokenizer.json", "{}", "tokenizer"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: object, said: str) -> None:
    folder = write(tmp_path, **{name.split(".", maxsplit=1)[0]: content})
    if content is None:
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(CheckpointUnreadable, match=said) as caught:
        Tokenizer(folder)
    assert caught.value.file == folder / name


@pytest.mark.models
def test_transformers_reads_it_without_code_of_its_own(
    tokenizer: Tokenizer, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(tiny_folder)
    assert len(theirs) == tokenizer.size
    text = "<|im_start|>system\nStreaming Omni Conversation.\n<|audio_start|> hello"
    assert tuple(theirs.encode(text)) == tokenizer.encode(text)
    tokens = [300, 151_705, 94, 301]
    assert theirs.decode(tokens, skip_special_tokens=True) == tokenizer.decode(tokens)
