"""The decode policy as vLLM's two model runners call it: every scenario, and what can go wrong."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stages.minicpmo.policy import PUBLISHED, Row, decode
from stages.minicpmo.policy_request import EXTRA_ARG, PolicyRequest
from stages.minicpmo.row_decoder import DecodingTools
from stages.minicpmo.unit_decoder import NOTHING_SAID, PUBLISHED_RULES, SpeechState
from stages.minicpmo.unit_record import UnitBroke, UnitRecord
from tests.stages.minicpmo.desk_drivers import (
    DRIVERS,
    Driver,
    DriverV1,
    DriverV2,
    KeptRecords,
    params_of,
)
from tests.stages.minicpmo.vectors import (
    TOKENS,
    decode_text_of,
    load,
    settings,
    sparse_row,
    vocabulary,
)

pytestmark = pytest.mark.models

POLICY = load("policy.json")
VOCABULARY = vocabulary()
TEXTS = defaultdict(str, POLICY["token_text"])
TOOLS = DecodingTools(TOKENS, VOCABULARY, decode_text_of(TEXTS))
RULES = replace(PUBLISHED_RULES, listens_at_first=0)
ASKED = PolicyRequest("unit", None, False, NOTHING_SAID, PUBLISHED, RULES)
SPEAK, THE, QUICK = TOKENS.speak, 279, 3974


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = DRIVERS[request.param](TOOLS, monkeypatch)
    made.desk.sender = KeptRecords()
    return made


def messages(driver: Driver) -> list[UnitRecord | UnitBroke]:
    assert isinstance(driver.desk.sender, KeptRecords)
    return driver.desk.sender.messages


def only_record(driver: Driver) -> UnitRecord:
    (record,) = messages(driver)
    assert isinstance(record, UnitRecord)
    return record


def row(**logits: float) -> Row:
    """Return a row by the names of special tokens, or `t` and a number."""
    ids = {
        str(int(name[1:]) if name[1:].isdigit() else getattr(TOKENS, name)): logit
        for name, logit in logits.items()
    }
    return sparse_row(ids, -8.0)


def run_unit(driver: Driver, place: int, case: Mapping[str, Any]) -> list[int]:
    """Step one unit until it is over; return what the engine has sampled."""
    listed = iter(case["logits"])
    sampled: list[int] = []
    before = len(messages(driver))
    while len(messages(driver)) == before:
        logits = sparse_row(next(listed, {}), POLICY["base_logit"])
        sampled.append(driver.step({place: logits})[place])
    return sampled


@pytest.mark.parametrize("scenario", POLICY["scenarios"], ids=lambda one: one["name"])
def test_recorded_scenario(driver: Driver, scenario: dict[str, Any]) -> None:
    speech = NOTHING_SAID
    for number, case in enumerate(scenario["units"]):
        most = case["params"].get("max_new_speak_tokens_per_chunk", 20)
        request = PolicyRequest(
            request_id=f"unit.{number}",
            seed=None,
            must_listen=case["force_listen"],
            speech=speech,
            settings=settings(case["params"]),
            rules=replace(RULES, listens_at_first=scenario["force_listen_count"], max_steps=most),
        )
        driver.add(0, request)
        sampled = run_unit(driver, 0, case)
        record = messages(driver)[-1]
        assert isinstance(record, UnitRecord)
        ended, expect = record.ended, case["expect"]
        assert sampled == [*ended.fed, ended.terminator]
        assert (list(ended.fed), ended.text) == (expect["fed"], expect["text"])
        assert [ended.terminator, TOKENS.unit_end] == expect["closure"]
        assert list(ended.condition) == expect["condition_token_ids"]
        assert list(ended.speech.history) == expect["penalty_history"]
        assert record.rows[:, 1].tolist() == list(range(len(ended.fed) + 1))
        speech = ended.speech
    assert len(messages(driver)) == len(scenario["units"])
    assert driver.desk.errors == 0


def test_a_row_of_nobodys_is_untouched(driver: Driver) -> None:
    driver.add(0, None)
    driver.add(1, ASKED)
    plain = row(t5=1.0)
    before = plain.copy()
    assert driver.step({0: plain, 1: row(speak=3.0)}) == {0: 5, 1: SPEAK}
    np.testing.assert_array_equal(plain, before)


def test_a_row_that_a_request_without_a_policy_takes_over_is_untouched(driver: Driver) -> None:
    driver.add(0, ASKED)
    driver.step({0: row(speak=3.0)})
    driver.add(0, None)
    assert driver.step({0: row(t5=1.0)}) == {0: 5}
    assert driver.processor.sizes()["policy_rows"] == 0


def test_an_engine_that_runs_ahead_gets_the_terminator_again(driver: Driver) -> None:
    driver.add(0, ASKED)
    tokens = [driver.step({0: row(listen=3.0)})[0] for _ in range(3)]
    assert tokens == [TOKENS.listen] * 3
    assert only_record(driver).ended.fed == ()
    assert driver.desk.sizes()["hidden_rows"] == 0


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("flaw", [np.nan, np.inf])
def test_a_poisoned_row_fails_its_unit_alone(driver: Driver, flaw: float, seed: int | None) -> None:
    driver.add(0, replace(ASKED, request_id="sick", seed=seed))
    driver.add(1, replace(ASKED, request_id="sound"))
    sick = row(speak=3.0)
    sick[100] = flaw
    assert driver.step({0: sick, 1: row(speak=3.0)}) == {0: TOKENS.chunk_eos, 1: SPEAK}
    (broken,) = messages(driver)
    assert isinstance(broken, UnitBroke)
    assert broken.request_id == "sick"
    assert "highest usable logit" in broken.reason
    assert driver.step({0: sick, 1: row(chunk_eos=3.0)}) == {0: TOKENS.chunk_eos, 1: 151718}
    assert [one.request_id for one in messages(driver)] == ["sick", "sound"]


def test_a_tokenizer_that_fails_fails_its_unit_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def decode_text(_: tuple[int, ...]) -> str:
        raise LookupError("no such token")

    for make in DRIVERS.values():
        driver = make(DecodingTools(TOKENS, VOCABULARY, decode_text), monkeypatch)
        driver.desk.sender = KeptRecords()
        driver.add(0, ASKED)
        driver.add(1, replace(ASKED, request_id="other"))
        driver.step({0: row(speak=3.0), 1: row(speak=3.0)})
        driver.step({0: row(t279=3.0), 1: row(chunk_eos=3.0)})
        by_unit = {one.request_id: one for one in messages(driver)}
        assert by_unit["unit"] == UnitBroke("unit", "no such token")
        assert isinstance(by_unit["other"], UnitRecord)


def test_incomplete_input_is_not_decoded(driver: Driver) -> None:
    driver.add(0, ASKED)
    assert driver.step({0: row(listen=3.0)}, partial=[0]) == {}
    assert messages(driver) == []
    assert driver.step({0: row(speak=3.0)}) == {0: SPEAK}
    assert driver.step({0: row(chunk_eos=3.0)}) == {0: TOKENS.chunk_eos}
    assert [one.token for one in only_record(driver).decisions] == [SPEAK, TOKENS.chunk_eos]


def test_a_step_that_is_skipped_fails_the_unit(driver: Driver) -> None:
    driver.add(0, ASKED)
    driver.running[0].sampled.append(SPEAK)
    assert driver.step({0: row(speak=3.0)}) == {0: TOKENS.chunk_eos}
    (broken,) = messages(driver)
    assert isinstance(broken, UnitBroke)
    assert "step 1" in broken.reason


def test_draws_depend_on_the_seed_and_the_step(driver: Driver) -> None:
    flat = np.zeros(len(row()), np.float32)
    flat[TOKENS.chunk_eos] = -50.0
    request = replace(ASKED, seed=11, settings=replace(PUBLISHED, top_k=0, top_p=1.0))
    driver.add(0, request)
    tokens = [driver.step({0: flat})[0] for _ in range(3)]
    history: list[int] = []
    for step in range(3):
        chosen = decode(
            flat,
            history,
            settings=request.settings,
            vocabulary=VOCABULARY,
            draws=request.draws(step),
        )
        history.append(chosen.token)
    assert tokens == history
    assert len(set(tokens)) == 3


def test_a_new_segment_takes_the_place_of_the_last(driver: Driver) -> None:
    for number in range(3 * 8):
        driver.add(0, replace(ASKED, request_id=f"unit.{number}"))
        driver.step({0: row(listen=3.0)})
    assert driver.desk.request_ids == {"unit.23"}
    driver.processor.forget(["unit.23", "unknown"])
    assert set(driver.processor.sizes().values()) == {0}
    assert driver.step({0: row(t5=3.0)}) == {0: 5}


def test_a_forgotten_unit_under_way_leaves_nothing(driver: Driver) -> None:
    driver.add(0, ASKED)
    driver.step({0: row(speak=3.0)})
    assert driver.processor.sizes() == {"units": 1, "hidden_rows": 1, "policy_rows": 1}
    driver.processor.forget(["unit"])
    assert set(driver.processor.sizes().values()) == {0}
    assert messages(driver) == []


def test_what_breaks_in_a_step_breaks_no_engine(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no device")

    driver.add(0, ASKED)
    monkeypatch.setattr(driver.processor, "_look", broken)
    assert driver.step({0: row(speak=3.0)}) == {0: TOKENS.chunk_eos}
    (failed,) = messages(driver)
    assert isinstance(failed, UnitBroke)
    assert "no device" in failed.reason
    assert driver.desk.errors == 1


def test_a_request_that_can_not_be_read_is_refused_at_the_door(driver: Driver) -> None:
    good = params_of(replace(ASKED, speech=SpeechState(1, True, (5, 6))))
    driver.processor.validate_params(good)
    driver.processor.validate_params(params_of(None))
    del good.extra_args[EXTRA_ARG]["settings"]["top_k"]
    with pytest.raises(ValueError, match="top_k"):
        driver.processor.validate_params(good)
    driver.add(0, None)
    driver.processor.forget([])
    assert driver.desk.open({EXTRA_ARG: {"request_id": 3}}) is None
    assert driver.desk.errors == 1


def test_v1_rows_follow_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DriverV1(TOOLS, monkeypatch)
    driver.desk.sender = KeptRecords()
    for place in range(3):
        driver.add(place, replace(ASKED, request_id=f"unit.{place}"))
    says = {0: row(t5=3.0), 1: row(t6=3.0), 2: row(t279=3.0)}
    assert driver.step(says) == {0: 5, 1: 6, 2: 279}
    one_way, swap = processor_moves()
    first, second, third = (driver.running[place] for place in range(3))
    driver.update(moved=[(0, 1, swap)])
    driver.running.update({0: second, 1: first})
    assert driver.step(says) == {0: 5, 1: 6, 2: 279}
    # The first row leaves for a step; the last one takes its place, and then it comes back.
    driver.update(removed=[0], moved=[(2, 0, one_way)])
    driver.running = {0: third, 1: first}
    driver.step({0: row(chunk_eos=3.0), 1: row(chunk_eos=3.0)})
    ended = {
        one.request_id: one.ended.fed for one in messages(driver) if isinstance(one, UnitRecord)
    }
    assert ended == {"unit.2": (279, 279), "unit.0": (5, 6)}
    assert driver.desk.request_ids == {"unit.0", "unit.1", "unit.2"}
    driver.running[2] = second
    driver.update(added=[(2, params_of(second.request), None, second.sampled)])
    driver.step({0: row(), 1: row(), 2: row(chunk_eos=3.0)})
    last = messages(driver)[-1]
    assert isinstance(last, UnitRecord)
    assert (last.request_id, last.ended.fed) == ("unit.1", (6, 5))


def test_v1_drops_a_unit_without_a_row_that_the_engine_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = DriverV1(TOOLS, monkeypatch)
    driver.add(0, ASKED)
    driver.step({0: row(speak=3.0)})
    driver.remove(0)
    assert driver.desk.request_ids == {"unit"}
    driver.processor.alive = lambda: frozenset({"other"})
    driver.add(0, replace(ASKED, request_id="other"))
    assert driver.desk.request_ids == {"other"}


def test_v2_a_unit_that_was_set_aside_comes_back_in_another_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = DriverV2(TOOLS, monkeypatch)
    driver.desk.sender = KeptRecords()
    driver.add(0, ASKED)
    assert driver.step({0: row(speak=3.0)}) == {0: SPEAK}
    # What was sampled is fed again with the prompt.
    back = driver.running.pop(0)
    driver.add(1, ASKED)
    driver.running[1] = replace(back, prompt=11)
    driver.prefill[1] = 12
    assert driver.processor.sizes()["policy_rows"] == 1
    driver.add(0, replace(ASKED, request_id="next"))
    assert driver.step({0: row(speak=3.0), 1: row(chunk_eos=3.0)}) == {0: SPEAK, 1: 151718}
    assert only_record(driver).ended.fed == (SPEAK,)


def processor_moves() -> tuple[Any, Any]:
    from vllm.v1.sample.logits_processor.interface import MoveDirectionality  # noqa: PLC0415

    return MoveDirectionality.UNIDIRECTIONAL, MoveDirectionality.SWAP
