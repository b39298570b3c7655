"""The page on a phone, without motion, without a mouse; and that it comes from here alone."""

from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsers import Scheme, Visitor, open_page, state
from tests.browser.canned_service import CannedClient, CannedService

pytestmark = [pytest.mark.browser]

LONG_WORD = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"


async def begin(page: Page, service: CannedService) -> CannedClient:
    await page.get_by_role("button", name="Start").click()
    client = await service.client()
    await state(page, "listening")
    return client


async def overflow_px(page: Page) -> int:
    return int(
        await page.evaluate("document.documentElement.scrollWidth - document.body.clientWidth")
    )


@pytest.mark.parametrize("size", [(360, 740), (320, 568), (740, 360), (1280, 800)])
async def test_it_fits_the_window(service: CannedService, size: tuple[int, int]) -> None:
    service.session["capabilities"]["supports_text_only_turn"] = True
    service.session["model"] = "someone/with-a-very-long-model-name-that-goes-on-and-on-4_5"
    async with open_page(service.url, Visitor(size=size)) as page:
        assert await overflow_px(page) == 0
        client = await begin(page, service)
        await client.hear("item_u", LONG_WORD)
        await client.answer("resp-1", [(f"{LONG_WORD}? ", 300), ("Yes. " * 60, 300)])
        await client.until(lambda c: c.acks("resp-1")[-1:] == [600])
        error = {"code": "bad_event", "message": f"no {LONG_WORD}"}
        await client.send("error", error=error)
        await expect(page.locator("#toast")).to_be_visible()
        assert await overflow_px(page) == 0
        # The newest words and every control are in sight.
        for control in ("Stop", "Mute"):
            await expect(page.get_by_role("button", name=control, exact=True)).to_be_in_viewport(
                ratio=1
            )
        await expect(page.get_by_label("Message")).to_be_in_viewport(ratio=1)
        scroll = await page.evaluate(
            "(({scrollHeight, scrollTop, clientHeight}) => scrollHeight - scrollTop - clientHeight)"
            "(document.getElementById('scroll'))"
        )
        assert scroll < 2
        client.socket.transport.abort()
        await expect(page.get_by_role("alert")).to_be_visible()
        await expect(page.get_by_role("button", name="Reconnect")).to_be_in_viewport(ratio=1)
        assert await overflow_px(page) == 0


@pytest.mark.parametrize("size", [(360, 740), (1280, 800)])
async def test_nothing_jumps(service: CannedService, size: tuple[int, int]) -> None:
    service.session["capabilities"]["supports_text_only_turn"] = True
    async with open_page(service.url, Visitor(size=size)) as page:
        places = (
            "() => ['talk', 'mute', 'dial', 'state', 'meter-you'].map((id) => "
            "document.getElementById(id).getBoundingClientRect()).map(({left, top}) => [left, top])"
        )
        before = await page.evaluate(places)
        client = await begin(page, service)
        await client.hear("item_u", "Hello?")
        await client.answer("resp-1", [("Hello.", 400)])
        await page.wait_for_function("() => document.body.dataset.latencyMs")
        await client.until(lambda c: c.acks("resp-1")[-1:] == [400])
        after = await page.evaluate(places)
        # The state's word is centred, so it may move sideways with its length.
        for (left, top), (left_after, top_after) in zip(before, after, strict=True):
            assert top_after == pytest.approx(top, abs=1)
            assert left_after == pytest.approx(left, abs=40)


async def test_everything_comes_from_the_service(service: CannedService) -> None:
    async with open_page("about:blank") as page:
        hosts = set()
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.on("websocket", lambda socket: hosts.add(urlsplit(socket.url).netloc))
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        await page.goto(service.url)
        client = await begin(page, service)
        await client.answer("resp-1", [("Hello.", 300)])
        await client.until(lambda c: c.acks("resp-1")[-1:] == [300])
        assert hosts == {urlsplit(service.url).netloc}
        assert messages == []


async def test_it_works_below_a_path(service: CannedService) -> None:
    service.root = "/some/where"
    async with open_page(f"{service.url}some/where/") as page:
        await begin(page, service)


async def test_less_motion(service: CannedService) -> None:
    async with open_page(service.url, Visitor(motion="reduce")) as page:
        client = await begin(page, service)
        await client.send("input_audio_buffer.speech_started", audio_start_ms=0, item_id="item_u")
        await state(page, "hearing")
        assert await page.evaluate("document.getAnimations().length") == 0
        still = "() => document.getElementById('dial').toDataURL()"
        before = await page.evaluate(still)
        await client.next("input_audio_buffer.append", 5)
        assert await page.evaluate(still) == before
        # The meter still shows the microphone's level.
        await page.wait_for_function(
            "() => document.getElementById('meter-you').getAttribute('aria-valuenow') > 0"
        )


async def test_the_keyboard_is_enough(service: CannedService) -> None:
    async with open_page(service.url) as page:
        await page.keyboard.press("Tab")
        talk = page.locator("#talk")
        await expect(talk).to_be_focused()
        outline = await talk.evaluate("(button) => getComputedStyle(button).outlineStyle")
        assert outline == "solid"
        await page.keyboard.press("Enter")
        await service.client()
        await state(page, "listening")
        await page.keyboard.press("Tab")
        await expect(page.locator("#mute")).to_be_focused()
        await page.keyboard.press("Space")
        await state(page, "muted")


async def test_lines_are_read_aloud_when_they_are_complete(service: CannedService) -> None:
    async with open_page(service.url) as page:
        client = await begin(page, service)
        log = page.get_by_role("log")
        await expect(log).to_have_attribute("aria-live", "polite")
        await client.begin("resp-1")
        await client.speak("resp-1", [("Hello there.", 600)])
        answer = page.locator("[data-response=resp-1]")
        await expect(answer).to_have_attribute("aria-busy", "true")
        await client.finish("resp-1")
        await expect(answer).to_have_attribute("aria-busy", "false")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_text_has_contrast(service: CannedService, scheme: Scheme) -> None:
    async with open_page(service.url, Visitor(scheme=scheme)) as page:
        for name in ("ink", "soft", "faint", "accent", "danger"):
            assert await contrast(page, name, "paper") >= 4.5, name
        assert await contrast(page, "on-accent", "accent") >= 4.5


async def contrast(page: Page, text: str, ground: str) -> float:
    """Return the WCAG 2 contrast ratio of two of the page's colours."""
    return float(
        await page.evaluate(
            """([text, ground]) => {
                const style = getComputedStyle(document.body);
                const luminance = (name) => {
                    const hex = style.getPropertyValue(`--${name}`).trim().slice(1);
                    const [r, g, b] = [0, 2, 4].map((at) => {
                        const part = parseInt(hex.slice(at, at + 2), 16) / 255;
                        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
                    });
                    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
                };
                const [dark, light] = [luminance(text), luminance(ground)].sort((a, b) => a - b);
                return (light + 0.05) / (dark + 0.05);
            }""",
            [text, ground],
        )
    )
