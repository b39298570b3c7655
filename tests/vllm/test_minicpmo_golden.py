"""MiniCPM-o's language model in the real engine against the recorded vectors."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from stages.engine.values import Embeddings, Ids, Piece, Pieces
from stages.minicpmo.policy import PUBLISHED
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.unit_decoder import NOTHING_SAID, PUBLISHED_RULES
from tests.stages.minicpmo.vectors import FOLDER, TOKENS, ids_of, load
from tests.support.minicpmo_engine import TABLES, MiniCPMOEngine

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

LLM = np.load(FOLDER / "llm.npz")
FREE = load("free_run.json")
SOUND = torch.from_numpy(np.load(FOLDER / "audio_encoder.npz")["embeddings"])
CONTEXT = ids_of(load("context.json")["no_ref_audio"]["context"])
ONE_LOOK = PolicyRequest(
    request_id="",
    seed=None,
    must_listen=False,
    speech=NOTHING_SAID,
    settings=PUBLISHED,
    rules=replace(PUBLISHED_RULES, max_steps=1, listens_at_first=0),
)
"""Ends the unit at its first step, whatever the logits are."""


def taught_pieces() -> Iterator[Pieces]:
    """Cut what is fed in the recorded conversation behind each position that was recorded."""
    rows = iter(SOUND.flatten(0, 1))
    start = 0
    for position in LLM["position"].tolist():
        pieces: list[Piece] = []
        for token in LLM["input_ids"][start : position + 1].tolist():
            if token >= 0:
                pieces.append(Ids((token,)))
            else:
                pieces.append(Embeddings("audio", next(rows)[None]))
        yield tuple(pieces)
        start = position + 1


async def test_hidden_rows_and_logits_of_the_recorded_conversation(
    minicpmo: MiniCPMOEngine,
) -> None:
    await minicpmo.engine.open("taught")
    columns = LLM["logit_columns"].tolist()
    for at, pieces in enumerate(taught_pieces()):
        request = replace(ONE_LOOK, request_id=f"taught.{at}")
        done, record = await minicpmo.unit("taught", pieces, request)
        assert done.token_ids == (TOKENS.chunk_eos,)
        ((logits, best, mass),) = await minicpmo.engine.call_worker("last_logits", columns)
        np.testing.assert_allclose(record.rows[0], LLM["hidden"][at], atol=1e-4, rtol=0)
        np.testing.assert_allclose(logits[0], LLM["logits"][at], atol=1e-4, rtol=0)
        assert best == [LLM["argmax_id"][at]]
        assert mass[0] == pytest.approx(LLM["logsumexp"][at], abs=1e-4)
    await minicpmo.engine.close("taught")
    await minicpmo.engine.call_worker("tap_forget", [f"taught.{at}"])
    sizes = await minicpmo.sizes()
    assert [sizes[table] for table in TABLES] == [0, 0, 0]


async def test_free_run(minicpmo: MiniCPMOEngine) -> None:
    await minicpmo.engine.open("free")
    recorded = FREE["settings"]
    rules = replace(PUBLISHED_RULES, listens_at_first=recorded["force_listen_count"])
    speech, closing = NOTHING_SAID, CONTEXT
    for case in FREE["units"]:
        request = PolicyRequest(
            request_id=f"free.{case['unit']}",
            seed=None,
            must_listen=case["unit"] in recorded["force_listen_units"],
            speech=speech,
            settings=PUBLISHED,
            rules=rules,
        )
        pieces = (Ids((*closing, TOKENS.unit)), Embeddings("audio", SOUND[case["unit"]]))
        done, record = await minicpmo.unit("free", pieces, request)
        ended, closing = record.ended, (record.ended.terminator, TOKENS.unit_end)
        assert [*ended.fed, *closing] == case["emitted"]
        assert done.token_ids == (*ended.fed, ended.terminator)
        assert [one.token for one in record.decisions] == [
            decision["token"] for decision in case["decisions"]
        ]
        assert (ended.text, ended.is_listen) == (case["text"], case["is_listen"])
        assert list(ended.condition) == case["condition_token_ids"]
        assert record.hidden.shape == (len(ended.fed), 128)
        speech = ended.speech
    await minicpmo.engine.close("free")
    assert speech.units == 30
    await minicpmo.engine.call_worker("tap_forget", [f"free.{case['unit']}"])
