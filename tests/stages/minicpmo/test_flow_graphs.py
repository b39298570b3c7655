"""Recorded walks against those that are computed as they come."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Final

import pytest
import torch

from stages.minicpmo.flow import Flow, FlowCall, FlowMel
from stages.minicpmo.flow_graphs import GraphShape, graph_bytes
from stages.minicpmo.flow_sizes import PUBLISHED, flow_state_bytes
from stages.minicpmo.flow_state import FlowState
from tests.stages.minicpmo.graph_rerun import Reruns
from tests.stages.minicpmo.voice_weights import (
    STREAMS,
    begin,
    far,
    flow,
    new_flow,
    prompt,
    recorded,
    turn_calls,
)

pytestmark = pytest.mark.models

RECORDED: Final = 1e-4
SAME: Final = 1e-5
VOICE_FRAMES: Final = 80


def graphed(
    *, voice_frames: int = VOICE_FRAMES, batch: int = 4, steps: int = 5
) -> tuple[Flow, Reruns]:
    network, reruns = new_flow(steps), Reruns()
    network.capture(reruns, voice_frames, batch)
    return network, reruns


@cache
def ages() -> Sequence[FlowCall]:
    """Return calls of turns that remember 80 (the voice), 130, 24 and 180 frames."""
    network = flow()
    calls = turn_calls(31)
    old = [FlowCall(calls[0].codes, *begin(network, prompt(31)))]
    for call in calls[1:3]:
        old.append(FlowCall(call.codes, old[-1].speaker, one(network, old[-1]).state))
    short = FlowCall(calls[3].codes, *begin(network, prompt(32, codes=12)))
    made = [old[0], old[1], short, old[2]]
    assert [call.state.frames for call in made] == [80, 130, 24, 180]
    return made


def one(network: Flow, call: FlowCall, *, is_last: bool = False) -> FlowMel:
    (made,) = network.run([call], is_last=is_last)
    assert made is not None
    return made


def tensors_in(state: FlowState) -> list[torch.Tensor]:
    values = [getattr(state, field.name) for field in fields(state)]
    return [value for value in values if isinstance(value, torch.Tensor)]


def assert_same(made: FlowMel | None, wanted: FlowMel | None) -> None:
    assert made is not None
    assert wanted is not None
    assert far(made.mel, wanted.mel) < SAME
    for got, right in zip(tensors_in(made.state), tensors_in(wanted.state), strict=True):
        # Some of them are far from 1.
        assert far(got, right) < SAME * max(1.0, float(right.abs().max()))


def spoil(network: Flow, batch: int) -> None:
    """Leave nothing but NaN in the memory that graphs read."""
    longest = ages()[3]
    nan = longest.state.attention + torch.nan, longest.state.convolutions + torch.nan
    state = replace(longest.state, attention=nan[0], convolutions=nan[1])
    ill = FlowCall(longest.codes, longest.speaker + torch.nan, state)
    assert network.run([ill] * batch, is_last=False) == [None] * batch


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_through_graphs_is_the_one_recorded(name: str) -> None:
    voice, steps = STREAMS[name]
    network, reruns = graphed(steps=steps, batch=1)
    speaker, state = begin(network, prompt(voice))
    for number, call in enumerate(turn_calls(voice)):
        made = one(network, FlowCall(call.codes, speaker, state), is_last=call.is_last)
        assert far(made.mel, recorded()[f"{name}_mel_{number}"]) < RECORDED
        state = made.state
    assert reruns.played == [1] * 5


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_turns_of_all_ages_and_voices_are_as_without_graphs(batch: int) -> None:
    network, reruns = graphed()
    calls = ages()[:batch]
    spoil(network, 4)
    for made, wanted in zip(
        network.run(calls, is_last=False), flow().run(calls, is_last=False), strict=True
    ):
        assert_same(made, wanted)
    assert reruns.played[1:] == [{3: 4}.get(batch, batch)]


@pytest.mark.parametrize(("count", "is_last"), [(10, False), (4, False), (28, True), (1, True)])
def test_calls_of_all_lengths_are_as_without_graphs(count: int, is_last: bool) -> None:
    network, reruns = graphed()
    spoil(network, 4)
    calls = [replace(call, codes=call.codes[:count]) for call in ages()[:3]]
    made = network.run(calls, is_last=is_last)
    for got, wanted in zip(made, flow().run(calls, is_last=is_last), strict=True):
        assert_same(got, wanted)
        assert got is not None
        assert got.mel.shape[1] == 2 * (count - (0 if is_last else 3))
    assert reruns.played == [4, 4]


def test_what_a_call_yields_is_not_changed_by_the_next() -> None:
    network, _ = graphed()
    first = one(network, ages()[1])
    held = [first.mel, *tensors_in(first.state)]
    before = [tensor.clone() for tensor in held]
    for batch in (4, 1):
        network.run(ages()[:batch], is_last=False)
    assert all(torch.equal(old, new) for old, new in zip(before, held, strict=True))
    assert first.state.memory_bytes == flow_state_bytes(network.sizes, 5, torch.float32, 80)


def test_a_turn_that_is_not_finite_fails_alone() -> None:
    network, _ = graphed()
    good = ages()[0]
    bad = replace(good, speaker=good.speaker * torch.nan)
    first, second, third = network.run([good, bad, good], is_last=False)
    assert second is None
    wanted = one(flow(), good)
    assert_same(first, wanted)
    assert_same(third, wanted)


def test_what_no_graph_has_room_for_goes_without() -> None:
    network, reruns = graphed(batch=2)
    assert reruns.sizes == [2, 1]
    # Too many at once; a voice that is too long; a voice's own frames.
    network.run(ages()[:3], is_last=False)
    narrow, narrow_reruns = graphed(voice_frames=24, batch=2)
    made = narrow.run([ages()[3], ages()[2]], is_last=False)
    for got, wanted in zip(made, flow().run([ages()[3], ages()[2]], is_last=False), strict=True):
        assert_same(got, wanted)
    begin(network, prompt(31))
    assert reruns.played == narrow_reruns.played == []
    one(narrow, ages()[2])
    assert narrow_reruns.played == [1]


@pytest.mark.parametrize(
    ("batch", "batches"),
    [(1, (1,)), (3, (1, 2, 3)), (16, (1, 2, 4, 8, 16)), (64, (1, 2, 4, 8, 16))],
)
def test_there_are_graphs_for_few_sizes_of_batches(batch: int, batches: tuple[int, ...]) -> None:
    shape = GraphShape.of(300, batch, PUBLISHED)
    assert shape.batches == batches
    assert shape.past >= 400
    assert (shape.frames + shape.past) % 8 == 0


def test_the_memory_of_graphs_is_counted() -> None:
    """Read: as much as so many turns remember, but for the conformer's share. Made: as new rows."""
    one_bytes, two_bytes, double = (
        graph_bytes(PUBLISHED, 5, dtype, 300, batch)
        for dtype, batch in ((torch.float16, 1), (torch.float16, 2), (torch.float32, 1))
    )
    turn = flow_state_bytes(PUBLISHED, 5, torch.float16, 300)
    assert turn < two_bytes - one_bytes < 1.5 * turn
    assert turn < double - one_bytes < 1.5 * turn
    assert 0 < 2 * one_bytes - double < turn
