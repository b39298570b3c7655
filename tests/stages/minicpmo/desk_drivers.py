"""Both adapters of the decode policy, driven by hand as vLLM's two model runners drive them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import pytest
import torch

from stages.minicpmo import processor_v1, processor_v2
from stages.minicpmo.policy import Row
from stages.minicpmo.policy_desk import PolicyDesk
from stages.minicpmo.policy_request import PolicyRequest
from stages.minicpmo.row_decoder import DecodingTools
from stages.minicpmo.tap_sender import CopiedRow
from stages.minicpmo.unit_record import (
    Header,
    UnitBroke,
    UnitRecord,
    read_message,
    write_message,
)

HIDDEN = 4
SLOTS = 8
MOST_STEPS = 64


@dataclass(slots=True, eq=False)
class KeptRecords:
    """A sender that keeps what it is given, after it was written and read."""

    messages: list[UnitRecord | UnitBroke] = field(default_factory=list)

    def send(self, header: Header, rows: Sequence[CopiedRow] = ()) -> None:
        raw = b"".join(row.settled().numpy().tobytes() for row in rows)
        frames = [bytes(frame) for frame in write_message(header, raw)]
        self.messages.append(read_message(frames))


@dataclass(slots=True)
class Running:
    """A request in the batch."""

    request: PolicyRequest | None
    prompt: int
    sampled: list[int] = field(default_factory=list)


class Driver(Protocol):
    """One model runner's way to call its adapter."""

    desk: PolicyDesk
    processor: Any
    running: dict[int, Running]

    def add(self, place: int, request: PolicyRequest | None) -> None: ...
    def remove(self, place: int) -> None: ...
    def step(self, rows: dict[int, Row], partial: Sequence[int] = ()) -> dict[int, int]: ...


def hidden_rows(places: Sequence[int], running: dict[int, Running]) -> torch.Tensor:
    """Return rows that say whose they are and of which step."""
    values = [[place, len(running[place].sampled), 0.5, -1.0] for place in places]
    return torch.tensor(values, dtype=torch.float32)


def sampled_tokens(
    logits: torch.Tensor, places: Sequence[int], running: dict[int, Running], partial: Sequence[int]
) -> dict[int, int]:
    tokens = {}
    for at, place in enumerate(places):
        if place not in partial:
            tokens[place] = int(logits[at].argmax())
            running[place].sampled.append(tokens[place])
    return tokens


class DriverV1:
    """The CPU's runner: rows are dense, in the order of their places."""

    def __init__(self, tools: DecodingTools, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(processor_v1, "load_tools", lambda _: tools)
        config: Any = SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=SLOTS),
            model_config=SimpleNamespace(tokenizer="nowhere"),
        )
        self.processor: Any = processor_v1.PolicyProcessorV1(config, torch.device("cpu"), False)
        self.desk: PolicyDesk = self.processor.desk
        self.running: dict[int, Running] = {}
        self._partial: Sequence[int] = ()
        self.processor.is_partial = lambda row: row in self._partial

    def add(self, place: int, request: PolicyRequest | None) -> None:
        one = Running(request, prompt=10)
        self.running[place] = one
        self.update(added=[(place, params_of(request), None, one.sampled)])

    def remove(self, place: int) -> None:
        del self.running[place]
        self.update(removed=[place])

    def update(self, **changes: Any) -> None:
        nothing: dict[str, Any] = {"removed": [], "added": [], "moved": []}
        update: Any = SimpleNamespace(batch_size=len(self.running), **(nothing | changes))
        self.processor.update_state(update)

    def step(self, rows: dict[int, Row], partial: Sequence[int] = ()) -> dict[int, int]:
        places = sorted(self.running)
        assert places == list(range(len(places)))
        self._partial = partial
        logits = torch.from_numpy(np.stack([rows[place] for place in places]))
        self.desk.hidden = hidden_rows(places, self.running)
        return sampled_tokens(self.processor.apply(logits), places, self.running, partial)


class DriverV2:
    """The GPU's runner on CPU tensors: slots, and rows in any order."""

    def __init__(self, tools: DecodingTools, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(processor_v2, "load_tools", lambda _: tools)
        config: Any = SimpleNamespace(model_config=SimpleNamespace(tokenizer="nowhere"))
        self.prompt = np.zeros(SLOTS, np.int32)
        self.prefill = np.zeros(SLOTS, np.int32)
        states: Any = SimpleNamespace(
            device=torch.device("cpu"),
            max_num_reqs=SLOTS,
            prompt_len=SimpleNamespace(np=self.prompt),
            prefill_len=SimpleNamespace(np=self.prefill),
        )
        self.processor: Any = processor_v2.PolicyProcessorV2(config, states)
        self.desk: PolicyDesk = self.processor.desk
        self.running: dict[int, Running] = {}

    def add(self, place: int, request: PolicyRequest | None) -> None:
        self.running[place] = Running(request, prompt=10 + place)
        self.prompt[place] = self.prefill[place] = 10 + place
        self.processor.add_request(place, params_of(request))

    def remove(self, place: int) -> None:
        # The runner does not say so: the slot is just not among the rows any more.
        del self.running[place]

    def step(self, rows: dict[int, Row], partial: Sequence[int] = ()) -> dict[int, int]:
        places = sorted(self.running, reverse=True)
        seen = [
            self.running[place].prompt + len(self.running[place].sampled) - (place in partial)
            for place in places
        ]
        ctx: Any = SimpleNamespace(
            idx_mapping_np=np.array(places, np.int32), seq_lens_upper_bound_np=np.array(seen)
        )
        logits = torch.from_numpy(np.stack([rows[place] for place in places]))
        self.desk.hidden = hidden_rows(places, self.running)
        return sampled_tokens(self.processor.apply(logits, ctx), places, self.running, partial)


def params_of(request: PolicyRequest | None) -> Any:
    return SimpleNamespace(extra_args=None if request is None else request.to_extra_args())


DRIVERS: Mapping[str, Callable[[DecodingTools, pytest.MonkeyPatch], Driver]] = {
    "v1": DriverV1,
    "v2": DriverV2,
}
