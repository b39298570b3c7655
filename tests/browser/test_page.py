"""The page in a real browser, against a service that says what each test wants."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsers import Visitor, fact, open_page, passes, state
from tests.browser.canned_service import CannedClient, CannedService

pytestmark = [pytest.mark.browser]

Signal = Literal["speech_started", "response_cancelled", "output_cleared", "overlap_decision"]

LONG_ANSWER = [
    ("On average about ", 1000),
    ("three thousand seven hundred metres, ", 2000),
    ("and in the deepest trench ", 2000),
    ("nearly eleven kilometres, ", 2000),
    ("which is deep.", 23_000),
]
"""Half a minute: a test that cuts it in its middle has time to come."""


async def begin(page: Page, service: CannedService) -> CannedClient:
    """Press Start and wait until the page listens."""
    await page.get_by_role("button", name="Start").click()
    client = await service.client()
    await state(page, "listening")
    return client


async def interrupted_answer(page: Page, client: CannedClient) -> None:
    """Let an answer of 30 s begin, and wait until a second of it has been heard."""
    await client.begin("resp-1")
    await client.speak("resp-1", LONG_ANSWER)
    await client.until(lambda c: bool(c.acks("resp-1")) and c.acks("resp-1")[-1] > 1000)
    await state(page, "speaking")


async def played_out(page: Page) -> None:
    await state(page, "listening")


async def test_the_first_message_carries_the_settings_and_audio_follows(
    service: CannedService, hum: Path
) -> None:
    async with open_page(service.url, Visitor(microphone=hum)) as page:
        client = await begin(page, service)
        settings = client.received[0]
        assert settings["type"] == "session.update"
        session = settings["session"]
        rate_hz = session["audio"]["input"]["format"]["rate"]
        assert rate_hz == await page.evaluate("new AudioContext().sampleRate")
        assert session == {
            "modalities": ["audio", "text"],
            "turn_detection": {"type": "server_vad"},
            "audio": {
                "input": {"format": {"type": "audio/pcm", "rate": rate_hz}},
                "output": {"format": {"type": "audio/pcm", "rate": 24_000}},
            },
            "playback_commit_policy": "ack_only",
            "extra_body": {"auto_response": True},
        }
        await client.next("input_audio_buffer.append", 5)
        await client.until(lambda c: max(max(chunk) for chunk in c.audio()) > 1000)
        chunks = client.audio()
        assert {len(chunk) for chunk in chunks} == {rate_hz * 200 // 1000}
        assert await fact(page, "model") == "canned-1"
        assert await fact(page, "session") == client.session["id"]
        await expect(page.locator("#model")).to_have_text("canned-1")


async def test_a_question_and_its_answer(service: CannedService, hum: Path) -> None:
    async with open_page(service.url, Visitor(microphone=hum)) as page:
        client = await begin(page, service)
        await client.send("input_audio_buffer.speech_started", audio_start_ms=0, item_id="item_u")
        await state(page, "hearing")
        await client.send("input_audio_buffer.speech_stopped", audio_end_ms=900, item_id="item_u")
        await state(page, "thinking")
        await client.transcribe("item_u", "How deep is the sea?")
        sent_before = len(client.all("input_audio_buffer.append"))
        total_ms = await client.answer("resp-1", LONG_ANSWER[:2])
        answer = page.locator("[data-response=resp-1]")
        # What has not been heard yet is there, but not as said: all three hold at one moment.
        await page.wait_for_function(
            """() => {
                const answer = document.querySelector("[data-response=resp-1]");
                return document.body.dataset.state === "speaking"
                    && answer.dataset.status === "live"
                    && answer.querySelector(".unsaid").textContent !== "";
            }"""
        )
        await played_out(page)
        await client.until(lambda c: c.acks("resp-1")[-1:] == [total_ms])
        await expect(answer).to_have_attribute("data-status", "done")
        await expect(answer.locator(".said")).to_have_text(
            "On average about three thousand seven hundred metres, "
        )
        await expect(answer.locator(".unsaid")).to_be_empty()
        await expect(page.locator("[data-item=item_u] .words")).to_have_text("How deep is the sea?")
        acks = client.acks("resp-1")
        assert all(earlier < later for earlier, later in pairwise(acks))
        assert len(acks) >= 4
        for ack in client.all("playback.ack"):
            assert ack["committed_ms"] == ack["played_ms"]
            assert ack["item_id"] == "item_resp-1"
        # The microphone went on while the assistant spoke: three seconds are fifteen chunks.
        assert len(client.all("input_audio_buffer.append")) - sent_before >= 10
        assert client.kinds() <= {
            "session.update", "input_audio_buffer.append", "playback.ack", "session.heartbeat",
        }  # fmt: skip


async def test_the_latency_is_the_time_from_the_end_of_speech_to_the_first_sound(
    service: CannedService,
) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.hear("item_u", "Well?")
        await state(page, "thinking")  # the end of the speech has come
        assert await fact(page, "latencyMs") is None
        await page.wait_for_timeout(600)
        await client.answer("resp-1", [("Yes.", 400)])
        await page.wait_for_function("() => document.body.dataset.latencyMs")
        latency_ms = int(await fact(page, "latencyMs") or 0)
        assert latency_ms >= 600
        await expect(page.locator("#latency")).to_have_text(f"{latency_ms / 1000:.2f} s")


async def test_an_answer_may_begin_before_the_speech_is_over(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.send("input_audio_buffer.speech_started", audio_start_ms=0, item_id="item_u")
        await client.begin("resp-1")
        await client.speak("resp-1", [("I know. ", 1500)])
        await client.until(lambda c: bool(c.acks("resp-1")))
        await client.send("input_audio_buffer.speech_stopped", audio_end_ms=900, item_id="item_u")
        await client.finish("resp-1")
        # Nothing more is awaited, and there is no such thing as a negative latency.
        await client.until(lambda c: c.acks("resp-1")[-1:] == [1500])
        assert await state(page, "thinking", "listening") == "listening"
        assert await fact(page, "latencyMs") is None


async def test_a_model_that_goes_on_listening_is_not_thinking(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.hear("item_u", "Hm.")
        await state(page, "thinking")
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(client.listen_every(0.3))
            await state(page, "listening")
            listening.cancel()


@pytest.mark.parametrize(
    "signal",
    ["speech_started", "response_cancelled", "output_cleared", "overlap_decision"],
)
async def test_an_interruption_stops_the_voice_and_tells_how_far_it_came(
    service: CannedService, signal: Signal
) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await interrupted_answer(page, client)
        match signal:
            case "speech_started":
                await client.send(
                    "input_audio_buffer.speech_started", audio_start_ms=0, item_id="item_u"
                )
            case "response_cancelled":
                await client.finish("resp-1", "cancelled")
            case "output_cleared":
                await client.send("output_audio_buffer.cleared", response_id="resp-1")
            case "overlap_decision":
                await client.send("overlap.decision", action="barge_in", reason="policy")
        answer = page.locator("[data-response=resp-1]")
        await expect(answer).to_have_attribute("data-status", "cut")
        await passes(page, "speaking", "interrupted")
        # What still arrives of the cut answer is neither played nor shown.
        await client.speak("resp-1", [("too late", 3000)])
        await client.finish("resp-1", "cancelled")
        said = await answer.locator(".said").inner_text()
        unsaid = await answer.locator(".unsaid").inner_text()
        assert (said + unsaid).replace("  ", " ") == "".join(text for text, _ in LONG_ANSWER)
        assert said.startswith("On average")
        assert unsaid.endswith("which is deep.")
        last_ms = client.acks("resp-1")[-1]
        assert 1000 < last_ms < 29_000
        assert await answer.get_attribute("data-heard-ms") == str(last_ms)
        # The next answer is heard at once, and the old one is not acknowledged any further.
        await client.send("input_audio_buffer.speech_stopped", audio_end_ms=900, item_id="item_u")
        total_ms = await client.answer("resp-2", [("As you wish.", 800)])
        await client.until(lambda c: c.acks("resp-2")[-1:] == [total_ms])
        assert client.acks("resp-1")[-1] == last_ms


async def test_speech_is_not_an_interruption_where_the_service_says_so(
    service: CannedService,
) -> None:
    service.session["turn_detection"]["interrupt_response"] = False
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.begin("resp-1")
        total_ms = await client.speak("resp-1", LONG_ANSWER[:1])
        await client.hear("item_u", "mhm")
        await client.finish("resp-1")
        await client.until(lambda c: c.acks("resp-1")[-1:] == [total_ms])
        await expect(page.locator("[data-response=resp-1]")).to_have_attribute(
            "data-status", "done"
        )


async def test_acks_never_run_ahead_of_the_clock(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.begin("resp-1")
        began = client.now()
        await client.speak("resp-1", LONG_ANSWER[:2])
        await client.finish("resp-1")
        await client.until(lambda c: c.acks("resp-1")[-1:] == [3000])
        for at, ack in client.timed("playback.ack"):
            assert ack["played_ms"] <= (at - began) * 1000 + 1


async def test_the_service_marks_which_words_are_spoken_when(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.begin("resp-1")
        # All of the text comes with the first second; the marks spread it over twenty. They count
        # characters, of which the first one is two to JavaScript.
        marks = [
            {"text_chars": 4, "audio_end_ms": 1000},
            {"text_chars": 13, "audio_end_ms": 20_000},
        ]
        await client.speak("resp-1", [("\U0001f30a a, then b, c", 1000)], marks=marks)
        await client.speak("resp-1", [("", 3000)])
        await client.until(lambda c: bool(c.acks("resp-1")) and c.acks("resp-1")[-1] > 1100)
        answer = page.locator("[data-response=resp-1]")
        # The word that is being spoken shows, but when it is cut it was not heard.
        await expect(answer.locator(".said")).to_have_text("\U0001f30a a, then ")
        await client.finish("resp-1", "cancelled")
        await expect(answer).to_have_attribute("data-status", "cut")
        await expect(answer.locator(".said")).to_have_text("\U0001f30a a, ")
        await expect(answer.locator(".unsaid")).to_have_text("then b, c")


async def test_an_answer_in_text_alone_is_shown(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.begin("resp-1")
        await client.send("response.text.delta", response_id="resp-1", delta="In writing.")
        await client.finish("resp-1")
        answer = page.locator("[data-response=resp-1]")
        await expect(answer).to_have_attribute("data-status", "done")
        await expect(answer.locator(".said")).to_have_text("In writing.")
        await state(page, "listening")


async def test_the_newer_names_of_the_deltas_are_understood(service: CannedService) -> None:
    service.audio_name = "response.output_audio"
    async with open_page(service.url) as page:
        client = await begin(page, service)
        total_ms = await client.answer("resp-1", [("Hello.", 500)])
        await client.until(lambda c: c.acks("resp-1")[-1:] == [total_ms])
        await expect(page.locator("[data-response=resp-1] .said")).to_have_text("Hello.")


async def test_speech_without_words_is_shown_as_such(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await client.hear("item_1", "")
        line = page.locator("[data-item=item_1]")
        await expect(line).to_have_attribute("data-status", "wordless")
        await expect(line.locator(".words")).to_have_text("(nothing understood)")
        await client.hear("item_2", None)  # a model that does not say what it heard
        line = page.locator("[data-item=item_2]")
        await expect(line).to_have_attribute("data-status", "wordless")
        await expect(line.locator(".words")).to_have_text("(spoken)")


async def test_muting_stops_the_audio(service: CannedService, hum: Path) -> None:
    async with open_page(service.url, Visitor(microphone=hum)) as page:
        client = await begin(page, service)
        await client.next("input_audio_buffer.append", 2)
        await page.get_by_role("button", name="Mute", exact=True).click()
        await state(page, "muted")
        await client.said("resp-1", 300)  # what was on its way has come
        count = len(client.all("input_audio_buffer.append"))
        await client.said("resp-2", 1500)
        assert len(client.all("input_audio_buffer.append")) == count
        assert await fact(page, "muted") == "true"
        await page.get_by_role("button", name="Unmute").click()
        await state(page, "listening")
        await client.next("input_audio_buffer.append", 3)


async def test_muting_within_speech_lets_the_service_hear_its_end(
    service: CannedService, hum: Path
) -> None:
    async with open_page(service.url, Visitor(microphone=hum)) as page:
        client = await begin(page, service)
        await client.until(lambda c: any(max(chunk) > 1000 for chunk in c.audio()))
        await client.send("input_audio_buffer.speech_started", audio_start_ms=0, item_id="item_u")
        await state(page, "hearing")
        await page.get_by_role("button", name="Mute", exact=True).click()
        await expect(page.get_by_role("button", name="Unmute")).to_be_visible()
        await client.until(lambda c: max(c.audio()[-1]) == 0)
        await client.next("input_audio_buffer.append", 3)
        assert [max(chunk) for chunk in client.audio()[-3:]] == [0, 0, 0]
        await client.send("input_audio_buffer.speech_stopped", audio_end_ms=900, item_id="item_u")
        await state(page, "thinking")
        await client.said("resp-1", 300)  # what was on its way has come
        count = len(client.all("input_audio_buffer.append"))
        await client.said("resp-2", 1000)
        assert len(client.all("input_audio_buffer.append")) == count


async def test_stopping_closes_the_session_and_frees_the_microphone(
    service: CannedService,
) -> None:
    async with open_page(service.url) as page:
        await watch_microphone(page)
        client = await begin(page, service)
        await interrupted_answer(page, client)
        await page.get_by_role("button", name="Stop").click()
        await state(page, "idle")
        kinds = [event["type"] for event in client.received]
        assert kinds[-1] == "session.close"
        # How far the answer had come is told before.
        last_ack = client.all("playback.ack")[-1]
        assert kinds[-2] == "playback.ack"
        answer = page.locator("[data-response=resp-1]")
        assert await answer.get_attribute("data-heard-ms") == str(last_ack["played_ms"])
        assert await page.evaluate("window.tracks.map((track) => track.readyState)") == ["ended"]
        await client.socket.wait_closed()
        # And once more, from the same page.
        await begin(page, service)
        await expect(page.locator(".rule")).to_have_count(1)


async def test_a_service_that_does_not_close_is_left_after_a_while(
    service: CannedService,
) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        client.answers_close = False
        await page.get_by_role("button", name="Stop").click()
        await state(page, "closing")
        await expect(page.locator("#talk")).to_be_disabled()
        await state(page, "idle")
        await client.socket.wait_closed()


async def test_leaving_the_page_closes_the_session(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        await page.goto("about:blank")
        await client.socket.wait_closed()
        await client.until(lambda c: bool(c.all("session.close")))
        assert client.received[-1]["type"] == "session.close"


async def test_a_heartbeat_is_sent_every_20_seconds(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await page.clock.install()
        client = await begin(page, service)
        await page.clock.fast_forward(41_000)
        await client.until(lambda c: len(c.all("session.heartbeat")) >= 1)
        await page.clock.fast_forward(20_000)
        await client.until(lambda c: len(c.all("session.heartbeat")) >= 2)


async def test_a_typed_message_interrupts_and_asks(service: CannedService) -> None:
    service.session["capabilities"]["supports_text_only_turn"] = True
    async with open_page(service.url) as page:
        await expect(page.get_by_label("Message")).to_be_hidden()
        client = await begin(page, service)
        await interrupted_answer(page, client)
        await page.get_by_label("Message").fill("  What is 12 times 9? ")
        await page.keyboard.press("Enter")
        await client.until(lambda c: bool(c.all("response.create")))
        tail = [e for e in client.received if e["type"] != "input_audio_buffer.append"][-4:]
        assert [event["type"] for event in tail] == [
            "playback.ack", "response.cancel", "conversation.item.create", "response.create",
        ]  # fmt: skip
        assert tail[1]["response_id"] == "resp-1"
        item = tail[2]["item"]
        assert item == {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "What is 12 times 9?"}],
        }
        await client.finish("resp-1", "cancelled")
        await client.send("conversation.item.added", item={"id": "item_t", **item})
        await expect(page.locator("[data-item=item_t] .words")).to_have_text("What is 12 times 9?")
        total_ms = await client.answer("resp-2", [("One hundred and eight.", 600)])
        await client.until(lambda c: c.acks("resp-2")[-1:] == [total_ms])
        await expect(page.get_by_label("Message")).to_have_value("")


async def test_typing_is_not_offered_where_the_model_takes_no_text(
    service: CannedService,
) -> None:
    async with open_page(service.url) as page:
        await begin(page, service)
        await expect(page.get_by_label("Message")).to_be_hidden()


async def watch_microphone(page: Page) -> None:
    """Keep the tracks that the page is given, as `window.tracks`."""
    await page.evaluate("""() => {
        window.tracks = [];
        const devices = navigator.mediaDevices;
        const ask = devices.getUserMedia.bind(devices);
        devices.getUserMedia = async (wishes) => {
            const stream = await ask(wishes);
            window.tracks.push(...stream.getTracks());
            window.wishes = wishes;
            return stream;
        };
    }""")


async def test_the_microphone_is_asked_for_with_echo_cancellation(
    service: CannedService,
) -> None:
    async with open_page(service.url) as page:
        await watch_microphone(page)
        await begin(page, service)
        assert await page.evaluate("window.wishes.audio") == {
            "channelCount": 1,
            "echoCancellation": True,
            "noiseSuppression": True,
            "autoGainControl": True,
        }
        settings = await page.evaluate("window.tracks[0].getSettings()")
        assert settings["echoCancellation"] is True
