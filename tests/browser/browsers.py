"""Debian's Chromium, headless, with a microphone that plays a file and never reaches the net."""

import asyncio
import json
import math
import os
import shutil
import wave
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from playwright.async_api import (
    Browser,
    Page,
    Playwright,
    ViewportSize,
    WebSocket,
    async_playwright,
    expect,
)

QUIET_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
)
MIC_RATE_HZ = 48_000
WAIT_MS = 60_000
"""Only a test that has gone wrong ever waits so long."""

Scheme = Literal["light", "dark"]

NOTE_STATES = """
    window.passed = [];
    new MutationObserver((changes) => {
        const values = changes.map((change) => change.oldValue);
        window.passed.push(...values.slice(1), document.body.dataset.state);
    }).observe(document, {
        subtree: true, attributeFilter: ["data-state"], attributeOldValue: true,
    });
"""
"""Notes each state that the page comes to; several at once are told with the values before."""

expect.set_options(timeout=WAIT_MS)


def chromium_path() -> str:
    """Find the browser, or skip; where DUPLEX_REQUIRE_BROWSER=1, fail instead."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is not None:
        return path
    message = "no chromium on PATH: apt-get install chromium"
    if os.environ.get("DUPLEX_REQUIRE_BROWSER") == "1":
        pytest.fail(message)
    pytest.skip(message)


def write_recording(path: Path, samples: "array[int]") -> Path:
    """Write PCM16 samples at MIC_RATE_HZ as a WAV for the microphone to play."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(MIC_RATE_HZ)
        file.writeframes(samples.tobytes())
    return path


def hum(seconds: float) -> "array[int]":
    """Make a sound that no one could take for silence."""
    samples = array("h")
    for n in range(int(MIC_RATE_HZ * seconds)):
        t = n / MIC_RATE_HZ
        samples.append(int(8000 * math.sin(2 * math.pi * 220 * t) * math.sin(4 * t) ** 2))
    return samples


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who opens the page, and with what."""

    microphone: Path | None = None
    """A WAV that the microphone plays; None for a beep once a second."""
    loops: bool = True
    consent: Literal["given", "refused"] = "given"
    has_device: bool = True
    size: tuple[int, int] = (1280, 800)
    scheme: Scheme = "light"
    motion: Literal["no-preference", "reduce"] = "no-preference"
    flags: tuple[str, ...] = field(default=())

    def arguments(self) -> list[str]:
        flags = [*QUIET_FLAGS, *self.flags]
        if self.has_device:
            flags.append("--use-fake-device-for-media-stream")
        if self.microphone is not None:
            end = "" if self.loops else "%noloop"
            flags.append(f"--use-file-for-fake-audio-capture={self.microphone}{end}")
        consent = "" if self.consent == "given" else "=deny"
        flags.append(f"--use-fake-ui-for-media-stream{consent}")
        return flags


class Browsers:
    """The browsers of a run: one for each set of arguments, all on one loop."""

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._kept: dict[tuple[str, ...], Browser] = {}

    @asynccontextmanager
    async def of(self, visitor: Visitor) -> AsyncIterator[Browser]:
        """Lend a browser; one that plays a recording is new, so that it plays from the start."""
        arguments = tuple(visitor.arguments())
        kept = self._kept.get(arguments)
        if kept is not None and kept.is_connected():
            yield kept
            return
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        browser = await self._playwright.chromium.launch(
            executable_path=chromium_path(), args=arguments
        )
        if visitor.microphone is None:
            self._kept[arguments] = browser
            yield browser
            return
        try:
            yield browser
        finally:
            await browser.close()

    async def close(self) -> None:
        """Close all."""
        for browser in self._kept.values():
            await browser.close()
        if self._playwright is not None:
            await self._playwright.stop()


BROWSERS: Final = Browsers()


@asynccontextmanager
async def open_page(url: str, visitor: Visitor | None = None) -> AsyncIterator[Page]:
    """Open the page in a profile of its own; an exception in the page fails the test."""
    visitor = visitor or Visitor()
    width, height = visitor.size
    faults: list[str] = []
    async with (
        BROWSERS.of(visitor) as browser,
        # A page that a browser makes by itself has a profile of its own, which goes with it.
        await browser.new_page(
            viewport=ViewportSize(width=width, height=height),
            color_scheme=visitor.scheme,
            reduced_motion=visitor.motion,
        ) as page,
    ):
        page.set_default_timeout(WAIT_MS)
        await page.add_init_script(NOTE_STATES)
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.goto(url)
        yield page
    assert not faults, faults


async def state(page: Page, *names: str) -> str:
    """Wait until the page is in one of the states; return it.

    A state that passes by itself may have passed before anybody looks: see `passes`.
    """
    handle = await page.wait_for_function(
        "names => names.includes(document.body.dataset.state) && document.body.dataset.state",
        arg=list(names),
    )
    return str(await handle.json_value())


async def passes(page: Page, *names: str) -> None:
    """Wait until the page has been in these states, one after another, since it was loaded."""
    await page.wait_for_function(
        """names => {
            let at = 0;
            for (const one of window.passed) if (one === names[at]) at += 1;
            return at === names.length;
        }""",
        arg=list(names),
    )


async def fact(page: Page, name: str) -> str | None:
    """Read one of the facts that the page shows on its body (`data-...`, in camel case)."""
    value = await page.evaluate("name => document.body.dataset[name] ?? null", name)
    return None if value is None else str(value)


class Tap:
    """What goes over the page's sockets, both ways, in order."""

    def __init__(self, page: Page) -> None:
        self.events: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        page.on("websocket", self._listen)

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    async def until(self, kind: str) -> dict[str, Any]:
        """Wait until an event of a kind has come; return the latest."""
        async with asyncio.timeout(WAIT_MS / 1000):
            while not self.all(kind):
                self._news.clear()
                await self._news.wait()
        return self.all(kind)[-1]

    def acknowledged(self, response_id: str) -> list[dict[str, Any]]:
        """What the service answered to the acknowledgements of a response."""
        facts = [event["event"] for event in self.all("playback.acknowledged")]
        return [fact for fact in facts if fact["response_id"] == response_id]

    def _listen(self, socket: WebSocket) -> None:
        for name in ("framesent", "framereceived"):
            socket.on(name, self._note)

    def _note(self, text: str | bytes) -> None:
        self.events.append(json.loads(text))
        self._news.set()
