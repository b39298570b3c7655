"""The checkpoint's tokenizer, read from the files that are published with it.

1. `tokenizer.json` is taken if it is there; else the same tokenizer is built from `vocab.json`,
   `merges.txt` and the added tokens, which is how MiniCPM-o 4.5 is published.
2. A special token is what the files flag as special, and each that our template needs. Without the
   latter the tokenizer is refused.
3. A text becomes tokens without a template: special tokens are known by their spelling, and nothing
   is put in front or behind.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from stages.minicpmo.checkpoint_files import CheckpointUnreadable, read_object, read_text
from stages.minicpmo.special_tokens import NAMES, SpecialTokens, resolve_special_tokens

Tokens = tuple[int, ...]

WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen's tokenizers cut a text before pieces are merged; vocab and merges do not say it."""


class Tokenizer:
    """Text to tokens and back. Any number of threads may use it at once."""

    def __init__(self, folder: Path) -> None:
        """Read the folder's files; raise CheckpointUnreadable or SpecialTokensMissing."""
        settings = _optional_object(folder / "tokenizer_config.json")
        added = _added_tokens(folder, settings)
        self._tokenizer = _base(folder)
        _add(self._tokenizer, added, folder)
        known = self._tokenizer.get_added_tokens_decoder()
        self.specials: SpecialTokens = resolve_special_tokens(
            {token.content: number for number, token in known.items()}
        )
        required = frozenset(NAMES.values())
        special = {
            number: token.content
            for number, token in known.items()
            if token.special or token.content in required
        }
        self.special_ids: frozenset[int] = frozenset(special)
        self.special_texts: frozenset[str] = frozenset(special.values())
        self.size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        """Tokens in all; the model's vocabulary may be padded beyond it."""
        self.forbidden_ids: frozenset[int] = _forbidden(folder, settings, self.size)
        """Tokens that the published settings never let the model speak."""

    def encode(self, text: str) -> Tokens:
        """Return the text's tokens; half of a surrogate pair is read as U+FFFD."""
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return tuple(self._tokenizer.encode(whole, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text without special tokens; bytes that are not UTF-8 become U+FFFD.

        Tokens that the tokenizer lacks, which a padded vocabulary has, have no text.
        """
        spoken = [token for token in tokens if token not in self.special_ids]
        text: str = self._tokenizer.decode(spoken, skip_special_tokens=False)
        return text


def build_tokenizer(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]]
) -> tokenizers.Tokenizer:
    """Return Qwen's byte-level tokenizer with these pieces and no added tokens.

    ValueError if a merge names a piece that the vocabulary lacks.
    """
    try:
        model = models.BPE(vocab=dict(vocabulary), merges=list(merges))
    # The library raises Exception itself; there is nothing narrower to catch.
    except Exception as error:
        raise ValueError(str(error)) from error
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def added_token(text: str, *, special: bool) -> AddedToken:
    """Return a token that is found by its exact spelling, before a text is normalised."""
    return AddedToken(text, special=special, normalized=False)


def _base(folder: Path) -> tokenizers.Tokenizer:
    whole = folder / "tokenizer.json"
    if not whole.exists():
        return _from_pieces(folder)
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(whole))
    # The library raises Exception itself; there is nothing narrower to catch.
    except Exception as error:
        raise CheckpointUnreadable(whole, str(error)) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _from_pieces(folder: Path) -> tokenizers.Tokenizer:
    file = folder / "vocab.json"
    vocabulary = read_object(file)
    if not all(type(number) is int for number in vocabulary.values()):
        raise CheckpointUnreadable(file, "a piece's id is not a number")
    merges_file = folder / "merges.txt"
    lines = read_text(merges_file).split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    wrong = next((pair for pair in pairs if len(pair) != 2), None)
    if wrong is not None:
        raise CheckpointUnreadable(merges_file, f"{' '.join(wrong)!r} is not a pair of pieces")
    try:
        return build_tokenizer(vocabulary, [(pair[0], pair[1]) for pair in pairs])
    except ValueError as error:
        raise CheckpointUnreadable(merges_file, str(error)) from error


def _added_tokens(folder: Path, settings: Mapping[str, Any]) -> Mapping[int, AddedToken]:
    """Return what the files add to the pieces, in the order of the ids."""
    file = folder / "added_tokens.json"
    added: dict[int, AddedToken] = {}
    for text, number in _optional_object(file).items():
        if type(number) is not int:
            raise CheckpointUnreadable(file, f"{text}: {number!r} is not an id")
        added[number] = added_token(text, special=True)
    # Only these say which of them are special, so they win.
    flagged = settings.get("added_tokens_decoder", {})
    try:
        for number, entry in flagged.items():
            special = bool(entry.get("special", True))
            added[int(number)] = added_token(entry["content"], special=special)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointUnreadable(
            folder / "tokenizer_config.json",
            f"added_tokens_decoder: not an object of ids and tokens: {error!r}",
        ) from error
    return dict(sorted(added.items()))


def _add(tokenizer: tokenizers.Tokenizer, added: Mapping[int, AddedToken], folder: Path) -> None:
    """Add what is not there; each has to get the id that the files give it."""
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokenizer.add_tokens([token for token in added.values() if token.content not in known])
    for number, token in added.items():
        if (got := tokenizer.token_to_id(token.content)) != number:
            raise CheckpointUnreadable(
                folder / "added_tokens.json",
                f"{token.content} is listed as {number}, but the pieces before it make it {got}",
            )


def _forbidden(folder: Path, settings: Mapping[str, Any], size: int) -> frozenset[int]:
    listed = settings.get("bad_token_ids", [])
    if not isinstance(listed, list) or not all(
        type(one) is int and 0 <= one < size for one in listed
    ):
        raise CheckpointUnreadable(
            folder / "tokenizer_config.json", f"bad_token_ids: not a list of ids below {size}"
        )
    return frozenset(listed)


def _optional_object(file: Path) -> Mapping[str, Any]:
    return read_object(file) if file.exists() else MappingProxyType({})
