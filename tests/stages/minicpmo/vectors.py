"""Reads the recorded vectors, and stands in for the tokenizer with the texts that they list."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stages.minicpmo.policy import PUBLISHED, DecodeSettings, DecodeVocabulary, Row
from stages.minicpmo.special_tokens import SpecialTokens, resolve_special_tokens
from stages.minicpmo.unit_decoder import DecodeText, Tokens

FOLDER: Final = Path(__file__).parents[2] / "data" / "minicpmo"


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def arrays(name: str) -> dict[str, npt.NDArray[Any]]:
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


def table() -> dict[str, int]:
    """Return the tokenizer's special tokens: spelling to id."""
    context = load("context.json")
    ids = context["special_token_ids"]
    return {text: ids[name] for name, text in context["special_token_text"].items()}


TOKENS: Final[SpecialTokens] = resolve_special_tokens(table())
SPECIAL_IDS: Final = frozenset(table().values())
VOCABULARY_SIZE: Final = 151_748


def vocabulary() -> DecodeVocabulary:
    forbidden = np.load(FOLDER / "policy_bad_token_ids.npz")["bad_token_ids"]
    return DecodeVocabulary.build(TOKENS, forbidden.tolist())


def sparse_row(logits: Mapping[str, float], base: float) -> Row:
    row = np.full(VOCABULARY_SIZE, base, np.float32)
    for token, logit in logits.items():
        row[int(token)] = logit
    return row


def settings(params: Mapping[str, Any]) -> DecodeSettings:
    """Return the published settings with a case's own in their place."""
    known = {
        "temperature": PUBLISHED.temperature,
        "top_k": PUBLISHED.top_k,
        "top_p": PUBLISHED.top_p,
        "text_repetition_penalty": PUBLISHED.repetition_penalty,
        "text_repetition_window_size": PUBLISHED.repetition_window,
        "length_penalty": PUBLISHED.turn_eos_penalty,
        "listen_prob_scale": PUBLISHED.im_end_scale,
        "listen_top_k": PUBLISHED.im_end_top_k,
    }
    unknown = params.keys() - known.keys() - {"max_new_speak_tokens_per_chunk"}
    assert not unknown
    return DecodeSettings(*(params.get(name, value) for name, value in known.items()))


def decode_text_of(token_text: Mapping[str, str]) -> DecodeText:
    """Return a tokenizer's text function that knows the listed tokens."""

    def decode_text(ids: Tokens) -> str:
        return "".join(token_text[str(one)] for one in ids if one not in SPECIAL_IDS)

    return decode_text


def ids_of(pieces: Sequence[Mapping[str, Any]]) -> Tokens:
    return tuple(one for piece in pieces for one in piece["ids"])
