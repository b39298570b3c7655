"""Both adapters of the talker's sampling, driven by hand as vLLM's two model runners drive them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final, Protocol

import numpy as np
import torch
from vllm.v1.sample.logits_processor.interface import MoveDirectionality

from stages.minicpmo.talker_policy import Row
from stages.minicpmo.talker_processor_v1 import TalkerProcessorV1
from stages.minicpmo.talker_processor_v2 import TalkerProcessorV2
from stages.minicpmo.talker_request import TalkerRequest

SLOTS: Final = 6
POSITIONS: Final = 200
STOP: Final = 9


@dataclass(slots=True)
class Running:
    """A request in the batch."""

    request: TalkerRequest | None
    prompt: int
    sampled: list[int] = field(default_factory=list)


class TalkerDriver(Protocol):
    """One model runner's way to call its adapter."""

    processor: Any
    running: dict[int, Running]

    def add(self, place: int, request: TalkerRequest | None, old: Sequence[int] = ()) -> None: ...
    def remove(self, place: int) -> None: ...
    def step(self, rows: dict[int, Row]) -> dict[int, int]: ...


class DriverV1:
    """The CPU's runner: rows are dense, in the order of their places."""

    def __init__(self) -> None:
        config: Any = None
        self.processor = TalkerProcessorV1(config, torch.device("cpu"), False)
        self.running: dict[int, Running] = {}

    def add(self, place: int, request: TalkerRequest | None, old: Sequence[int] = ()) -> None:
        del old  # what the segments before have sampled is prompt
        one = self.running[place] = Running(request, prompt=10)
        self.update(added=[(place, params_of(request), None, one.sampled)])

    def remove(self, place: int) -> None:
        """Remove a row and move the last one to its place."""
        last = max(self.running)
        gone = self.running.pop(last)
        moved = [] if last == place else [(last, place, MoveDirectionality.UNIDIRECTIONAL)]
        if moved:
            self.running[place] = gone
        self.update(removed=[place], moved=moved)

    def update(self, **changes: Any) -> None:
        nothing: dict[str, Any] = {"removed": [], "added": [], "moved": []}
        update: Any = SimpleNamespace(batch_size=len(self.running), **(nothing | changes))
        self.processor.update_state(update)

    def step(self, rows: dict[int, Row]) -> dict[int, int]:
        places = sorted(self.running)
        assert places == list(range(len(places)))
        logits = self.processor.apply(stacked(rows, places))
        return taken(logits, places, self.running)


class DriverV2:
    """The GPU's runner on CPU tensors: slots, and rows in any order."""

    def __init__(self) -> None:
        self.prompt = np.zeros(SLOTS, np.int32)
        self.prefill = np.zeros(SLOTS, np.int32)
        self.tokens = torch.zeros(SLOTS, POSITIONS, dtype=torch.int32)
        states: Any = SimpleNamespace(
            device=torch.device("cpu"),
            max_num_reqs=SLOTS,
            vocab_size=STOP + 2,
            all_token_ids=SimpleNamespace(gpu=self.tokens),
            prompt_len=SimpleNamespace(np=self.prompt),
            prefill_len=SimpleNamespace(np=self.prefill),
        )
        config: Any = None
        self.processor = TalkerProcessorV2(config, states)
        self.running: dict[int, Running] = {}

    def add(self, place: int, request: TalkerRequest | None, old: Sequence[int] = ()) -> None:
        prompt = 10 + place
        self.running[place] = Running(request, prompt)
        self.prompt[place] = self.prefill[place] = prompt
        self.tokens[place] = 7  # an earlier owner's
        self.tokens[place, prompt - len(old) : prompt] = torch.tensor(old, dtype=torch.int32)
        self.processor.add_request(place, params_of(request))

    def remove(self, place: int) -> None:
        # The runner does not say so: the slot is just not among the rows any more.
        del self.running[place]

    def step(self, rows: dict[int, Row]) -> dict[int, int]:
        places = sorted(self.running, reverse=True)
        seen = [self.running[place].prompt + len(self.running[place].sampled) for place in places]
        # Where a CUDA graph is for more requests, the lengths are filled up and nothing else is.
        lengths = np.array([*seen, *[0] * (-len(seen) % 4)])
        ctx: Any = SimpleNamespace(
            idx_mapping_np=np.array(places, np.int32), seq_lens_upper_bound_np=lengths
        )
        logits = self.processor.apply(stacked(rows, places), ctx)
        chosen = taken(logits, places, self.running)
        for place, at in zip(places, seen, strict=True):
            self.tokens[place, at] = chosen[place]
        return chosen


def stacked(rows: dict[int, Row], places: Sequence[int]) -> torch.Tensor:
    """Return the rows' logits, with that of the id behind the codes."""
    return torch.from_numpy(np.stack([np.append(rows[place], np.float32(50)) for place in places]))


def taken(
    logits: torch.Tensor, places: Sequence[int], running: dict[int, Running]
) -> dict[int, int]:
    """Sample as an engine that takes the likeliest."""
    chosen = {place: int(logits[at].argmax()) for at, place in enumerate(places)}
    for place, code in chosen.items():
        running[place].sampled.append(code)
    return chosen


def params_of(request: TalkerRequest | None) -> Any:
    return SimpleNamespace(extra_args=None if request is None else request.to_extra_args())


DRIVERS: Final[Mapping[str, Callable[[], TalkerDriver]]] = {"v1": DriverV1, "v2": DriverV2}
