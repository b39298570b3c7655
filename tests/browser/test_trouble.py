"""What the page says when something is missing, refused or lost, and how one goes on from there."""

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsers import Visitor, fact, open_page, state
from tests.browser.canned_service import CannedClient, CannedService

pytestmark = [pytest.mark.browser]


async def press_start(page: Page) -> None:
    await page.get_by_role("button", name="Start").click()


async def problem(page: Page, kind: str, title: str) -> None:
    """Wait until the page tells this problem; it must say so in words."""
    await state(page, "error")
    assert await fact(page, "problem") == kind
    await expect(page.get_by_role("alert")).to_contain_text(title)


async def go_on(page: Page, service: CannedService, label: str) -> CannedClient:
    """Press the notice's button and wait for a session."""
    await page.get_by_role("alert").get_by_role("button", name=label).click()
    client = await service.client()
    await state(page, "listening")
    await expect(page.get_by_role("alert")).to_be_hidden()
    return client


async def test_a_refused_microphone(service: CannedService) -> None:
    async with open_page(service.url, Visitor(consent="refused")) as page:
        await press_start(page)
        await problem(page, "mic-refused", "The microphone is blocked")
        await expect(page.get_by_role("button", name="Try again")).to_be_visible()


async def test_no_microphone(service: CannedService) -> None:
    async with open_page(service.url, Visitor(has_device=False)) as page:
        await press_start(page)
        await problem(page, "mic-missing", "No microphone found")


async def test_an_address_that_may_not_use_a_microphone(service: CannedService) -> None:
    # Chromium takes a name that is neither localhost nor HTTPS for insecure, as a LAN address is.
    flags = ("--host-resolver-rules=MAP duplex.test 127.0.0.1",)
    url = service.url.replace("127.0.0.1", "duplex.test")
    async with open_page(url, Visitor(flags=flags)) as page:
        await press_start(page)
        await problem(page, "insecure", "can not use a microphone")
        await expect(page.get_by_role("alert")).to_contain_text("HTTPS")


async def test_a_microphone_that_goes_away(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await page.evaluate("""() => {
            const devices = navigator.mediaDevices;
            const ask = devices.getUserMedia.bind(devices);
            devices.getUserMedia = async (wishes) => (window.stream = await ask(wishes));
        }""")
        await press_start(page)
        client = await service.client()
        await state(page, "listening")
        await page.evaluate("window.stream.getTracks()[0].dispatchEvent(new Event('ended'))")
        await problem(page, "mic-lost", "The microphone went away")
        await client.socket.wait_closed()
        await go_on(page, service, "Reconnect")


@pytest.mark.parametrize(("capacity", "words"), [(4, "full (4 sessions)"), (1, "full (1 session)")])
async def test_a_full_service(service: CannedService, capacity: int, words: str) -> None:
    service.capacity = capacity
    async with open_page(service.url) as page:
        await press_start(page)
        await problem(page, "full", words)
        service.capacity = None
        await service.client()
        await go_on(page, service, "Try again")


async def test_a_lost_connection(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await press_start(page)
        client = await service.client()
        await state(page, "listening")
        await client.hear("item_u", "Are you there?")
        await client.begin("resp-1")
        await client.speak("resp-1", [("I am ", 1000), ("not sure.", 25_000)])
        await client.until(lambda c: bool(c.acks("resp-1")))
        client.socket.transport.abort()
        await problem(page, "dropped", "The connection was lost")
        # What was said stays; the answer shows that it was not heard to its end.
        await expect(page.locator("[data-item=item_u] .words")).to_have_text("Are you there?")
        await expect(page.locator("[data-response=resp-1]")).to_have_attribute("data-status", "cut")
        again = await go_on(page, service, "Reconnect")
        assert again.session["id"] != client.session["id"]
        await expect(page.locator(".rule")).to_have_text("New session")
        await again.next("input_audio_buffer.append", 3)


@pytest.mark.parametrize(
    ("code", "kind", "title"),
    [
        (1012, "restarting", "restarting"),
        (1013, "full", "full"),
        (1001, "ended", "ended the session"),
    ],
)
async def test_a_close_says_why(service: CannedService, code: int, kind: str, title: str) -> None:
    async with open_page(service.url) as page:
        await press_start(page)
        client = await service.client()
        await state(page, "listening")
        await client.socket.close(code)
        await problem(page, kind, title)


async def test_an_expired_session(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await press_start(page)
        client = await service.client()
        await state(page, "listening")
        await client.send("session.expired", reason="idle_ttl_expired")
        await client.socket.close(1000, "idle_ttl_expired")
        await problem(page, "ended", "Nothing was said for a long time.")
        await go_on(page, service, "Reconnect")


async def test_an_error_that_ends_nothing_is_a_passing_remark(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await press_start(page)
        client = await service.client()
        await state(page, "listening")
        error = {"type": "invalid_request_error", "code": "bad_event", "message": "No such voice."}
        await client.send("error", error=error)
        toast = page.locator("#toast")
        await expect(toast).to_be_visible()
        await expect(toast).to_have_text("No such voice.")
        assert await fact(page, "state") == "listening"
        # Bookkeeping between page and service is nobody's business.
        late = {"code": "playback_ack_too_late", "message": "too late"}
        await client.send("error", error=late)
        await client.next("input_audio_buffer.append", 2)
        await expect(toast).to_have_text("No such voice.")


async def test_an_error_that_ends_the_session_is_told(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await press_start(page)
        client = await service.client()
        await state(page, "listening")
        error = {"type": "server_error", "code": "stage_unavailable", "message": "The model died."}
        await client.send("error", error=error)
        await client.socket.close(1011)
        await problem(page, "ended", "The model died.")


async def test_a_failed_answer_is_told_and_the_talk_goes_on(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await press_start(page)
        client = await service.client()
        await state(page, "listening")
        await client.begin("resp-1")
        total_ms = await client.speak("resp-1", [("Well, ", 600)])
        await client.finish("resp-1", "failed")
        await expect(page.locator("#toast")).to_have_text("The answer broke off. Ask again.")
        await client.until(lambda c: c.acks("resp-1")[-1:] == [total_ms])
        await state(page, "listening")


async def test_a_service_that_needs_a_key(service: CannedService) -> None:
    service.key = "sk-test-42"
    async with open_page(service.url) as page:
        notice = page.get_by_role("alert")
        await expect(notice).to_contain_text("needs an API key")
        await page.get_by_label("API key").fill("sk-wrong")
        await page.get_by_role("button", name="Use key").click()
        await problem(page, "key", "not accepted")
        await page.get_by_label("API key").fill("sk-test-42")
        await page.keyboard.press("Enter")
        client = await service.client()
        await state(page, "listening")
        await expect(notice).to_be_hidden()
        assert client.socket.subprotocol == "realtime"
        assert "sk-test-42" not in page.url
        # It is kept for this tab, and nowhere else.
        assert await page.evaluate("Object.values(localStorage).join()") == ""
        assert await page.evaluate("document.cookie") == ""
        await page.reload()
        await press_start(page)
        await service.client()
        await state(page, "listening")


async def test_a_key_that_can_not_be_sent(service: CannedService) -> None:
    service.key = "sk-test-42"
    async with open_page(service.url) as page:
        await page.get_by_label("API key").fill("not a key")
        await page.keyboard.press("Enter")
        await problem(page, "key", "characters that a browser can not send")


async def test_a_service_that_is_gone(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await service.stop()
        await press_start(page)
        await problem(page, "unreachable", "does not answer")


async def test_stopping_while_it_connects(service: CannedService) -> None:
    service.opens = False
    async with open_page(service.url) as page:
        await press_start(page)
        client = await service.client()
        await state(page, "connecting")
        await page.get_by_role("button", name="Stop").click()
        await state(page, "idle")
        await client.socket.wait_closed()
        service.opens = True
        await press_start(page)
        await service.client()
        await state(page, "listening")
