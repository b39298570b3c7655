"""The page on the real gateway and kernel, with the scripted model behind real doors.

The microphone plays a second of voice once, or every four seconds; in the second case a long answer
is interrupted by the next question without anybody's help.
"""

from array import array
from pathlib import Path

import pytest
from playwright.async_api import expect

from session.config import SessionLimits
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
from tests.browser.canned_service import tone
from tests.fakes.server import Service, serving
from tests.fakes.stages import ScriptedDirectory
from tests.support.lossy_road import lossy_road

pytestmark = [pytest.mark.browser]


def silence(seconds: float) -> "array[int]":
    return array("h", bytes(2 * int(MIC_RATE_HZ * seconds)))


def voice() -> "array[int]":
    return array("h", tone(1000, rate_hz=MIC_RATE_HZ))


@pytest.fixture
def one_question(tmp_path: Path) -> Visitor:
    recording = write_recording(tmp_path / "one.wav", silence(0.5) + voice() + silence(120))
    return Visitor(microphone=recording, loops=False)


@pytest.fixture
def a_question_every_four_seconds(tmp_path: Path) -> Visitor:
    recording = write_recording(tmp_path / "more.wav", silence(0.5) + voice() + silence(2.5))
    return Visitor(microphone=recording)


def address(service: Service) -> str:
    return f"http://127.0.0.1:{service.port}/"


async def test_a_question_is_answered_and_the_answer_interrupted(
    a_question_every_four_seconds: Visitor,
) -> None:
    directory = ScriptedDirectory(sentences=3, sentence_ms=4000, sentence="Part {part} of {parts}.")
    async with (
        serving(directory) as service,
        open_page("about:blank", a_question_every_four_seconds) as page,
    ):
        tap = Tap(page)
        await page.goto(address(service))
        await expect(page.locator("#model")).to_have_text("scripted")
        await page.get_by_role("button", name="Start").click()
        await passes(page, "listening", "hearing", "speaking")
        answer = page.locator("[data-role=assistant]").first
        await expect(answer.locator(".said")).to_contain_text("Part")
        assert int(await fact(page, "latencyMs") or 0) > 0
        # The microphone speaks again, four seconds after the first time.
        await expect(answer).to_have_attribute("data-status", "cut")
        await expect(answer.locator(".unsaid")).not_to_be_empty()
        response_id = await answer.get_attribute("data-response") or ""
        heard_ms = int(await answer.get_attribute("data-heard-ms") or 0)
        assert 0 < heard_ms < 12_000
        # And is answered again.
        await expect(page.locator("[data-role=assistant]").nth(1)).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await state(page, "idle")
        await service.idle()
        done = next(e for e in tap.all("response.done") if e["response_id"] == response_id)
        assert done["response"]["status"] == "cancelled"
        # The service knows exactly how far the answer was heard, and keeps just that.
        assert tap.acknowledged(response_id)[-1]["playback"]["committed_ms"] == heard_ms
        assert tap.all("error") == []
        assert tap.all("session.closed")[-1]["reason"] == "client_close"


async def test_an_answer_heard_to_its_end_is_acknowledged_to_its_end(
    one_question: Visitor,
) -> None:
    directory = ScriptedDirectory(sentences=2, sentence_ms=333, chunk_ms=111)
    async with serving(directory) as service, open_page("about:blank", one_question) as page:
        tap = Tap(page)
        await page.goto(address(service))
        await page.get_by_role("button", name="Start").click()
        answer = page.locator("[data-role=assistant]").first
        await expect(answer).to_have_attribute("data-status", "done")
        await expect(answer.locator(".unsaid")).to_be_empty()
        response_id = await answer.get_attribute("data-response") or ""
        await page.get_by_role("button", name="Stop").click()
        await state(page, "idle")
        last = tap.acknowledged(response_id)[-1]
        assert last["playback"]["committed_ms"] == last["playback"]["sent_ms"] > 0
        assert last["history_committed"] is True
        deltas = [e["delta"] for e in tap.all("response.audio_transcript.delta")
                  if e["response_id"] == response_id]  # fmt: skip
        assert await answer.locator(".said").text_content() == "".join(deltas)
        assert tap.all("error") == []


async def test_an_answer_over_a_road_that_breaks_is_heard_to_its_end(
    one_question: Visitor,
) -> None:
    directory = ScriptedDirectory(sentences=3, sentence_ms=1000, sentence="Part {part}.")
    async with (
        serving(directory, limits=SessionLimits()) as service,
        lossy_road(service.port) as road,
        open_page("about:blank", one_question) as page,
    ):
        tap = Tap(page)
        await page.goto(f"http://127.0.0.1:{road.port}/")
        await page.get_by_role("button", name="Start").click()
        await state(page, "speaking")
        road.cut()
        answer = page.locator("[data-role=assistant]").first
        await expect(answer).to_have_attribute("data-status", "done")
        await expect(answer.locator(".said")).to_have_text("Part 1. Part 2. Part 3.")
        response_id = await answer.get_attribute("data-response") or ""
        # An answer that had come before the cut is heard to its end without the road.
        await tap.until("session.resumed")
        await page.get_by_role("button", name="Stop").click()
        await state(page, "idle")
        await service.idle()
        last = tap.acknowledged(response_id)[-1]
        assert last["playback"]["committed_ms"] == last["playback"]["sent_ms"] > 0
        assert len(tap.all("session.resumed")) == 1
        assert tap.all("error") == []
        seqs = [e["server_event_seq"] for e in tap.all("session.event_ack")]
        # The first thing over the new socket is what was acknowledged last, once more.
        assert seqs == sorted(seqs)
        assert len(seqs) - len(set(seqs)) <= 1
        assert tap.all("session.closed")[-1]["reason"] == "client_close"


async def test_a_typed_question_is_answered() -> None:
    directory = ScriptedDirectory(sentences=1, sentence="You wrote: {said}")
    async with serving(directory) as service, open_page(address(service)) as page:
        await page.get_by_role("button", name="Start").click()
        await state(page, "listening")
        await page.get_by_role("button", name="Mute", exact=True).click()
        await page.get_by_label("Message").fill("Good morning.")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("[data-role=user] .words").last).to_have_text("Good morning.")
        await expect(page.locator("[data-role=assistant] .said").last).to_have_text(
            "You wrote: Good morning."
        )


async def test_a_full_service_is_told_from_the_real_refusal() -> None:
    directory = ScriptedDirectory(max_sessions=1)
    async with serving(directory) as service, open_page(address(service)) as page:
        async with service.dial() as line:
            await line.send('{"type": "session.update", "session": {}}')
            await line.recv()
            await page.get_by_role("button", name="Start").click()
            await state(page, "error")
            assert await fact(page, "problem") == "full"
            await expect(page.get_by_role("alert")).to_contain_text("full (1 session)")
        await service.until_open(0)
        await page.get_by_role("button", name="Try again").click()
        await state(page, "listening")


async def test_a_key_is_asked_for_and_taken() -> None:
    directory = ScriptedDirectory()
    async with (
        serving(directory, api_keys=("sk-page-1",), allow_unauthenticated=False) as service,
        open_page(address(service)) as page,
    ):
        await page.get_by_label("API key").fill("sk-page-1")
        await page.keyboard.press("Enter")
        await state(page, "listening")
        await expect(page.locator("#model")).to_have_text("scripted")


async def test_the_service_goes_away() -> None:
    directory = ScriptedDirectory()
    async with serving(directory) as service, open_page(address(service)) as page:
        await page.get_by_role("button", name="Start").click()
        await state(page, "listening")
        await service.gateway.close()
        await state(page, "error")
        await expect(page.get_by_role("alert").get_by_role("button")).to_be_visible()
