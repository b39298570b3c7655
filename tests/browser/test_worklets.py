"""The audio worklets, sample by sample, in an offline context of the real browser."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from playwright.async_api import Page

from tests.browser.browsers import open_page
from tests.browser.canned_service import CannedService

pytestmark = [pytest.mark.browser]

ECHO = """
    // Added before a worklet: its port answers a ping, after everything that came before it.
    const register = globalThis.registerProcessor;
    globalThis.registerProcessor = (name, Processor) => register(name, class extends Processor {
        constructor(options) {
            super(options);
            const obey = this.port.onmessage;
            this.port.onmessage = (event) => {
                if (event.data === "ping") this.port.postMessage("pong");
                else obey.call(this.port, event);
            };
        }
    });
"""
OPEN = """async (context, name, options, hear) => {
    for (const module of ["echo-worklet.js", `${name}-worklet.js`]) {
        await context.audioWorklet.addModule(module);
    }
    const node = new AudioWorkletNode(context, name, options);
    let answered;
    node.port.onmessage = ({data}) => data === "pong" ? answered() : hear(data);
    node.settled = () => new Promise((done) => {
        answered = done;
        node.port.postMessage("ping");
    });
    return node;
}"""
"""Opens a worklet; `settled` waits until what was sent to it has come, and what it sent before."""

PLAY = f"""async ({{rate, frames, commands, scale}}) => {{
    const context = new OfflineAudioContext(1, frames, rate);
    const reports = [];
    const player = await ({OPEN})(context, "player", {{
        numberOfInputs: 0, outputChannelCount: [1], processorOptions: {{rateHz: 24000}},
    }}, (report) => reports.push(report));
    player.connect(context.destination);
    for (const {{at, ...command}} of commands) {{
        if (command.samples) {{
            const [from, to] = command.samples;
            command.samples = Int16Array.from({{length: to - from}}, (_, n) =>
                scale * Math.sin(2 * Math.PI * 440 * (from + n) / 24000));
        }}
        if (at === undefined) player.port.postMessage(command);
        else context.suspend(at).then(async () => {{
            player.port.postMessage(command);
            await player.settled();
            context.resume();
        }});
    }}
    await player.settled();
    const buffer = await context.startRendering();
    await player.settled();
    return {{reports, output: Array.from(buffer.getChannelData(0))}};
}}"""

CAPTURE = f"""async ({{rate, target, hz, seconds}}) => {{
    const context = new OfflineAudioContext(1, rate * seconds, rate);
    const chunks = [];
    const mic = await ({OPEN})(context, "mic", {{
        processorOptions: {{rateHz: target, chunkMs: 200}},
    }}, (chunk) => chunks.push(Array.from(new Int16Array(chunk))));
    const source = new OscillatorNode(context, {{frequency: hz}});
    source.connect(mic).connect(context.destination);
    source.start();
    await context.startRendering();
    await mic.settled();
    return chunks;
}}"""

FADE_FRAMES = 96


def sine(count: int, *, rate: int = 24_000, hz: float = 440.0) -> list[float]:
    return [math.sin(2 * math.pi * hz * n / rate) for n in range(count)]


@asynccontextmanager
async def opened(service: CannedService) -> AsyncIterator[Page]:
    """Open the page, whose service has one more worklet."""
    service.scripts["/echo-worklet.js"] = ECHO
    async with open_page(service.url) as page:
        yield page


async def play(page: Page, commands: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    arguments = {"rate": 24_000, "frames": 24_000, "scale": 16_384, "commands": commands}
    played: dict[str, Any] = await page.evaluate(PLAY, {**arguments, **options})
    return played


async def test_chunks_are_played_without_a_gap(service: CannedService) -> None:
    cuts = [0, 2400, 2401, 5000, 9999, 16_000]
    pieces: list[dict[str, Any]] = [{"play": "a", "samples": [a, b]} for a, b in pairwise(cuts)]
    async with opened(service) as page:
        played = await play(page, [*pieces, {"finish": "a"}])
    output = played["output"]
    expected = [0.5 * value for value in sine(16_000)]
    start = next(n for n, value in enumerate(output) if value != 0) - 2
    # Sample by sample the same, after the fade-in, up to the last one before the fade-out.
    for n in range(FADE_FRAMES, 15_999):
        assert output[start + 1 + n] == pytest.approx(expected[n], abs=1e-4), n
    end = played["reports"][-1]
    assert end["kind"] == "end"
    assert end["samples"] == 16_000


async def test_reports_rise_and_end_with_everything(service: CannedService) -> None:
    commands: list[dict[str, Any]] = [
        {"play": "a", "samples": [0, 8000]},
        {"finish": "a"},
        {"play": "b", "samples": [0, 4000]},
        {"finish": "b"},
    ]
    async with opened(service) as page:
        played = await play(page, commands)
    for name, total in (("a", 8000), ("b", 4000)):
        reports = [report for report in played["reports"] if report["id"] == name]
        samples = [report["samples"] for report in reports]
        assert samples == sorted(samples)
        assert samples[0] == 0
        assert samples[-1] == total
        assert [report["kind"] for report in reports].count("end") == 1
        for report in reports[1:]:
            # No more can have been played than time has passed.
            elapsed = report["time"] - reports[0]["time"]
            assert report["samples"] <= elapsed * 24_000 + 1


async def test_a_cut_is_silent_at_once_and_exact(service: CannedService) -> None:
    commands: list[dict[str, Any]] = [
        {"play": "a", "samples": [0, 24_000]},
        {"cut": "a", "at": 0.32},
    ]
    async with opened(service) as page:
        played = await play(page, commands)
    output = played["output"]
    cut = played["reports"][-1]
    assert cut["kind"] == "cut"
    start = next(n for n, value in enumerate(output) if value != 0) - 2
    silent_from = max(n for n, value in enumerate(output) if value != 0) + 1
    # What is reported as played is what was played, fade aside.
    assert abs(silent_from - start - cut["samples"]) <= FADE_FRAMES + 2
    assert silent_from <= 0.32 * 24_000 + 128 + FADE_FRAMES
    steps = [abs(b - a) for a, b in pairwise(output)]
    assert max(steps) < 0.1  # a 440 Hz sine at half scale moves 0.058 a sample: no click


async def test_one_answer_can_be_cut_and_the_other_goes_on(service: CannedService) -> None:
    commands: list[dict[str, Any]] = [
        {"play": "a", "samples": [0, 4800]},
        {"finish": "a"},
        {"play": "b", "samples": [0, 4800]},
        {"cut": "b"},
    ]
    async with opened(service) as page:
        played = await play(page, commands)
    kinds = [(report["id"], report["kind"], report["samples"]) for report in played["reports"]]
    assert ("b", "cut", 0) in kinds
    assert kinds[-1] == ("a", "end", 4800)


async def test_it_waits_for_more_after_running_dry(service: CannedService) -> None:
    commands: list[dict[str, Any]] = [
        {"play": "a", "samples": [0, 4800]},
        {"play": "a", "samples": [4800, 9600], "at": 0.512},
        {"finish": "a", "at": 0.64},
    ]
    async with opened(service) as page:
        played = await play(page, commands)
    output = played["output"]
    assert max(abs(value) for value in output[5200:12_000]) == 0
    assert max(abs(value) for value in output[12_600:16_000]) > 0.49
    assert played["reports"][-1]["samples"] == 9600
    steps = [abs(b - a) for a, b in pairwise(output)]
    assert max(steps) < 0.1


async def test_a_context_of_another_rate_hears_the_same_tone(service: CannedService) -> None:
    commands: list[dict[str, Any]] = [{"play": "a", "samples": [0, 24_000]}, {"finish": "a"}]
    async with opened(service) as page:
        played = await play(page, commands, rate=44_100, frames=48_000)
    output = played["output"][1000:41_000]
    crossings = sum(1 for a, b in pairwise(output) if a < 0 <= b)
    assert crossings == pytest.approx(440 * 40_000 / 44_100, abs=1)
    steps = [abs(b - a) for a, b in pairwise(output)]
    assert max(steps) < 0.5 * 2 * math.pi * 440 / 44_100 * 1.2
    assert played["reports"][-1]["samples"] == 24_000


@pytest.mark.parametrize(
    ("rate", "target"), [(48_000, 48_000), (44_100, 44_100), (96_000, 48_000), (88_200, 48_000)]
)
async def test_the_microphone_is_cut_into_equal_chunks(
    service: CannedService, rate: int, target: int
) -> None:
    async with opened(service) as page:
        chunks = await page.evaluate(
            CAPTURE, {"rate": rate, "target": target, "hz": 500, "seconds": 1}
        )
    assert {len(chunk) for chunk in chunks} == {target // 5}
    assert len(chunks) >= 4
    samples = [value for chunk in chunks[:4] for value in chunk]
    crossings = sum(1 for a, b in pairwise(samples) if a < 0 <= b)
    assert crossings == pytest.approx(500 * len(samples) / target, abs=1)
    assert max(samples) == pytest.approx(32_767, rel=0.02)
    steps = [abs(b - a) for a, b in pairwise(samples)]
    assert max(steps) < 32_767 * 2 * math.pi * 500 / target * 1.1


async def test_a_tone_above_half_the_rate_is_dampened(service: CannedService) -> None:
    async with opened(service) as page:
        low, high = [
            await page.evaluate(CAPTURE, {"rate": 96_000, "target": 48_000, "hz": hz, "seconds": 1})
            for hz in (1_000, 45_000)
        ]
    assert max(high[2]) < 0.15 * max(low[2])
