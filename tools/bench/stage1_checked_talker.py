"""The talker on a device: recorded codes, and rows of a batch that are each as alone.

A CUDA graph is made for some numbers of requests. Three that step together run in the one for four:
their rows must not know of the fourth. Nothing waits for a step while codes are compared; that
comes afterwards, when the logits are kept.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from session.ids import RequestId, SessionId
from stages.contract import Speech
from stages.engine.engine import ResumableEngine
from stages.engine.held_request import Listener
from stages.engine.settings import EngineSettings
from stages.engine.values import Segment, SegmentDone, StopReason
from stages.engine.vllm_backend import VllmBackend
from stages.minicpmo.config import MiniCPMOConfig, read_config
from stages.minicpmo.loading import checkpoint_folder
from stages.minicpmo.loading_voice import load_condition, talker_engine_settings
from stages.minicpmo.settings import TINY, MiniCPMOSettings, read_settings
from stages.minicpmo.talker import Talker, TalkerSetup, UnitCodes
from stages.minicpmo.talker_condition import TalkerCondition
from stages.minicpmo.talker_policy import PUBLISHED_TALKER, TalkerSettings
from stages.minicpmo.talker_unit import RECORDED_RULES, SERVING_RULES, TalkerRules, talker_limits
from tools.bench.stage1_outcomes import Outcomes, Rows, UnitSeen, compare, largest_difference
from tools.bench.stage1_recorded import columns, greedy_units
from tools.bench.stage1_rig import EXTENSION

LOGITS_ALIKE: Final = {"cpu": 1e-4, "cuda": 5e-2}
"""On a GPU vLLM's attention multiplies float32 in 10 bits less."""
_TOKENS: Final = 1024
_TOGETHER: Final = (3, 5)
"""Sessions at once: one less than a graph is made for, and three less."""
_PEAKED: Final = replace(PUBLISHED_TALKER, temperature=0.2)
"""With the published temperature thousands of codes of the toy talker's are about equally likely,
and the last digits of a logit decide."""


class NotedEngine(ResumableEngine):
    """An engine that remembers what its segments sampled."""

    def __init__(self, settings: EngineSettings, backend: VllmBackend) -> None:
        super().__init__(settings, backend, time.monotonic)
        self.done: dict[str, list[SegmentDone]] = {}

    async def append(
        self, key: str, segment: Segment, listener: Listener | None = None
    ) -> SegmentDone:
        """Append, and note the outcome."""
        done = await super().append(key, segment, listener)
        self.done.setdefault(key, []).append(done)
        return done


@dataclass(frozen=True, slots=True)
class TalkerBench:
    """A running engine, and talkers on it."""

    engine: NotedEngine
    condition: TalkerCondition
    config: MiniCPMOConfig

    def talker(
        self, rules: TalkerRules, settings: TalkerSettings = PUBLISHED_TALKER, room: int = _TOKENS
    ) -> Talker:
        """Return a talker with rules of its own."""
        setup = TalkerSetup.of(self.config.tts, rules, settings, session_tokens=room)
        return Talker(self.engine, self.condition, setup)

    async def rows(self) -> dict[str, list[Rows]]:
        """Return the kept logits [steps, codes + 1] of each session's units."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.npz"
            await self.engine.call_worker("bench_kept", str(file))
            with np.load(file) as kept:
                names, steps, logits = kept["names"], kept["steps"], kept["logits"]
        found: dict[str, list[Rows]] = {}
        for name in dict.fromkeys(one.split(".")[0] for one in names.tolist()):
            mine = [at for at, one in enumerate(names.tolist()) if one.split(".")[0] == name]
            starts = [place for place, at in enumerate(mine) if steps[at] == 0]
            ends = [*starts[1:], len(mine)]
            found[name] = [logits[mine[a:b]] for a, b in zip(starts, ends, strict=True)]
        return found


def settings_of(device: str, *, is_eager: bool) -> MiniCPMOSettings:
    """Return the tiny talker's settings on a device."""
    return read_settings(
        {
            "checkpoint": TINY,
            "device": device,
            "dtype": "float32",
            "talker": {
                "max_sessions": 8,
                "session_tokens": _TOKENS,
                "kv_cache_memory_bytes": 64 << 20,
                "gpu_memory_utilization": None if device == "cpu" else 0.1,
                "enforce_eager": is_eager or device == "cpu",
                "cudagraph_mode": None if is_eager or device == "cpu" else "FULL",
            },
        }
    )


@asynccontextmanager
async def running(device: str, *, is_eager: bool = False) -> AsyncIterator[TalkerBench]:
    """Run the tiny talker."""
    settings = settings_of(device, is_eager=is_eager)
    folder = await asyncio.to_thread(checkpoint_folder, settings)
    config = read_config(folder)
    args = replace(
        talker_engine_settings(settings, folder, config.tts), worker_extension_cls=EXTENSION
    )
    engine = NotedEngine(args, VllmBackend(args, time.monotonic))
    await engine.start()
    try:
        await engine.call_worker("bench_begin")
        yield TalkerBench(engine, load_condition(settings, folder, config), config)
    finally:
        await engine.stop()


async def check_talker(device: str, say: Outcomes) -> None:
    """Run all checks."""
    runs: dict[int, Mapping[str, Sequence[UnitSeen]]] = {}
    async with running(device) as bench:
        await recorded_conversation(bench, device, say)
        await rebuilt_memory(bench, say)
        await full_turn(bench, say)
        for together in _TOGETHER:
            runs[together] = await rows_of_a_batch(bench, together, device, say)
    if device == "cuda":
        async with running(device, is_eager=True) as bench:
            await without_graphs(bench, runs, say)


async def recorded_conversation(bench: TalkerBench, device: str, say: Outcomes) -> None:
    """Compare codes and logits with those recorded."""
    name, talker = SessionId("recorded"), bench.talker(RECORDED_RULES)
    await bench.engine.call_worker("bench_keep", True)
    await talker.open(name)
    equal, apart = 0, 0.0
    vectors = greedy_units()
    for number, one in enumerate(vectors):
        unit = await _speak(talker, name, one.speech, number, None)
        equal += (unit.codes, unit.first_position) == (one.codes, one.start_position)
    await talker.close(name)
    await bench.engine.call_worker("bench_keep", False)
    for one, found in zip(vectors, (await bench.rows())[name], strict=True):
        steps = min(len(one.logits), len(found))
        apart = max(apart, float(np.abs(found[:steps, columns()] - one.logits[:steps]).max()))
    say.say("recorded codes, likeliest", equal == len(vectors), f"{equal} of {len(vectors)} units")
    limit = LOGITS_ALIKE[device]
    say.say("recorded logits", apart < limit, f"at most {apart:.1e} apart, allowed {limit:.0e}")


async def rebuilt_memory(bench: TalkerBench, say: Outcomes) -> None:
    """Compare a turn whose memory was fed anew before each unit with the recorded one."""
    name, talker = SessionId("rebuilt"), bench.talker(RECORDED_RULES)
    await talker.open(name)
    equal, vectors = 0, greedy_units()
    for number, one in enumerate(vectors):
        if not one.speech.turn_start:
            await bench.engine.replace(name, bench.engine.held(name))
        equal += (await _speak(talker, name, one.speech, number, None)).codes == one.codes
    await talker.close(name)
    say.say("memory fed anew", equal == len(vectors), f"{equal} of {len(vectors)} units")


async def full_turn(bench: TalkerBench, say: Outcomes) -> None:
    """Compare a turn that has no more room with one that began with its last unit."""
    vectors = greedy_units()[:3]
    full, fresh = bench.talker(RECORDED_RULES, room=60), bench.talker(RECORDED_RULES)
    both = ((full, SessionId("full")), (fresh, SessionId("fresh")))
    for talker, name in both:
        await talker.open(name)
        for number, one in enumerate(vectors[:2]):
            await _speak(talker, name, one.speech, number, None)
    held = bench.engine.held("fresh")
    await bench.engine.replace("fresh", held[-2:])
    last = [await _speak(talker, name, vectors[2].speech, 2, None) for talker, name in both]
    for talker, name in both:
        await talker.close(name)
    is_so = last[0].codes == last[1].codes != vectors[2].codes
    is_so = is_so and last[0].first_position == last[1].first_position
    detail = f"{len(last[0].codes)} codes behind {last[0].first_position} positions"
    say.say("a turn beyond its room goes on from its last unit", is_so, detail)


async def rows_of_a_batch(
    bench: TalkerBench, together: int, device: str, say: Outcomes
) -> Mapping[str, Sequence[UnitSeen]]:
    """Compare sessions beside each other with themselves alone; return them alone."""
    await bench.engine.call_worker("bench_shapes")
    alone = await _all(bench, together, at_once=False)
    beside = await _all(bench, together, at_once=True)
    (shapes,) = await bench.engine.call_worker("bench_shapes")
    again = await _all(bench, together, at_once=True)
    await bench.engine.call_worker("bench_keep", True)
    kept = await _all(bench, together, at_once=False)
    rows = await bench.rows()
    kept_beside = await _all(bench, together, at_once=True)
    rows_beside = await bench.rows()
    await bench.engine.call_worker("bench_keep", False)
    stop = bench.config.tts.num_audio_tokens - 1
    filled = [(a, b, c) for a, b, c in shapes if a == together and b > a]
    if device == "cuda":
        steps = ", ".join(f"{c} steps of {a} in {b}" for a, b, c in shapes if b > a)
        say.say(f"{together} together: batches were filled up", bool(filled), steps or "none")
    every = [unit for units in alone.values() for unit in units]
    lengths = [len(unit.sampled) for unit in every]
    stopped = sum(unit.is_stopped for unit in every)
    say.note(
        f"{together} sessions, greedy and drawn, turn ends beside other units",
        f"{len(every)} units of {min(lengths)} to {max(lengths)} steps, {stopped} ended by the "
        "stop code",
    )
    for what, found in (("alone again", kept), ("beside", beside), ("beside again", again)):
        compared = compare(alone, found, rows, _PEAKED, stop)
        is_so = not compared.wrong and compared.ties <= len(every) // 10
        say.say(f"{together} sessions {what}: codes, ends, places", is_so, compared.said)
    apart = largest_difference(kept, kept_beside, rows, rows_beside)
    limit = LOGITS_ALIKE[device]
    detail = f"at most {apart:.1e} apart, allowed {limit:.0e}"
    say.say(f"{together} sessions beside: logits", apart < limit, detail)
    return alone


async def without_graphs(
    bench: TalkerBench,
    graphs: Mapping[int, Mapping[str, Sequence[UnitSeen]]],
    say: Outcomes,
) -> None:
    """Compare what CUDA graphs made with what each kernel on its own makes."""
    stop = bench.config.tts.num_audio_tokens - 1
    for together, wanted in graphs.items():
        await bench.engine.call_worker("bench_keep", True)
        await _all(bench, together, at_once=False)
        rows = await bench.rows()
        await bench.engine.call_worker("bench_keep", False)
        found = await _all(bench, together, at_once=True)
        compared = compare(wanted, found, rows, _PEAKED, stop)
        counted = sum(map(len, wanted.values()))
        is_so = not compared.wrong and compared.ties <= counted // 5
        what = f"{together} sessions beside without graphs, alone with them"
        say.say(what, is_so, compared.said)


async def _all(bench: TalkerBench, together: int, *, at_once: bool) -> dict[str, list[UnitSeen]]:
    """Speak all sessions, at once or one after the other."""
    talker = bench.talker(SERVING_RULES, _PEAKED)
    works = [_session(bench, talker, at) for at in range(together)]
    if at_once:
        done = await asyncio.gather(*works)
    else:
        done = [await work for work in works]
    return {f"row{at}": units for at, units in enumerate(done)}


async def _session(bench: TalkerBench, talker: Talker, at: int) -> list[UnitSeen]:
    """Speak a session's units; the first session's are the likeliest codes, others' are drawn."""
    name = SessionId(f"row{at}")
    bench.engine.done[name] = []
    await talker.open(name)
    seen: list[UnitSeen] = []
    for number, speech in enumerate(_units(at)):
        seed = None if at == 0 else 1000 * at + number
        unit = await _speak(talker, name, speech, number, seed)
        done = bench.engine.done[name][-1]
        limits = talker_limits(
            SERVING_RULES,
            stop=bench.config.tts.num_audio_tokens - 1,
            is_first=speech.turn_start,
            is_last=speech.turn_end,
        )
        seen.append(
            UnitSeen(
                sampled=done.token_ids,
                is_stopped=done.stop is StopReason.STOP_TOKEN,
                first_position=unit.first_position,
                is_first=speech.turn_start,
                seed=seed,
                stop_masked=tuple(map(limits.masks_stop, range(len(done.token_ids)))),
            )
        )
    await talker.close(name)
    return seen


def _units(at: int) -> list[Speech]:
    """Return a session's units: turns of one to four, so that they end beside others' middles."""
    vectors = greedy_units()
    order = [(at + 3 * step) % len(vectors) for step in range(9)]
    length = at % 4 + 1
    return [
        replace(
            vectors[one].speech,
            turn_start=place % length == 0,
            turn_end=place % length == length - 1,
        )
        for place, one in enumerate(order)
    ]


async def _speak(
    talker: Talker, name: SessionId, speech: Speech, number: int, seed: int | None
) -> UnitCodes:
    request = RequestId(f"{name}/{number}")
    return await talker.speak(name, speech, request_id=request, seed=seed, deadline_s=0.0)
