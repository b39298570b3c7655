"""Writes a checkpoint in MiniCPM-o 4.5's published layout that is small and made up.

1. Its weights follow the weight rule and its ids are the published ones, so what the model's
   authors' code computed on it can be compared with; its words are syllables.
2. Equal arguments give equal bytes. A folder is written beside its place and moved there whole; one
   that is complete is left as it is, one that is not is written anew.
3. Nothing else is ever deleted: a folder that holds a foreign file is refused.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from safetensors.numpy import save_file

from stages.minicpmo import tiny_tokenizer, tokenizer, weight_rule
from stages.minicpmo.tiny_tokenizer import TinyVocabulary, tiny_vocabulary

DATA: Final = Path(__file__).parent / "tiny"
"""The sizes, the weight rule's table, and the ids that the published tokenizer forbids."""
STAMP: Final = "tiny_checkpoint.json"

_NO_TEXTS: Final[Mapping[int, str]] = MappingProxyType({})
_FILES: Final = (
    "config.json",
    "model.safetensors",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
    "tokenizer.json",
)


def write_tiny_checkpoint(folder: Path, *, texts: Mapping[int, str] = _NO_TEXTS) -> None:
    """Make the folder a checkpoint of about 220 MB; `texts` replaces what single tokens say.

    FileExistsError if the folder holds files that are not a tiny checkpoint's; ValueError if a text
    does not fit (`tiny_vocabulary`).
    """
    digest = _digest(texts)
    if _is_complete(folder, digest):
        return
    _refuse_foreign(folder)
    vocabulary = tiny_vocabulary(texts)
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write_all(beside, vocabulary, digest)
        _move(beside, folder, digest)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_all(folder: Path, vocabulary: TinyVocabulary, digest: str) -> None:
    shutil.copyfile(DATA / "config.json", folder / "config.json")
    write_tokenizer(folder, vocabulary)
    tensors = {name: weight_rule.make_tensor("model", name) for name in weight_rule.rules("model")}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    sizes = {name: (folder / name).stat().st_size for name in _FILES}
    _write_json(folder / STAMP, {"digest": digest, "sizes_bytes": sizes})
    # Temporary folders and the library's files are made for one user; a checkpoint is for all.
    for file in folder.iterdir():
        file.chmod(0o644)
    folder.chmod(0o755)


def write_tokenizer(folder: Path, vocabulary: TinyVocabulary) -> None:
    """Write the tokenizer's files into a folder."""
    special = {text: number for number, text in vocabulary.specials.items()}
    _write_json(folder / "vocab.json", vocabulary.pieces)
    merges = "".join(f"{left} {right}\n" for left, right in vocabulary.merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
    _write_json(folder / "added_tokens.json", special)
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    _write_json(folder / "special_tokens_map.json", ends)
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(vocabulary) | ends)
    whole = tokenizer.build_tokenizer(vocabulary.pieces, vocabulary.merges)
    whole.add_tokens([tokenizer.added_token(text, special=True) for text in special])
    whole.save(str(folder / "tokenizer.json"))


def _tokenizer_config(vocabulary: TinyVocabulary) -> dict[str, Any]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {
        "added_tokens_decoder": {
            str(number): {"content": text, **flags, "special": True}
            for number, text in vocabulary.specials.items()
        },
        "bad_token_ids": np.load(DATA / "forbidden_ids.npz")["bad_token_ids"].tolist(),
        "clean_up_tokenization_spaces": False,
        "model_max_length": 40_960,
        "tokenizer_class": "Qwen2TokenizerFast",
    }


def _digest(texts: Mapping[int, str]) -> str:
    """Return a sum of all that decides the bytes: data, texts, and the code that writes them."""
    sources = (weight_rule.__file__, tiny_tokenizer.__file__, tokenizer.__file__, __file__)
    data = ("tensors.json", "config.json", "forbidden_ids.npz")
    whole = hashlib.sha256(json.dumps(sorted(texts.items())).encode())
    for file in (*(Path(source) for source in sources), *(DATA / name for name in data)):
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def _is_complete(folder: Path, digest: str) -> bool:
    """Say whether the folder is what would be written: its stamp fits, no file was cut."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in _FILES}
    except (OSError, ValueError):
        return False
    return bool(stamp == {"digest": digest, "sizes_bytes": sizes})


def _refuse_foreign(folder: Path) -> None:
    names: Iterable[str] = os.listdir(folder) if folder.exists() else ()
    foreign = sorted(set(names) - {*_FILES, STAMP})
    if foreign:
        raise FileExistsError(f"{folder} holds {foreign[0]}, which is no tiny checkpoint's: kept")


def _move(beside: Path, folder: Path, digest: str) -> None:
    """Put the new folder in its place. Of several writers at once one wins; all are content."""
    try:
        beside.rename(folder)
    except OSError:
        # The place is not empty: another writer was faster, or a half-written folder lies there.
        if _is_complete(folder, digest):
            return
        shutil.rmtree(folder)
        beside.rename(folder)


def _write_json(file: Path, value: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write a checkpoint to the folder that the command line names; return the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m stages.minicpmo.tiny_checkpoint FOLDER", file=sys.stderr)
        return 2
    write_tiny_checkpoint(Path(arguments[0]))
    print(f"{arguments[0]}: a tiny checkpoint of MiniCPM-o 4.5, made-up weights and words")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
