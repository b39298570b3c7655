"""The page comes back to its session after a lost connection."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsers import fact, open_page, state
from tests.browser.canned_service import CannedClient, CannedService

pytestmark = [pytest.mark.browser]


async def begin(page: Page, service: CannedService) -> CannedClient:
    """Press Start with a service that resumes, and wait until the page listens."""
    service.resumes = True
    await page.get_by_role("button", name="Start").click()
    client = await service.client()
    await state(page, "listening")
    return client


async def test_an_answer_that_is_cut_in_its_middle_is_heard_whole(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.begin("resp-1")
        await client.speak("resp-1", [("One, two, ", 1500)])
        await client.until(lambda c: bool(c.acks("resp-1")))
        await client.cut()
        # The voice goes on, and what is made in the gap is not lost.
        await client.speak("resp-1", [("three, four, ", 1000)])
        await client.until(lambda c: bool(c.all("session.resume")))
        total_ms = await client.speak("resp-1", [("five.", 500)])
        await client.finish("resp-1")
        await client.until(lambda c: c.acks("resp-1")[-1:] == [total_ms])
        answer = page.locator("[data-response=resp-1]")
        await expect(answer).to_have_attribute("data-status", "done")
        await expect(answer.locator(".said")).to_have_text("One, two, three, four, five.")
        assert await fact(page, "session") == client.session["id"]
        assert await fact(page, "problem") is None
        await expect(page.locator(".rule")).to_have_count(0)
        # The microphone goes on, the page says how far it has come, and it closes politely.
        await client.next("input_audio_buffer.append", 3)
        await page.get_by_role("button", name="Stop").click()
        await state(page, "idle")
        assert client.all("session.event_ack")
        assert client.received[-1]["type"] in {"session.close", "session.event_ack"}
        assert len(client.all("session.close")) == 1
        assert service.attempts == 2


async def test_a_long_gap_is_shown_and_what_was_said_in_it_is_sent(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.next("input_audio_buffer.append", 2)
        service.is_away = True
        await client.cut()
        sent = len(client.all("input_audio_buffer.append"))
        await state(page, "reconnecting")
        await expect(page.locator("#state")).to_have_text("Reconnecting…")
        # That shows after a second. From now on nothing more is recorded.
        await page.get_by_role("button", name="Mute", exact=True).click()
        service.is_away = False
        await client.until(lambda c: bool(c.all("session.resume")))
        await state(page, "muted")
        await client.until(lambda c: len(c.all("input_audio_buffer.append")) - sent >= 4)
        kinds = [event["type"] for event in client.received]
        after = kinds[kinds.index("session.resume") + 1 :]
        # Of an event that had come before the gap nothing is asked for again.
        assert client.all("session.resume")[0]["last_received_server_event_seq"] == 1
        # First a word that ends the token which the new socket came with.
        assert after[:2] == ["session.event_ack", "input_audio_buffer.append"]


async def test_a_conversation_with_a_hole_goes_on_without_fragments(service: CannedService) -> None:
    service.session["turn_detection"]["interrupt_response"] = False
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.begin("half")
        await client.speak("half", [("One, two, ", 60_000)])
        await client.send("input_audio_buffer.speech_started", audio_start_ms=0, item_id="item-1")
        await client.until(lambda c: bool(c.acks("half")))
        await client.cut()
        await client.speak("half", [("three, ", 1000)])
        await client.begin("headless")
        last = client.forget()
        await client.until(lambda c: len(c.all("session.resume")) == 2)
        asked = [e["last_received_server_event_seq"] for e in client.all("session.resume")]
        assert asked[1] == last > asked[0]
        await expect(page.locator("#toast")).to_contain_text("a part is missing")
        # What is left of the one and the other is not heard, and not shown.
        for response_id in ("half", "headless"):
            await client.speak(response_id, [("five.", 500)])
            await client.finish(response_id)
        total_ms = await client.answer("whole", [("Again.", 400)])
        await client.until(lambda c: c.acks("whole")[-1:] == [total_ms])
        half = page.locator("[data-response=half]")
        await expect(half).to_have_attribute("data-status", "cut")
        await expect(half).not_to_contain_text("five.")
        await expect(page.locator("[data-response=headless]")).to_have_count(0)
        await expect(page.locator("[data-response=whole] .said")).to_have_text("Again.")
        assert client.acks("headless") in ([], [0])
        assert client.acks("half")[-1] < 60_000
        await expect(page.locator("[data-item=item-1]")).to_have_attribute("data-status", "waiting")
        assert await fact(page, "session") == client.session["id"]


async def test_a_service_that_stays_away_is_told_after_five_attempts(
    service: CannedService,
) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        service.is_away = True
        await client.cut()
        await state(page, "error")
        assert await fact(page, "problem") == "dropped"
        assert service.attempts == 6
        service.is_away = False
        await page.get_by_role("button", name="Reconnect").click()
        again = await service.client()
        await state(page, "listening")
        assert again.session["id"] != client.session["id"]


async def test_a_session_that_is_gone_is_told_at_once(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        service.resume_refusal = "session_resume_expired"
        await client.cut()
        await state(page, "error")
        assert await fact(page, "problem") == "dropped"
        assert service.attempts == 2


async def test_a_session_that_another_takes_over_is_told(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.send("session.replaced", session_id=client.session["id"])
        await client.socket.close(1000, "session_replaced")
        await state(page, "error")
        await expect(page.get_by_role("alert")).to_contain_text("Another connection took it over.")
        assert service.attempts == 1


async def test_stopping_within_a_gap_ends_it(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        service.is_away = True
        await client.cut()
        await state(page, "reconnecting")
        await page.get_by_role("button", name="Stop").click()
        await state(page, "idle")
        assert client.all("session.resume") == []


async def test_a_reload_begins_a_new_session_and_closes_the_old(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await page.reload()
        await client.socket.wait_closed()
        again = await begin(page, service)
        assert len(client.all("session.close")) == 1
        assert again.session["id"] != client.session["id"]


async def test_delays_have_bounds_and_old_audio_makes_room(service: CannedService) -> None:
    async with open_page(service.url) as page:
        found = await page.evaluate("""async () => {
            const { delayMs, Kept } = await import("./resume.js");
            const kept = new Kept();
            for (let n = 0; n < 60; n += 1) {
                kept.add({ n }, 200);
                if (n % 20 === 0) kept.add({ ack: n });
            }
            const { audioMs, droppedMs } = kept;
            return {
                shortest: [0, 1, 2, 3, 4].map((attempt) => delayMs(attempt, 0)),
                longest: [0, 1, 2, 3, 4].map((attempt) => delayMs(attempt, 1)),
                audioMs, droppedMs,
                events: kept.take(),
                left: kept.take(),
            };
        }""")
    assert found["shortest"] == [250] * 5
    assert found["longest"] == [500, 1000, 2000, 4000, 4000]
    assert (found["audioMs"], found["droppedMs"]) == (10_000, 2_000)
    # The ten oldest of sixty chunks are gone, and nothing else.
    assert [event["n"] for event in found["events"] if "n" in event] == list(range(10, 60))
    assert [event["ack"] for event in found["events"] if "ack" in event] == [0, 20, 40]
    assert found["left"] == []


async def test_a_burst_of_events_is_acknowledged_at_once(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        for _ in range(50):
            await client.send("rate_limits.updated", rate_limits=[])
        await client.until(
            lambda c: (
                bool(c.all("session.event_ack"))
                and c.all("session.event_ack")[-1]["server_event_seq"] == 51
            )
        )
        seqs = [event["server_event_seq"] for event in client.all("session.event_ack")]
        assert seqs == sorted(set(seqs))
        assert len(seqs) < 50


async def test_an_event_that_came_before_is_not_heard_twice(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.begin("resp-1")
        total_ms = await client.speak("resp-1", [("Once.", 600)])
        await client.repeat()
        await client.finish("resp-1")
        answer = page.locator("[data-response=resp-1]")
        await expect(answer).to_have_attribute("data-status", "done")
        await expect(answer.locator(".said")).to_have_text("Once.")
        await client.until(lambda c: c.acks("resp-1")[-1:] == [total_ms])
