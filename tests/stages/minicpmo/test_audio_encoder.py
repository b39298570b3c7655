"""The audio encoder against the recorded vectors, alone and in batches, forwards and undone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pytest
import torch

from session.errors import StageFailed, StageRefused, UnsupportedOption
from stages.minicpmo.audio_encoder import AudioEncoder, Mel
from stages.minicpmo.audio_layers import take_audio_layers
from stages.minicpmo.audio_state import (
    AudioEncoderSizes,
    EncodedUnit,
    EncoderState,
    state_bytes,
)
from stages.minicpmo.config import read_config
from stages.minicpmo.named_tensors import Linear, NamedTensors, WrongTensors
from stages.minicpmo.weight_rule import RULES_FILE
from tests.stages.minicpmo.tiny_weights import AUDIO, AUDIO_SIZES, CPU, audio_encoder, tensors
from tests.stages.minicpmo.vectors import arrays

pytestmark = pytest.mark.models

RECORDED: Final = 1e-4
SAME: Final = 1e-5
UNITS: Final = 44
RESET: Final = 29


@pytest.fixture(scope="module")
def encoder() -> AudioEncoder:
    return audio_encoder()


@pytest.fixture(scope="module")
def mels() -> list[Mel]:
    recorded = arrays("mel")
    return [recorded["mel_first"], *recorded["mel_rest"]]


@pytest.fixture(scope="module")
def alone(encoder: AudioEncoder, mels: list[Mel]) -> list[torch.Tensor]:
    return speak(encoder, encoder.new_state(), mels)


def encode_one(encoder: AudioEncoder, state: EncoderState, mel: Mel) -> EncodedUnit:
    (unit,) = encoder.encode([state], [mel])
    assert isinstance(unit, EncodedUnit)
    return unit


def hear(encoder: AudioEncoder, state: EncoderState, mel: Mel) -> torch.Tensor:
    unit = encode_one(encoder, state, mel)
    state.commit(unit)
    return unit.embeddings


def speak(encoder: AudioEncoder, state: EncoderState, mels: Sequence[Mel]) -> list[torch.Tensor]:
    return [hear(encoder, state, mel) for mel in mels]


def far(got: torch.Tensor, wanted: torch.Tensor | Mel) -> float:
    assert tuple(got.shape) == tuple(wanted.shape)
    return float((got - torch.as_tensor(wanted)).abs().max())


def test_embeddings_and_positions_are_those_recorded(
    encoder: AudioEncoder, mels: list[Mel]
) -> None:
    recorded = arrays("audio_encoder")
    state = encoder.new_state()
    for unit, mel in enumerate(mels):
        before, after = recorded["kv_positions_before_after"][unit]
        assert state.start == (0 if unit == RESET else before)
        assert far(hear(encoder, state, mel), recorded["embeddings"][unit]) < RECORDED
        assert state.start == (0 if unit + 1 == RESET else after)
    assert state.units == UNITS


def test_the_rows_before_the_projector_are_those_recorded(mels: list[Mel]) -> None:
    recorded = arrays("audio_encoder")
    layers = take_audio_layers(AUDIO_SIZES, NamedTensors(tensors(AUDIO), CPU, torch.float32))
    # relu(x) - relu(-x) is x: a projector that lets everything through.
    same = torch.eye(AUDIO_SIZES.hidden)
    through = (Linear(torch.cat([same, -same]), None), Linear(torch.cat([same, -same], 1), None))
    encoder = AudioEncoder(AUDIO_SIZES, replace(layers, projector=through, pool=1))
    rows = speak(encoder, encoder.new_state(), mels)
    for unit, wanted in zip(recorded["encoder_out_units"], recorded["encoder_out"], strict=True):
        assert far(rows[unit], wanted) < RECORDED


def test_a_voice_is_encoded_as_recorded(encoder: AudioEncoder) -> None:
    recorded = arrays("ref_audio")
    assert far(encoder.encode_reference(recorded["mel"]), recorded["embeddings"]) < RECORDED


def test_a_voice_that_has_no_rows_or_too_many_is_refused(encoder: AudioEncoder) -> None:
    for frames in (0, 8, 3001):
        with pytest.raises(UnsupportedOption, match="too short or too long"):
            encoder.encode_reference(np.zeros((80, frames), np.float32))
    assert len(encoder.encode_reference(np.zeros((80, 9), np.float32))) == 1
    assert len(encoder.encode_reference(np.zeros((80, 3000), np.float32))) == 300
    for bad in (np.full((80, 20), np.nan, np.float32), np.zeros((79, 20), np.float32)):
        with pytest.raises(UnsupportedOption, match="can not be used"):
            encoder.encode_reference(bad)
    with pytest.raises(StageFailed, match="not finite"):
        encoder.encode_reference(np.full((80, 20), 3e38, np.float32))


def test_conversations_that_take_turns_do_not_hear_each_other(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    other = [mels[0], *reversed(mels[1:])]
    apart = speak(encoder, encoder.new_state(), other)
    states = encoder.new_state(), encoder.new_state()
    for unit in range(UNITS):
        assert torch.equal(hear(encoder, states[0], mels[unit]), alone[unit])
        assert torch.equal(hear(encoder, states[1], other[unit]), apart[unit])


def test_a_batch_of_conversations_of_all_lengths_is_each_of_them_alone(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    begins = (0, 0, 1, 7, 20, 29)
    states = [encoder.new_state() for _ in begins]
    for now in range(UNITS + max(begins)):
        due = [i for i, begin in enumerate(begins) if 0 <= now - begin < UNITS]
        # The order within a batch must not matter, and changes.
        due = due[now % len(due) :] + due[: now % len(due)]
        units = encoder.encode([states[i] for i in due], [mels[now - begins[i]] for i in due])
        for i, unit in zip(due, units, strict=True):
            assert isinstance(unit, EncodedUnit)
            assert far(unit.embeddings, alone[now - begins[i]]) < SAME
            states[i].commit(unit)
    assert [state.units for state in states] == [UNITS] * len(begins)


def test_every_unit_can_be_undone_and_given_again(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    state = encoder.new_state()
    other = np.ascontiguousarray(mels[3][:, ::-1])
    for unit, mel in enumerate(mels):
        mark = state.units
        wrong = other if unit else other[:, :102]
        assert far(hear(encoder, state, wrong), alone[unit]) > RECORDED
        state.rewind(mark)
        assert torch.equal(hear(encoder, state, mel), alone[unit])
        state.rewind(mark)
        assert torch.equal(hear(encoder, state, mel), alone[unit])


def test_a_unit_that_was_not_committed_never_happened_even_where_all_is_forgotten(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    state = encoder.new_state()
    for unit in range(UNITS - 1):
        mark = state.units
        hear(encoder, state, mels[unit])
        encode_one(encoder, state, mels[unit + 1])
        # Only now is the unit before undone, too: at the reset its rows must still be there.
        state.rewind(mark)
        assert torch.equal(hear(encoder, state, mels[unit]), alone[unit])


def test_a_long_way_back_is_open_as_long_as_no_row_was_overwritten(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    state = encoder.new_state()
    speak(encoder, state, mels[:RESET])
    state.rewind(5)
    for unit in range(5, UNITS):
        assert torch.equal(hear(encoder, state, mels[unit]), alone[unit])
    state.rewind(RESET)
    for units in (RESET - 1, 1, RESET + 1, UNITS, -1, -RESET):
        with pytest.raises(StageRefused, match=f"from unit {RESET} to {units}"):
            state.rewind(units)
    assert torch.equal(hear(encoder, state, mels[RESET]), alone[RESET])
    state.rewind(0)
    assert torch.equal(hear(encoder, state, mels[0]), alone[0])


def test_a_successor_goes_on_and_leaves_the_other_as_it_was(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    state = encoder.new_state()
    speak(encoder, state, mels[: RESET - 1])
    with pytest.raises(StageRefused, match=f"unit {RESET - 1} does not forget"):
        state.successor()
    hear(encoder, state, mels[RESET - 1])
    following = state.successor()
    for unit in range(RESET, UNITS):
        assert torch.equal(hear(encoder, following, mels[unit]), alone[unit])
    with pytest.raises(StageRefused, match=f"from unit {UNITS} to {RESET - 1}"):
        following.rewind(RESET - 1)
    # Nothing was overwritten, so the way back is as long as ever.
    state.rewind(5)
    for unit in range(5, UNITS):
        assert torch.equal(hear(encoder, state, mels[unit]), alone[unit])


def test_sizes_are_those_of_the_config() -> None:
    assert AudioEncoderSizes.of(read_config(RULES_FILE.parent)) == AUDIO_SIZES


def test_a_unit_of_an_older_or_another_state_is_not_remembered(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    state, other = encoder.new_state(), encoder.new_state()
    stale = encode_one(encoder, state, mels[0])
    with pytest.raises(StageRefused, match="another state"):
        other.commit(stale)
    state.commit(stale)
    with pytest.raises(StageRefused, match="another state"):
        state.commit(stale)
    second = encode_one(encoder, state, mels[1])
    state.rewind(1)
    with pytest.raises(StageRefused, match="another state"):
        state.commit(second)
    assert state.units == 1
    assert torch.equal(hear(encoder, state, mels[1]), alone[1])


BAD_MELS: Final[dict[str, Mel]] = {
    "nan": np.full((80, 104), np.nan, np.float32),
    "infinite": np.full((80, 104), np.inf, np.float32),
    "too loud for float32": np.full((80, 104), 3e38, np.float32),
    "first": np.zeros((80, 102), np.float32),
    "bands": np.zeros((128, 104), np.float32),
    "float64": np.zeros((80, 104)).astype(np.float64),
}


@pytest.mark.parametrize("bad", BAD_MELS.values(), ids=list(BAD_MELS))
def test_a_bad_unit_fails_alone(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor], bad: Mel
) -> None:
    states = [encoder.new_state() for _ in range(3)]
    for state, heard in zip(states, (3, 5, 2), strict=True):
        speak(encoder, state, mels[:heard])
    units = encoder.encode(states, [mels[3], bad, mels[2]])
    assert isinstance(units[0], EncodedUnit)
    assert isinstance(units[1], StageFailed)
    came_out_bad = "not finite" in units[1].message
    assert came_out_bad == bool(np.isfinite(bad).all() and np.max(bad) > 0)
    assert isinstance(units[2], EncodedUnit)
    assert far(units[0].embeddings, alone[3]) < SAME
    assert far(units[2].embeddings, alone[2]) < SAME
    # The failed one is given again, beside a longer and a shorter one.
    states[0].commit(units[0])
    (again, beside) = encoder.encode([states[1], states[0]], [mels[5], mels[4]])
    assert isinstance(again, EncodedUnit)
    assert isinstance(beside, EncodedUnit)
    assert far(again.embeddings, alone[5]) < SAME
    assert far(beside.embeddings, alone[4]) < SAME


def test_a_first_unit_has_102_frames(encoder: AudioEncoder, mels: list[Mel]) -> None:
    assert isinstance(encoder.encode([encoder.new_state()], [mels[1]])[0], StageFailed)


def test_each_conversation_comes_once_and_has_one_mel(
    encoder: AudioEncoder, mels: list[Mel]
) -> None:
    state = encoder.new_state()
    for states, given in (([state, state], 2), ([state], 2), ([state, encoder.new_state()], 1)):
        with pytest.raises(ValueError, match="comes once"):
            encoder.encode(states, mels[:1] * given)
    assert encoder.encode([], []) == []


def test_warming_up_leaves_the_encoder_as_it_was(
    encoder: AudioEncoder, mels: list[Mel], alone: list[torch.Tensor]
) -> None:
    encoder.warm_up([1, 2, 5])
    assert torch.equal(hear(encoder, encoder.new_state(), mels[0]), alone[0])


def test_half_precision_stays_near_and_in_its_own_type(mels: list[Mel]) -> None:
    recorded = arrays("audio_encoder")["embeddings"]
    encoder = AudioEncoder.from_tensors(AUDIO_SIZES, tensors(AUDIO), CPU, torch.bfloat16)
    states = encoder.new_state(), encoder.new_state()
    hear(encoder, states[0], mels[0])
    units = encoder.encode(states, [mels[1], mels[0]])
    for unit, wanted in zip(units, (recorded[1], recorded[0]), strict=True):
        assert isinstance(unit, EncodedUnit)
        assert unit.embeddings.dtype == torch.bfloat16
        assert far(unit.embeddings.float(), wanted) < 0.2


def test_a_states_bytes_are_those_of_its_tensor(encoder: AudioEncoder, mels: list[Mel]) -> None:
    state = encoder.new_state()
    speak(encoder, state, mels[:28])
    # What is remembered now lacks the last of the 29 units.
    assert state.past().nbytes * 29 == state_bytes(AUDIO_SIZES, torch.float32) * 28
    assert state.past().untyped_storage().nbytes() == state_bytes(AUDIO_SIZES, torch.float32)
    medium = replace(AUDIO_SIZES, hidden=1024, layers=24, heads=16, ffn=4096, llm_hidden=4096)
    assert state_bytes(medium, torch.bfloat16) == 142_540_800


@pytest.mark.parametrize(
    ("positions", "units"), [(1500, 29), (1502, 29), (1503, 30), (1452, 28), (1453, 29), (53, 1)]
)
def test_how_many_units_are_kept(positions: int, units: int) -> None:
    sizes = replace(AUDIO_SIZES, positions=positions)
    assert sizes.units_kept == units
    # The rule as it is written: the first unit whose start and 52 more reach the positions.
    assert next(u for u in range(99) if 50 * u + 52 >= positions) == units


def test_sizes_that_no_encoder_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match="evenly"):
        replace(AUDIO_SIZES, heads=3)
    with pytest.raises(ValueError, match="not even one unit"):
        replace(AUDIO_SIZES, positions=52)
    with pytest.raises(ValueError, match="no position"):
        replace(AUDIO_SIZES, block=0)


def test_tensors_that_lack_do_not_fit_or_are_surplus_are_named() -> None:
    def build(given: dict[str, torch.Tensor], sizes: AudioEncoderSizes = AUDIO_SIZES) -> None:
        AudioEncoder.from_tensors(sizes, given, CPU, torch.float32)

    whole = tensors(AUDIO)
    for name in whole:
        with pytest.raises(WrongTensors, match=f"no tensor {name}"):
            build({other: tensor for other, tensor in whole.items() if other != name})
    with pytest.raises(WrongTensors, match=r"does not use .*'apm.conv3.bias'"):
        build({**whole, "apm.conv3.bias": torch.zeros(64)})
    with pytest.raises(WrongTensors, match=r"apm.conv1.weight has shape \[64, 80, 3\]"):
        build(whole, replace(AUDIO_SIZES, mel_bands=128))
