"""A process that owns an engine, to be killed or to have its engine killed.

Run as `python -m tests.support.engine_owner FOLDER STUCK_AFTER_S`. It writes one line of JSON when
sessions are busy, and one when the engine is dead; then it waits for a line and stops in order.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from session.errors import StageError
from session.ids import RequestId
from stages.engine.engine import ResumableEngine
from stages.engine.errors import SegmentCancelled
from stages.engine.values import Ids, Sampling, Segment
from stages.engine.vllm_backend import VllmBackend
from tests.support.vllm_rig import FIRST_ID, cpu_settings


def say(**facts: object) -> None:
    """Write one line."""
    print(json.dumps(facts), flush=True)  # noqa: T201 - this is what the program is for


async def talk(engine: ResumableEngine, key: str, busy: asyncio.Event) -> str:
    """Append until something is wrong; return what."""
    for number in range(100_000):
        sampling = Sampling(max_tokens=20)
        pieces = (Ids((FIRST_ID, FIRST_ID + number % 7)),)
        segment = Segment(RequestId(f"{key}-{number}"), pieces, sampling, time.monotonic())
        try:
            await engine.replace(key, ())
            await engine.append(key, segment)
        except SegmentCancelled:
            return "cancelled"
        except StageError as error:
            return type(error).__name__
        busy.set()
    return "nothing"


async def later(engine: ResumableEngine) -> list[str]:
    """Call a dead engine; return what the calls say."""
    said: list[str] = []
    segment = Segment(RequestId("late"), (Ids((FIRST_ID,)),), Sampling(max_tokens=1), 0.0)
    for call in (
        engine.open("late"),
        engine.append("s0", segment),
        engine.prepare("s0"),
        engine.call_worker("known_requests"),
    ):
        try:
            await call
            said.append("nothing")
        except StageError as error:
            said.append(type(error).__name__)
    return said


async def main(folder: Path, stuck_after_s: float) -> None:
    """Own an engine; more sessions speak than may be inside, so that some wait at the door."""
    settings = cpu_settings(folder, max_in_flight=1, stuck_after_s=stuck_after_s)
    engine = ResumableEngine(settings, VllmBackend(settings, time.monotonic), time.monotonic)
    await engine.start()
    busy = [asyncio.Event() for _ in range(3)]
    talks: list[asyncio.Task[str]] = []
    for number, event in enumerate(busy):
        await engine.open(f"s{number}")
        talks.append(asyncio.create_task(talk(engine, f"s{number}", event)))
    for event in busy:
        await event.wait()
    say(busy=True)
    reason = await engine.died()
    errors = [await one for one in talks]
    say(died=reason, errors=errors, later=await later(engine))
    await asyncio.to_thread(sys.stdin.readline)
    await engine.stop()
    say(open_sessions=engine.capacity().open_sessions)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
