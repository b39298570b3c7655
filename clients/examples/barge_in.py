"""Interrupts the assistant and shows what it knows to have been heard.

    python -m clients.examples.barge_in --in QUESTION.wav --interrupt INTERRUPTION.wav

The flow is explained, step by step, in docs/clients.md.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from clients import embedded
from clients.connecting import API_KEY_VARIABLE, DEFAULT_URL
from clients.duplex import DuplexClient
from clients.errors import DuplexClientError
from clients.events import OutputAudioCleared, PlaybackAcknowledged, ResponseDone, ServerEvent
from clients.playback import PlaybackClock
from clients.responses import ResponseHandle
from clients.session_config import with_input
from clients.source import RecordingSource
from clients.wav import Recording, read_wav

TIMEOUT_S = 60.0


async def barge_in(
    url: str,
    question: Recording,
    interruption: Recording,
    *,
    after_ms: int,
    api_key: str | None = None,
) -> tuple[ResponseHandle, ResponseHandle, int]:
    """Ask, interrupt once `after_ms` of the answer were heard, and wait for the next answer.

    Returns the interrupted answer, the one after it, and how much was heard of the first, in ms.
    Raises TimeoutError if nothing was interrupted: the answer was too short for it.
    """
    speaker = PlaybackClock()
    settings = with_input(embedded.create_duplex_session_config(), rate_hz=question.rate_hz)
    async with (
        asyncio.timeout(TIMEOUT_S),
        DuplexClient(url, settings, api_key=api_key, observers=(speaker.observe,)) as client,
        asyncio.TaskGroup() as group,
    ):
        microphone = _Microphone(client, speaker, question.rate_hz)
        microphone.say(question)
        sending = group.create_task(microphone.run())

        first = await client.next_response()
        await client.expect(PlaybackAcknowledged, lambda ack: ack.played_ms >= after_ms)
        interrupted = client.expect(ServerEvent, lambda event: interrupts(event, first))
        # Nothing but speech is sent: the server notices it, cancels the answer and says so. A
        # client with its own detector would call `client.barge_in()` here.
        microphone.say(interruption)
        await interrupted
        heard_ms = speaker.played_ms(first.response_id, time.monotonic())

        second = await client.next_response()
        await second.wait_done()
        sending.cancel()
    return first, second, heard_ms


def interrupts(event: ServerEvent, response: ResponseHandle) -> bool:
    """Whether an event stops a response that is being made or, already made, being played."""
    match event:
        case ResponseDone(response_id=response.response_id):
            return event.status == "cancelled"
        case OutputAudioCleared(response_id=response.response_id):
            return True
        case _:
            return False


class _Microphone:
    """Always on: sends what it is told to say, and silence otherwise, and acknowledges playback."""

    def __init__(self, client: DuplexClient, speaker: PlaybackClock, rate_hz: int) -> None:
        self._client = client
        self._speaker = speaker
        self._source = RecordingSource(Recording(b"", rate_hz))

    def say(self, recording: Recording) -> None:
        self._source = RecordingSource(recording)

    async def run(self) -> None:
        while True:
            block = await self._source.read()
            await self._client.append_audio(block.pcm)
            for ack in self._speaker.due_acks(time.monotonic()):
                await self._client.ack_playback(ack.response_id, ack.played_ms)


def main() -> int:
    """Run the example, print what happened and return the exit status."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--url", default=DEFAULT_URL)
    parser.add_argument("--api-key", default=os.environ.get(API_KEY_VARIABLE))
    parser.add_argument("--in", dest="question", type=Path, required=True)
    parser.add_argument("--interrupt", type=Path, required=True)
    parser.add_argument("--after-ms", type=int, default=1000, help="of the answer heard")
    arguments = parser.parse_args()
    question, interruption = read_wav(arguments.question), read_wav(arguments.interrupt)
    if question.rate_hz != interruption.rate_hz:
        parser.error("both recordings must have the same sample rate")
    interrupting = barge_in(
        arguments.url,
        question,
        interruption,
        after_ms=arguments.after_ms,
        api_key=arguments.api_key,
    )
    try:
        first, second, heard_ms = asyncio.run(interrupting)
    except DuplexClientError as error:
        print(f"barge_in: {error}", file=sys.stderr)
        return 1
    except TimeoutError:
        print(
            f"barge_in: nothing was interrupted within {TIMEOUT_S:g} s; if the answer was over "
            "before, ask for a longer one, or interrupt sooner: --after-ms 500",
            file=sys.stderr,
        )
        return 1
    print(f"first answer: {first.transcript!r}, {first.status} ({first.reason})")
    print(f"              {len(first.audio) / 48:.0f} ms came, {heard_ms} ms were heard")
    print(f"next answer:  {second.transcript!r}, {second.status}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
