"""The flow against the recorded vectors, alone, interleaved and in batches."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import pytest
import torch

from stages.minicpmo.flow import Flow, FlowCall, FlowMel, draw_noise, take_flow
from stages.minicpmo.flow_sizes import KEPT_FRAMES, PUBLISHED, flow_state_bytes
from stages.minicpmo.flow_state import FlowState, NewRows, empty_state, successor
from stages.minicpmo.named_tensors import NamedTensors, WrongTensors
from tests.stages.minicpmo.voice_weights import (
    BANDS,
    CPU,
    STREAMS,
    begin,
    far,
    flow,
    flow_turn,
    prompt,
    recorded,
    tensors,
    turn_calls,
)

pytestmark = pytest.mark.models

RECORDED: Final = 1e-4
SAME: Final = 1e-5


def as_published(state: FlowState, new: NewRows) -> list[torch.Tensor]:
    """Return the four caches of the published code after a call: first stack twice, then cut."""
    twice = torch.cat([torch.cat([state.first, new.first], 2)] * 2, 2)
    rows = torch.cat([twice, torch.cat([state.second, new.second], 2)])
    attention = torch.cat([new.attention, state.attention], 4)
    return [
        published_cut(attention, 4, state.voice_frames),
        published_cut(rows, 2, state.voice_frames),
        new.context,
        new.convolutions,
    ]


def published_cut(rows: torch.Tensor, axis: int, head: int) -> torch.Tensor:
    size = rows.shape[axis]
    if size <= head + KEPT_FRAMES:
        return rows
    tail = rows.narrow(axis, size - KEPT_FRAMES, KEPT_FRAMES)
    return torch.cat([rows.narrow(axis, 0, head), tail], axis)


@pytest.mark.parametrize("name", STREAMS)
def test_mel_and_caches_of_a_stream_are_those_recorded(name: str) -> None:
    voice, steps = STREAMS[name]
    network, calls = flow(steps), turn_calls(voice)
    speaker, state = begin(network, prompt(voice))
    assert state.frames == 80
    lengths = []
    for number, call in enumerate(calls):
        (made,) = network.run([FlowCall(call.codes, speaker, state)], is_last=call.is_last)
        assert made is not None
        assert far(made.mel, recorded()[f"{name}_mel_{number}"]) < RECORDED
        means = torch.stack([cache.mean() for cache in as_published(state, made.new)])
        assert far(means, recorded()[f"{name}_cache_mean"][number]) < RECORDED
        state = made.state
        lengths.append((state.first.shape[2], state.second.shape[2], state.frames))
    assert lengths == [(65, 130, 130), *[(90, 180, 180)] * 4]


def test_a_turn_in_one_pass_is_the_one_recorded() -> None:
    network, voice = flow(10), prompt(31)
    speaker, _ = begin(network, voice)
    codes = [*voice.codes, *recorded()["tokens31"][:50].tolist()]
    made = network.one_pass(codes, torch.from_numpy(voice.mel).T, speaker, is_last=True)
    assert far(made.mel[:, 80:], recorded()["offline_steps10_mel"]) < RECORDED


def test_a_stream_is_near_one_pass_over_the_same_codes() -> None:
    """Chunked is not offline by design: a call looks three codes ahead, one pass at everything."""
    network, voice = flow(10), prompt(31)
    codes = recorded()["tokens31"][:50].tolist()
    speaker, state = begin(network, voice)
    whole = network.one_pass(
        [*voice.codes, *codes], torch.from_numpy(voice.mel).T, speaker, is_last=True
    )
    mels = []
    for said, is_last in ((codes[:28], False), (codes[25:], True)):
        (made,) = network.run([FlowCall(tuple(said), speaker, state)], is_last=is_last)
        assert made is not None
        state = made.state
        mels.append(made.mel)
    offline = whole.mel[:, 80:]
    apart = (torch.cat(mels, 1) - offline).square().mean(0).sqrt() / offline.std()
    # The first fifth of a second follows the silence that the voice was prepared with.
    assert apart[:10].max() < 0.5
    assert apart[10:].max() < 0.1
    # Codes that are not the same are not near.
    assert ((offline - offline.flip(1)).square().mean().sqrt() / offline.std()) > 1


def test_turns_that_take_turns_do_not_hear_each_other() -> None:
    network = flow()
    turns = [begin(network, prompt(number)) for number in (31, 32)]
    states = [state for _, state in turns]
    alone = [flow_turn(network, prompt(number), turn_calls(number)) for number in (31, 32)]
    for number in range(5):
        for side, voice in enumerate((31, 32)):
            call = turn_calls(voice)[number]
            one = FlowCall(call.codes, turns[side][0], states[side])
            (made,) = network.run([one], is_last=call.is_last)
            assert made is not None
            assert torch.equal(made.mel, alone[side][number].mel)
            states[side] = made.state


def test_turns_in_a_batch_are_as_alone_whatever_each_remembers() -> None:
    network = flow()
    # Voices of three lengths; the second turn begins two calls later than the others.
    voices = [prompt(31), prompt(32), prompt(31, codes=12)]
    calls = [turn_calls(31), turn_calls(32), turn_calls(32)]
    alone = [flow_turn(network, *one) for one in zip(voices, calls, strict=True)]
    turns = [begin(network, voice) for voice in voices]
    states, starts = [state for _, state in turns], (0, 2, 0)
    for time in range(4):
        present = [side for side in range(3) if time >= starts[side]]
        batch = [
            FlowCall(calls[side][time - starts[side]].codes, turns[side][0], states[side])
            for side in present
        ]
        for side, made in zip(present, network.run(batch, is_last=False), strict=True):
            assert made is not None
            assert far(made.mel, alone[side][time - starts[side]].mel) < SAME
            states[side] = made.state
    assert states[0].frames == states[1].frames == 180
    assert states[2].frames == 124


def test_a_call_that_is_made_again_gives_the_same() -> None:
    network = flow()
    speaker, state = begin(network, prompt(31))
    one = FlowCall(turn_calls(31)[0].codes, speaker, state)
    made = [network.run([one], is_last=False)[0] for _ in range(2)]
    assert made[0] is not None
    assert made[1] is not None
    assert torch.equal(made[0].mel, made[1].mel)
    assert torch.equal(made[0].state.attention, made[1].state.attention)


def test_a_memory_is_as_large_as_the_formula_says() -> None:
    network = flow()
    speaker, state = begin(network, prompt(31))
    empty = flow_state_bytes(network.sizes, 5, torch.float32, 80, is_full=False)
    assert state.memory_bytes == empty
    # A batch's memory must not be kept alive by one of its turns.
    for call in turn_calls(31)[:3]:
        batch = [FlowCall(call.codes, speaker, state)] * 2
        made = network.run(batch, is_last=False)[1]
        assert made is not None
        state = made.state
    assert state.memory_bytes == flow_state_bytes(network.sizes, 5, torch.float32, 80)


def test_the_published_sizes_take_what_is_said() -> None:
    megabytes = [
        round(flow_state_bytes(PUBLISHED, steps, dtype, frames) / 1e6)
        for steps, dtype, frames in (
            (5, torch.float16, 300),
            (10, torch.float16, 300),
            (5, torch.float32, 300),
            (5, torch.float16, 150),
        )
    ]
    assert megabytes == [137, 269, 275, 86]


class Counting(NamedTensors):
    """Gives whatever is asked for, without memory, and keeps count."""

    def __init__(self) -> None:
        super().__init__({}, CPU, torch.float32)
        self.values: list[int] = []

    def take(self, name: str, shape: Sequence[int]) -> torch.Tensor:
        del name
        self.values.append(prod(shape))
        return torch.empty(tuple(shape), device="meta")


def test_the_published_network_has_the_published_tensors() -> None:
    counting = Counting()
    take_flow(PUBLISHED, counting)
    assert len(counting.values) == 605
    assert round(sum(counting.values) / 1e6, 1) == 155.8


@pytest.mark.parametrize("head", [20, 80, 98, 100, 150, 300])
def test_a_memory_is_cut_as_published(head: int) -> None:
    sizes = flow().sizes
    state = empty_state(sizes, 1, head, CPU, torch.float32)
    rows, twice = state.second, torch.cat([state.first, state.first], 2)
    count = 0
    for codes in (head // 2, 25, 25, 7, 25, 25):
        marks = torch.arange(count, count + codes).float()[None, None, :, None]
        new_first = marks.expand(sizes.layers, sizes.heads, codes, 2 * sizes.hidden // sizes.heads)
        new_second = new_first[: sizes.up_layers].repeat_interleave(2, 2)
        seen = torch.zeros(1, sizes.depth, 2, sizes.wide_heads, 2 * codes, 2 * sizes.head_size)
        new = NewRows(state.context, new_first, new_second, seen, state.convolutions)
        half = twice.shape[2] // 2
        twice = torch.cat([torch.cat([twice[:, :, :half], new_first], 2)] * 2, 2)
        twice = published_cut(twice, 2, head)
        rows = published_cut(torch.cat([rows, new_second], 2), 2, head)
        state = successor(state, new)
        assert torch.equal(state.second, rows)
        assert torch.equal(state.first, twice[:, :, : twice.shape[2] // 2])
        assert state.frames == rows.shape[2]
        count += codes


def test_numbers_that_are_not_finite_fail_their_turn_alone() -> None:
    network = flow()
    speaker, state = begin(network, prompt(31))
    codes = turn_calls(31)[0].codes
    good, bad = FlowCall(codes, speaker, state), FlowCall(codes, speaker * float("nan"), state)
    (alone,) = network.run([good], is_last=False)
    first, second, third = network.run([good, bad, good], is_last=False)
    assert second is None
    for made in (first, third):
        assert made is not None
        assert alone is not None
        assert far(made.mel, alone.mel) < SAME


def test_calls_that_can_not_be_a_batch_are_refused() -> None:
    network = flow()
    speaker, state = begin(network, prompt(31))
    long, short = (FlowCall((5,) * count, speaker, state) for count in (28, 27))
    with pytest.raises(ValueError, match="one length"):
        network.run([long, short], is_last=False)
    with pytest.raises(ValueError, match="without a code"):
        network.run([FlowCall((5,) * 3, speaker, state)], is_last=False)
    few = Flow.from_tensors(tensors("flow"), draw_noise(BANDS, 100, 1), 5, CPU, torch.float32)
    with pytest.raises(ValueError, match="only 100 columns"):
        few.run([long], is_last=False)
    with pytest.raises(ValueError, match="do not fit"):
        network.begin((5,) * 10, torch.zeros(BANDS, 20), speaker)


def test_sixteen_bits_stay_near_the_recording() -> None:
    made = flow_turn(flow(5, torch.bfloat16), prompt(31), turn_calls(31))
    wanted = recorded()
    for number, one in enumerate(made):
        assert one.mel.dtype == torch.float32
        assert one.state.attention.dtype == torch.bfloat16
        off = one.mel - torch.from_numpy(wanted[f"a_steps5_mel_{number}"])
        assert float(off.square().mean().sqrt()) < 0.05


def renamed(old: str, new: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(held: dict[str, torch.Tensor]) -> None:
        held[new] = held.pop(old)

    return change


def narrowed(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(held: dict[str, torch.Tensor]) -> None:
        held[name] = held[name][:-1]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (renamed("input_embedding.weight", "x"), "no tensor input_embedding.weight"),
        (renamed("encoder_proj.bias", "x"), "no tensor encoder_proj.bias"),
        (narrowed("encoder.after_norm.bias"), "encoder.after_norm.bias has shape"),
        (narrowed("decoder.estimator.blocks.1.attn.to_k.bias"), "blocks.1.attn.to_k.bias has"),
        (lambda held: held.update(more=torch.zeros(1)), "does not use these tensors: .'more'"),
    ],
)
def test_tensors_of_another_network_are_named(
    change: Callable[[dict[str, torch.Tensor]], None], words: str
) -> None:
    held = dict(tensors("flow"))
    change(held)
    with pytest.raises(WrongTensors, match=words):
        Flow.from_tensors(held, draw_noise(BANDS, 100, 1), 5, CPU, torch.float32)


def test_noise_follows_from_its_seed() -> None:
    assert torch.equal(draw_noise(BANDS, 50, 3), draw_noise(BANDS, 50, 3))
    assert not torch.equal(draw_noise(BANDS, 50, 3), draw_noise(BANDS, 50, 4))


def test_a_made_call_says_what_it_was_made_of() -> None:
    made: FlowMel = flow_turn(flow(), prompt(31), turn_calls(31)[:1])[0]
    assert made.new.attention.shape[4] == made.mel.shape[1] == 50
