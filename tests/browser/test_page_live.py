"""The page, a running service with the embedded model, and a voice: does it hear, and is it heard?

The question is spoken by the synthesiser that the embedded model itself speaks with, so the words
are clear; the microphone, the browser's own processing of it, the wire, recognition, the answer and
its playback are the real ones.
"""

import base64
from array import array
from pathlib import Path

import numpy as np
import pytest
import soxr
from hibari import Hibari
from playwright.async_api import Page, expect

from tests.browser.browsers import (
    MIC_RATE_HZ,
    Tap,
    Visitor,
    fact,
    open_page,
    passes,
    state,
    write_recording,
)

pytestmark = [pytest.mark.browser, pytest.mark.serve]

ON_DEMAND = """() => {
    // A microphone that is silent until the test speaks into it with `window.speak(base64)`.
    const context = new AudioContext({sampleRate: 48000});
    const out = context.createMediaStreamDestination();
    const floor = new ConstantSourceNode(context, {offset: 0});
    floor.connect(out);
    floor.start();
    navigator.mediaDevices.getUserMedia = async () => {
        await context.resume();
        return out.stream;
    };
    window.speak = (base64) => {
        const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
        const samples = new Int16Array(bytes.buffer);
        const buffer = context.createBuffer(1, samples.length, 48000);
        buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32768), 0);
        const source = new AudioBufferSourceNode(context, {buffer});
        source.connect(out);
        source.start();
    };
}"""


NOTE_LOUDEST = """() => {
    const meter = document.getElementById("meter-other");
    window.loudest = 0;
    new MutationObserver(() => {
        window.loudest = Math.max(window.loudest, meter.getAttribute("aria-valuenow"));
    }).observe(meter, { attributes: true });
}"""


class Speaker:
    """Says sentences as PCM16 at the microphone's rate."""

    def __init__(self) -> None:
        self._hibari = Hibari()

    def say(self, text: str) -> "array[int]":
        voice = soxr.resample(np.asarray(self._hibari(text), np.float32), 24_000, MIC_RATE_HZ)
        return array("h", (np.clip(voice, -1, 1) * 32_767).astype("<i2").tobytes())

    def encoded(self, text: str) -> str:
        return base64.b64encode(self.say(text).tobytes()).decode()


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker()


def silence(seconds: float) -> "array[int]":
    return array("h", bytes(2 * int(MIC_RATE_HZ * seconds)))


async def test_it_repeats_what_it_is_told(
    live_service_url: str, speaker: Speaker, tmp_path: Path
) -> None:
    question = silence(2) + speaker.say("Repeat after me: the sky is blue today.") + silence(120)
    recording = write_recording(tmp_path / "question.wav", question)
    async with open_page("about:blank", Visitor(microphone=recording, loops=False)) as page:
        tap = Tap(page)
        await page.goto(live_service_url)
        await page.evaluate(NOTE_LOUDEST)
        await page.get_by_role("button", name="Start").click()
        await passes(page, "hearing", "speaking")
        # It is heard: the meter of what is played rises.
        await page.wait_for_function("() => window.loudest > 20")
        answer = page.locator("[data-role=assistant]").first
        await expect(answer).to_have_attribute("data-status", "done")
        await expect(page.locator("[data-role=user] .words").first).to_contain_text("sky is blue")
        assert "sky is blue" in (await answer.locator(".said").inner_text()).lower()
        assert int(await fact(page, "latencyMs") or 0) > 0
        response_id = await answer.get_attribute("data-response") or ""
        await stop(page)
        last = tap.acknowledged(response_id)[-1]
        assert last["playback"]["committed_ms"] == last["playback"]["sent_ms"] > 0
        assert tap.all("error") == []


async def test_it_stops_when_it_is_interrupted(live_service_url: str, speaker: Speaker) -> None:
    async with open_page("about:blank") as page:
        tap = Tap(page)
        await page.goto(live_service_url)
        await page.evaluate(ON_DEMAND)
        await page.get_by_role("button", name="Start").click()
        await state(page, "listening")
        await page.evaluate("speak", speaker.encoded("Count from one to fifty."))
        await state(page, "speaking")
        answer = page.locator("[data-role=assistant]").first
        await expect(answer.locator(".said")).to_contain_text("three")
        await page.evaluate("speak", speaker.encoded("Thank you, that is enough."))
        await expect(answer).to_have_attribute("data-status", "cut")
        assert "fifty" not in await answer.locator(".said").inner_text()
        response_id = await answer.get_attribute("data-response") or ""
        heard_ms = int(await answer.get_attribute("data-heard-ms") or 0)
        await state(page, "listening")
        await stop(page)
        assert tap.acknowledged(response_id)[-1]["playback"]["committed_ms"] == heard_ms
        done = next(e for e in tap.all("response.done") if e["response_id"] == response_id)
        assert done["response"]["status"] == "cancelled"
        assert tap.all("error") == []


async def test_a_typed_question_is_answered_aloud(live_service_url: str) -> None:
    async with open_page("about:blank") as page:
        await page.goto(live_service_url)
        await page.evaluate(ON_DEMAND)
        await page.get_by_role("button", name="Start").click()
        await state(page, "listening")
        await page.get_by_label("Message").fill("What is twelve times nine?")
        await page.keyboard.press("Enter")
        await passes(page, "listening", "speaking")
        answer = page.locator("[data-role=assistant]").first
        await expect(answer).to_have_attribute("data-status", "done")
        assert "eight" in (await answer.locator(".said").inner_text()).lower()
        await stop(page)


async def stop(page: Page) -> None:
    await page.get_by_role("button", name="Stop").click()
    await state(page, "idle")
