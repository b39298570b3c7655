import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from stages.minicpmo import tiny_checkpoint
from stages.minicpmo.tiny_checkpoint import main, write_tiny_checkpoint
from stages.minicpmo.tiny_tokenizer import (
    BYTE_LETTERS,
    FIRST_SPECIAL,
    SIZE,
    TinyVocabulary,
    byte_level,
    tiny_vocabulary,
)
from stages.minicpmo.weight_rule import Float32, rules
from tests.stages.minicpmo import vectors
from tests.support.tiny_minicpmo import golden_texts

WEIGHTS = "model.safetensors"
SAVE_FILE = "stages.minicpmo.tiny_checkpoint.save_file"


def sums(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.fixture(name="few_weights")
def a_checkpoint_of_few_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave most out: what happens to files does not depend on what they hold."""
    one = {"apm.conv1.bias": rules("model")["apm.conv1.bias"]}
    monkeypatch.setattr("stages.minicpmo.weight_rule.rules", lambda _: one)


@pytest.fixture(name="small")
def a_checkpoint_of_few_weights_and_words(
    few_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few_words(texts: Mapping[int, str]) -> TinyVocabulary:
        pieces = {letter: number for number, letter in enumerate(BYTE_LETTERS.values())}
        pieces |= {text: number for number, text in texts.items()}
        return TinyVocabulary(pieces, (), {400: "<unit>"})

    monkeypatch.setattr(tiny_checkpoint, "tiny_vocabulary", few_words)


def test_it_has_the_published_files(tiny_folder: Path) -> None:
    assert {file.name for file in tiny_folder.iterdir()} == {
        "config.json",
        "model.safetensors",
        "vocab.json",
        "merges.txt",
        "added_tokens.json",
        "special_tokens_map.json",
        "tokenizer_config.json",
        "tokenizer.json",
        "tiny_checkpoint.json",
    }
    assert json.loads((tiny_folder / "config.json").read_text())["model_type"] == "minicpmo"


@pytest.mark.usefixtures("few_weights")
def test_equal_arguments_give_equal_bytes(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path / "a", texts={300: "ah", 301: " oh"})
    write_tiny_checkpoint(tmp_path / "b", texts={301: " oh", 300: "ah"})
    assert sums(tmp_path / "a") == sums(tmp_path / "b")


@pytest.mark.usefixtures("small")
def test_a_complete_folder_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_tiny_checkpoint(folder)
    before = {file.name: file.stat().st_ino for file in folder.iterdir()}
    write_tiny_checkpoint(folder)
    assert {file.name: file.stat().st_ino for file in folder.iterdir()} == before


def cut_the_weights(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, 10)


def lose_a_file(folder: Path) -> None:
    (folder / "merges.txt").unlink()


def lose_the_stamp(folder: Path) -> None:
    (folder / tiny_checkpoint.STAMP).unlink()


def spoil_the_stamp(folder: Path) -> None:
    (folder / tiny_checkpoint.STAMP).write_text("{")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("damage", [cut_the_weights, lose_a_file, lose_the_stamp, spoil_the_stamp])
def test_an_incomplete_folder_is_written_anew(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = tmp_path / "a"
    write_tiny_checkpoint(folder)
    whole = sums(folder)
    damage(folder)
    write_tiny_checkpoint(folder)
    assert sums(folder) == whole
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.usefixtures("small")
def test_other_texts_make_another_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_tiny_checkpoint(folder)
    write_tiny_checkpoint(folder, texts={256: "ah"})
    assert json.loads((folder / "vocab.json").read_text())["ah"] == 256


@pytest.mark.usefixtures("small")
def test_an_empty_folder_is_filled_and_everybody_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "a"
    folder.mkdir(parents=True)
    write_tiny_checkpoint(folder)
    assert {oct(file.stat().st_mode & 0o777) for file in folder.iterdir()} == {"0o644"}
    assert oct(folder.stat().st_mode & 0o777) == "0o755"


@pytest.mark.usefixtures("small")
def test_a_folder_with_foreign_files_is_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"thesis\.txt"):
        write_tiny_checkpoint(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.txt"]


@pytest.mark.usefixtures("small")
def test_a_writer_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(SAVE_FILE, fail)
    with pytest.raises(OSError, match="disk full"):
        write_tiny_checkpoint(tmp_path / "a")
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("small")
def test_the_slower_of_two_writers_is_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    late: list[Path] = []

    def save_late(
        tensors: dict[str, Float32], file: Path, metadata: dict[str, str] | None = None
    ) -> None:
        if not late:
            late.append(file)
            write_tiny_checkpoint(folder)
        save_file(tensors, file, metadata)

    monkeypatch.setattr(SAVE_FILE, save_late)
    write_tiny_checkpoint(folder)
    assert late[0].parent != folder
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.usefixtures("small")
def test_the_command_writes_a_folder_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "a")]) == 0
    assert (tmp_path / "a" / WEIGHTS).exists()
    assert "made-up" in capsys.readouterr().out
    assert main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_every_id_has_a_text_of_its_own() -> None:
    vocabulary = tiny_vocabulary({})
    assert list(vocabulary.pieces.values()) == list(range(FIRST_SPECIAL))
    assert list(vocabulary.specials) == list(range(FIRST_SPECIAL, SIZE))
    assert len(set(vocabulary.specials.values())) == SIZE - FIRST_SPECIAL
    fillers = list(vocabulary.pieces)[1000:1300]
    words = [piece.removeprefix("Ġ") for piece in fillers]
    assert all(piece.isascii() and piece.isalpha() for piece in words)
    assert 150 < sum(piece.startswith("Ġ") for piece in fillers) < 250


def test_the_special_tokens_are_the_published_ones() -> None:
    specials = tiny_vocabulary({}).specials
    assert {text: number for number, text in specials.items()}.items() >= vectors.table().items()


def test_texts_are_given_to_their_ids() -> None:
    texts = golden_texts() | {400: "中", 624: ".\n", 0: "!"}
    pieces = tiny_vocabulary(texts).pieces
    assert all(pieces[byte_level(text)] == number for number, text in texts.items())
    assert len(pieces) == FIRST_SPECIAL


def test_a_text_that_a_filler_would_have_is_given_up_by_it() -> None:
    pieces = list(tiny_vocabulary({}).pieces)
    given = tiny_vocabulary({300: pieces[5000].replace("Ġ", " ")}).pieces
    assert given[pieces[5000]] == 300
    assert given[f"{pieces[5000]}x"] == 5000
    assert len(given) == FIRST_SPECIAL


def test_a_text_that_a_merge_goes_through_keeps_its_id() -> None:
    assert tiny_vocabulary({300: "Str"}).pieces["Str"] == 300


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({151_643: "x"}, "not an ordinary one"),
        ({-1: "x"}, "not an ordinary one"),
        ({300: ""}, "empty"),
        ({5: "x"}, "text of its own"),
        ({8948: "x"}, "text of its own"),
        ({300: "same", 301: "same"}, "text of another"),
        ({300: "system"}, "text of another"),
        ({300: "!"}, "text of another"),
    ],
)
def test_texts_that_do_not_fit_are_refused(texts: dict[int, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tiny_vocabulary(texts)
