"""The player notices whatever is not as it is written."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.player import Player
from tests.contract.stages_in_memory import MemoryStage
from tests.contract.transcript import FOLDER, Bindings, Json, Step, Transcript, read
from tests.contract.virtual_time import NothingCanHappen, run_in_virtual_time

GOOD = read(FOLDER / "answer_cancelled.jsonl")
OUT = [step.number for step in GOOD.steps if "out" in step.content]


def play(transcript: Transcript) -> None:
    async def story() -> None:
        stage = MemoryStage(transcript)
        await Player(stage, transcript).play()
        await stage.end()

    run_in_virtual_time(story)


def changed(number: int, change: Callable[[Json], Json | None]) -> Transcript:
    """Return the good transcript with one line changed, or left out."""

    def steps() -> Iterator[Step]:
        for step in GOOD.steps:
            content: Json | None = json.loads(json.dumps(step.content))
            if step.number == number and content is not None:
                content = change(content)
            if content is not None:
                yield replace(step, content=content)

    return replace(GOOD, steps=tuple(steps()))


def left_out(content: Json) -> None:
    del content


def doubled(content: Json) -> Json:
    content["out"]["surprise"] = True
    return content


def other_end(content: Json) -> Json:
    """Change the last thing that the line says."""
    where: Any = content["out"]
    while isinstance(value := where[name := _last(where)], dict | list) and value:
        where = value
    where[name] = "something else"
    return content


def _last(where: Any) -> Any:
    return list(where)[-1] if isinstance(where, dict) else len(where) - 1


def test_the_good_one_passes() -> None:
    play(GOOD)


@pytest.mark.parametrize("change", [left_out, doubled, other_end])
@pytest.mark.parametrize("number", OUT)
def test_a_line_that_is_wrong_fails(number: int, change: Callable[[Json], Json | None]) -> None:
    with pytest.raises((AssertionError, TimeoutError, NothingCanHappen)):
        play(changed(number, change))


def test_two_names_are_two_ids() -> None:
    names = Bindings()
    assert not names.difference({"type": "x", "id": "$one"}, {"type": "x", "id": "i1"})
    assert not names.difference({"type": "x", "id": "item_$one"}, {"type": "x", "id": "item_i1"})
    assert names.difference({"type": "x", "id": "$two"}, {"type": "x", "id": "i1"})
    assert names.difference({"type": "x", "id": "$one"}, {"type": "x", "id": "i2"})
