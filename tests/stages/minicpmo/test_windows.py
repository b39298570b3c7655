"""What windows keep: the recorded conversation in three modes, and the guard."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.minicpmo.layout import RowCounts, unit_length
from stages.minicpmo.policy import Decision
from stages.minicpmo.unit_decoder import (
    NOTHING_SAID,
    PUBLISHED_RULES,
    Ended,
    Tokens,
    UnitRules,
    advance,
    start_unit,
)
from stages.minicpmo.windows import (
    BasicWindow,
    ClosedUnit,
    ContextWindow,
    EndSession,
    Memory,
    Proceed,
    RollOver,
    Window,
    WindowOff,
    closed,
    guard,
    plan_window,
    with_own_slack,
)
from tests.stages.minicpmo.vectors import SPECIAL_IDS, TOKENS, load

RECORDED = load("window.json")
COUNTS = RowCounts.from_config(audio_pool_step=5, query_num=64)
MARKER = tuple(RECORDED["marker_ids"])
CONTEXT_LENGTH = len(RECORDED["context_prefix_ids"]) + len(RECORDED["context_suffix_ids"])
MODES: dict[str, tuple[Window, list[dict[str, Any]]]] = {
    "off": (WindowOff(), RECORDED["off"]),
    "basic": (
        BasicWindow(high=RECORDED["basic"]["high"], low=RECORDED["basic"]["low"]),
        RECORDED["basic"]["steps"],
    ),
    "context": (
        ContextWindow(
            max_units=RECORDED["context"]["max_units"],
            max_carried=RECORDED["context"]["previous_max_tokens"],
            marker=MARKER,
        ),
        RECORDED["context"]["steps"],
    ),
}


def scripted_units() -> Iterator[Ended]:
    """Run the recorded script through the unit's rules."""
    rules = UnitRules(20, 28, listens_at_first=0, history_window=512)
    speech = NOTHING_SAID
    for script in RECORDED["script"]:
        left = iter(script)
        unit = start_unit(speech, TOKENS, rules, must_listen=False)
        while True:
            step = advance(
                unit,
                partial(_next_of, left),
                tokens=TOKENS,
                rules=rules,
                decode_text=_no_words,
            )
            if isinstance(step, Ended):
                break
            unit = step.unit
        speech = step.speech
        yield step


def _next_of(left: Iterator[int], _: Tokens) -> Decision:
    return Decision(next(left), joins_history=True)


def _no_words(_: Tokens) -> str:
    return ""


@pytest.mark.parametrize("mode", MODES)
def test_recorded_conversation(mode: str) -> None:
    window, (start, *steps) = MODES[mode]
    memory = Memory(CONTEXT_LENGTH, carried=(), units=())
    assert memory.length == start["kv_length"]
    for ended, step in zip(scripted_units(), steps, strict=True):
        length = unit_length(COUNTS, frames=0, fed=len(ended.fed))
        assert memory.length + length - 2 == step["kv_length_after_generate"]
        before = closed(memory, ClosedUnit(step["unit"], length, said=ended.condition))
        plan = plan_window(before, window, SPECIAL_IDS)
        memory = plan.memory
        assert memory.length == step["kv_length"]
        assert [unit.number for unit in memory.units] == step["units_kept"]
        assert [unit.length for unit in memory.units] == step["unit_lengths"]
        assert list(memory.carried) == step["previous_ids"]
        assert plan.is_rebuild is (memory != before)
        assert plan.dropped + memory.units == before.units


def test_a_basic_window_may_be_full_to_the_brim() -> None:
    memory = a_memory([100] * 5)
    assert memory.length == 530
    at_high = plan_window(memory, BasicWindow(high=530, low=330), SPECIAL_IDS)
    assert not at_high.is_rebuild
    above = plan_window(memory, BasicWindow(high=529, low=330), SPECIAL_IDS)
    assert above.memory.length == 330


def test_the_newest_unit_always_stays() -> None:
    memory = a_memory([100, 100])
    plan = plan_window(memory, BasicWindow(high=20, low=10), SPECIAL_IDS)
    assert plan.memory.units == memory.units[1:]
    context = ContextWindow(max_units=1, max_carried=0, marker=MARKER)
    for window in (BasicWindow(high=20, low=10), context):
        assert guard(memory, window, SPECIAL_IDS, needed=10, max_model_len=139) == EndSession(
            most=240, limit=139
        )
        assert isinstance(
            guard(memory, window, SPECIAL_IDS, needed=10, max_model_len=140), RollOver
        )


lengths = st.lists(st.integers(13, 110), max_size=40)


def a_memory(sizes: list[int], carried: Tokens = ()) -> Memory:
    """Return a memory whose every other unit listened; the others said their own number."""
    units = (
        ClosedUnit(number, size, said=(number, TOKENS.turn_eos) if number % 2 else ())
        for number, size in enumerate(sizes)
    )
    return Memory(context_length=30, carried=carried, units=tuple(units))


@given(lengths, st.integers(1, 2000), st.integers(0, 2000))
def test_a_basic_window_drops_no_more_than_it_must(sizes: list[int], low: int, more: int) -> None:
    memory = a_memory(sizes)
    plan = plan_window(memory, BasicWindow(high=low + more, low=low), SPECIAL_IDS)
    assert plan.dropped + plan.memory.units == memory.units
    assert plan.memory.length + sum(unit.length for unit in plan.dropped) == memory.length
    if memory.length <= low + more:
        assert plan.memory == memory
    else:
        assert plan.memory.length <= low or len(plan.memory.units) <= 1
    if plan.dropped:
        assert plan.memory.length + plan.dropped[-1].length > low


@given(lengths, st.integers(1, 30), st.integers(0, 10))
def test_a_context_window_carries_the_newest_words(sizes: list[int], most: int, words: int) -> None:
    window = ContextWindow(max_units=most, max_carried=words, marker=MARKER)
    at_once = plan_window(a_memory(sizes), window, SPECIAL_IDS)
    gone = max(0, len(sizes) - most)
    said = [number for number in range(gone) if number % 2]
    kept = said[max(0, len(said) - words) :]
    assert at_once.memory.carried == ((*MARKER, *kept) if kept else ())
    assert len(at_once.dropped) == gone
    assert len(at_once.memory.units) <= most
    # One unit after the other gives the same.
    memory = a_memory([])
    for unit in a_memory(sizes).units:
        memory = plan_window(closed(memory, unit), window, SPECIAL_IDS).memory
    assert memory == at_once.memory


windows = st.one_of(
    st.just(WindowOff()),
    st.builds(lambda low: BasicWindow(high=low + 50, low=low), st.integers(1, 3000)),
    st.builds(
        lambda units, words: ContextWindow(max_units=units, max_carried=words, marker=MARKER),
        st.integers(1, 40),
        st.integers(0, 20),
    ),
)


@given(lengths, windows, st.integers(1, 300), st.integers(50, 3000))
def test_the_guard_never_lets_the_engine_pass_its_end(
    sizes: list[int], window: Window, needed: int, limit: int
) -> None:
    memory = a_memory(sizes)
    verdict = guard(memory, window, SPECIAL_IDS, needed=needed, max_model_len=limit)
    match verdict:
        case Proceed():
            assert memory.length + needed <= limit
        case RollOver(plan=plan):
            assert memory.length + needed > limit
            assert plan.memory.length + needed <= limit
            assert plan.is_rebuild
            assert plan.dropped + plan.memory.units == memory.units
        case EndSession(most=most):
            assert most == memory.length + needed > limit
            newest = sum(unit.length for unit in memory.units[-1:])
            could_fit = memory.context_length + newest + needed + 4 + 20 <= limit
            assert isinstance(window, WindowOff) or not could_fit


def test_the_guard_counts_a_unit_that_takes_every_step() -> None:
    needed = unit_length(COUNTS, frames=1, fed=PUBLISHED_RULES.max_steps - 1)
    # <unit>, a frame, audio, 19 tokens fed, and the closing.
    assert needed == 1 + 66 + 10 + 19 + 2
    memory = a_memory([13] * 10)
    room = memory.length + needed
    off = partial(guard, memory, WindowOff(), SPECIAL_IDS, needed=needed)
    assert off(max_model_len=room) == Proceed()
    assert off(max_model_len=room - 1) == EndSession(most=room, limit=room - 1)


def test_the_guard_drops_by_the_windows_own_rule() -> None:
    memory = a_memory([100] * 10)
    basic = guard(
        memory, BasicWindow(high=5000, low=400), SPECIAL_IDS, needed=50, max_model_len=1000
    )
    assert isinstance(basic, RollOver)
    assert basic.plan.memory.length == 330
    context = ContextWindow(max_units=24, max_carried=500, marker=MARKER)
    carrying = guard(memory, context, SPECIAL_IDS, needed=50, max_model_len=900)
    assert isinstance(carrying, RollOver)
    assert len(carrying.plan.dropped) == 2
    assert carrying.plan.memory.carried == (*MARKER, 1)


@pytest.mark.parametrize(("high", "low"), [(5, 6), (5, 0)])
def test_a_window_without_a_meaning_is_refused(high: int, low: int) -> None:
    with pytest.raises(ValueError, match="basic window"):
        BasicWindow(high=high, low=low)
    with pytest.raises(ValueError, match="at least a unit"):
        ContextWindow(max_units=low - low, max_carried=high, marker=())


def test_with_slack_units_go_many_at_once_and_seldom() -> None:
    window = ContextWindow(max_units=3, max_carried=50, marker=MARKER, slack=2)
    memory = Memory(context_length=CONTEXT_LENGTH, carried=(), units=())
    kept = []
    for number in range(12):
        memory = closed(memory, ClosedUnit(number, length=20, said=(1000 + number,)))
        memory = plan_window(memory, window, SPECIAL_IDS).memory
        kept.append(len(memory.units))
    assert kept == [1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3]
    assert memory.carried == (*MARKER, *range(1000, 1009))


def test_where_units_are_not_enough_carried_words_go_too() -> None:
    window = ContextWindow(max_units=3, max_carried=50, marker=MARKER)
    carried = (*MARKER, *range(1000, 1040))
    memory = Memory(CONTEXT_LENGTH, carried, (ClosedUnit(0, length=20, said=()),))
    limit = memory.length + 10
    verdict = guard(memory, window, SPECIAL_IDS, needed=30, max_model_len=limit)
    assert isinstance(verdict, RollOver)
    assert verdict.plan.memory.carried == (*MARKER, *range(1020, 1040))
    assert verdict.plan.memory.length + 30 == limit
    nothing_left = guard(memory, window, SPECIAL_IDS, needed=500, max_model_len=limit)
    assert isinstance(nothing_left, EndSession)


def test_sessions_that_began_together_do_not_slide_together() -> None:
    window = ContextWindow(max_units=3, max_carried=50, marker=MARKER, slack=24)
    slacks = {
        own.slack
        for number in range(200)
        if isinstance(own := with_own_slack(window, f"sess_{number}"), ContextWindow)
    }
    assert slacks == set(range(12, 25))
    assert with_own_slack(window, "a") == with_own_slack(window, "a")


@pytest.mark.parametrize(
    "window", [WindowOff(), BasicWindow(20, 10), ContextWindow(3, 50, marker=MARKER)]
)
def test_a_window_without_slack_is_the_same_for_all(window: Window) -> None:
    assert with_own_slack(window, "sess_a") == window
