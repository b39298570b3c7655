"""`python -m clients.talk`: talk to the service with a file or a microphone.

Exit status: 0 there was a reply · 1 none came, or the conversation broke off · 2 wrong usage ·
3 the server refused · 4 it can not be reached · 130 interrupted.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from clients.arguments import positive
from clients.connecting import API_KEY_VARIABLE, DEFAULT_URL
from clients.console import Console
from clients.conversation import ConverseOptions, Report, converse
from clients.errors import AnswerTimedOut, DuplexClientError, DuplexRefused, DuplexUnreachable
from clients.levels import SpeechSpan, speech_spans
from clients.minicpmo_4_5 import with_voice_of
from clients.presets import AUTO, PRESET_NAMES, preset
from clients.provenance import Provenance, provenance
from clients.session_config import SessionSettings
from clients.sound_card import Microphone, SoundDeviceMissing, SpeakerOutput, load_sounddevice
from clients.source import RecordingSource
from clients.wav import read_wav, write_wav

__all__ = ["converse", "main"]

OK: Final = 0
NO_REPLY: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
UNREACHABLE: Final = 4


class UsageError(Exception):
    """The command can not be carried out as it was given."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    arguments = build_parser().parse_args(argv)
    made = provenance(sys.argv if argv is None else ["clients.talk", *argv])
    console = Console(sys.stdout)
    try:
        report = asyncio.run(_talk(arguments, _settings(arguments), console))
        _write(arguments, report, made)
    except (UsageError, SoundDeviceMissing) as error:
        return _fail(USAGE, str(error))
    except DuplexRefused as error:
        hint = "; trying later may succeed" if error.retryable else ""
        return _fail(REFUSED, f"the server refused: {error}{hint}")
    except (DuplexUnreachable, AnswerTimedOut) as error:
        return _fail(UNREACHABLE, str(error))
    except DuplexClientError as error:
        return _fail(NO_REPLY, str(error))
    return _judge(report, console)


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m clients.talk", description=main.__doc__)
    parser.add_argument("--url", default=DEFAULT_URL, help="default: %(default)s")
    voice = parser.add_mutually_exclusive_group(required=True)
    voice.add_argument("--in", dest="input", type=Path, metavar="FILE.wav", help="what to say")
    voice.add_argument("--mic", action="store_true", help="speak yourself; ends with Ctrl-C")
    parser.add_argument("--out", type=Path, metavar="REPLY.wav", help="write the answers here")
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="HEARD.wav",
        help="write the assistant as it was heard, as long as the conversation",
    )
    parser.add_argument("--json", type=Path, metavar="REPORT.json", help="write a report here")
    parser.add_argument("--preset", choices=PRESET_NAMES, default=AUTO, help="default: auto")
    parser.add_argument("--instructions", help="what the assistant is told")
    parser.add_argument("--ref-audio", type=Path, metavar="VOICE.wav", help="voice to take on")
    parser.add_argument(
        "--api-key",
        default=os.environ.get(API_KEY_VARIABLE),
        help=f"default: the environment's {API_KEY_VARIABLE}",
    )
    parser.add_argument("--chunk-ms", type=positive, default=200, help="default: %(default)s")
    parser.add_argument(
        "--quiet-s", type=float, default=2.0, help="it is over after this quiet; %(default)s"
    )
    parser.add_argument(
        "--reply-timeout-s", type=float, default=30.0, help="give up after this; %(default)s"
    )
    parser.add_argument(
        "--time-limit-s", type=float, default=600.0, help="end it in any case; %(default)s"
    )
    parser.add_argument(
        "--speech-end-ms",
        type=int,
        help="where the speech in FILE.wav ends, when its level does not tell",
    )
    return parser


def _settings(arguments: argparse.Namespace) -> SessionSettings:
    settings = preset(arguments.preset)
    if arguments.instructions is not None:
        settings["instructions"] = arguments.instructions
    if arguments.ref_audio is None:
        return settings
    try:
        return with_voice_of(arguments.ref_audio.read_bytes(), settings)
    except OSError as error:
        raise UsageError(str(error)) from error


def _options(arguments: argparse.Namespace, console: Console) -> ConverseOptions:
    return ConverseOptions(
        quiet_s=arguments.quiet_s,
        reply_timeout_s=arguments.reply_timeout_s,
        time_limit_s=arguments.time_limit_s,
        watch=(console.show,),
    )


async def _talk(
    arguments: argparse.Namespace, settings: SessionSettings, console: Console
) -> Report:
    try:
        if arguments.mic:
            return await _talk_live(arguments, settings, console)
        return await _talk_from_file(arguments, settings, console)
    finally:
        console.finish()


async def _talk_from_file(
    arguments: argparse.Namespace, settings: SessionSettings, console: Console
) -> Report:
    try:
        recording = await asyncio.to_thread(read_wav, arguments.input)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    spans = speech_spans(recording)
    if arguments.speech_end_ms is not None:
        spans = (SpeechSpan(0, arguments.speech_end_ms),)
    console.say(f"{arguments.input}: {recording.seconds:.1f} s at {recording.rate_hz} Hz")
    return await converse(
        arguments.url,
        settings,
        RecordingSource(recording, spans, chunk_ms=arguments.chunk_ms),
        api_key=arguments.api_key,
        options=_options(arguments, console),
    )


async def _talk_live(
    arguments: argparse.Namespace, settings: SessionSettings, console: Console
) -> Report:
    sounddevice = load_sounddevice()
    microphone = Microphone(sounddevice, chunk_ms=arguments.chunk_ms)
    speaker = SpeakerOutput(sounddevice)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, microphone.stop)
    console.say("speak; Ctrl-C ends")
    options = _options(arguments, console)
    try:
        return await converse(
            arguments.url,
            settings,
            microphone,
            api_key=arguments.api_key,
            options=replace(options, observers=(speaker.observe,)),
        )
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        microphone.close()
        speaker.close()


def _write(arguments: argparse.Namespace, report: Report, made: Provenance) -> None:
    try:
        if arguments.out is not None:
            write_wav(arguments.out, report.reply_audio)
        if arguments.timeline is not None:
            write_wav(arguments.timeline, report.heard_audio)
        if arguments.json is not None:
            contents = {"made": asdict(made), **report.as_json()}
            text = json.dumps(contents, indent=2, ensure_ascii=False)
            arguments.json.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(str(error)) from error


def _judge(report: Report, console: Console) -> int:
    if not report.is_whole:
        return _fail(NO_REPLY, f"the conversation broke off: {report.ended}")
    if not report.has_reply:
        last = report.errors[-1] if report.errors else None
        why = f"; the last error was {last.code}: {last.message}" if last else ""
        return _fail(NO_REPLY, f"no reply came{why}")
    count = "1 reply" if len(report.replies) == 1 else f"{len(report.replies)} replies"
    console.say(f"{count} in {report.seconds:.1f} s ({report.ended})")
    return OK


def _fail(status: int, line: str) -> int:
    print(f"talk: {line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
