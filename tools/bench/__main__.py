"""The benchmarks of docs/benchmarks.md: `python -m tools.bench` and one of these.

ready    seconds from `make serve` to an answering service, in a clean clone: cold, then warm
turns    end of speech to first audio of the answer, over spoken questions
gateway  time inside the gateway and the whole path, with scripted sessions, against a bare echo
vad      voice detection: its cost, its delay, what it takes for speech and what it misses
kernel   time of one `DuplexSession.handle()` and the objects of a session over an hour
traces   what a unit costs the gateway with traces and without
stage0   MiniCPM-o's Stage0 in real time by number of sessions, and what its parts cost; it takes
         options of its own: `python -m tools.bench stage0 --help`
stage1   MiniCPM-o's Stage1 in real time, alone and with its Stage0; with options of its own
talks    MiniCPM-o through the whole service, from WebSocket clients; with options too
voice    MiniCPM-o's flow and vocoder by number of turns that are due together; with options too

Each prints Markdown with the conditions under which it was made.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from tools.bench.conditions import conditions


def _ready() -> None:
    from tools.bench.service import bench_ready  # noqa: PLC0415 - each loads only what it needs

    bench_ready()


def _turns() -> None:
    from tools.bench.service import bench_turns  # noqa: PLC0415 - as above

    bench_turns()


def _gateway() -> None:
    from tools.bench.service import bench_gateway  # noqa: PLC0415 - as above

    bench_gateway()


def _vad() -> None:
    from tools.bench.vad import bench_vad  # noqa: PLC0415 - as above

    bench_vad()


def _kernel() -> None:
    from tools.bench.kernel import bench_kernel  # noqa: PLC0415 - as above

    bench_kernel()


def _traces() -> None:
    from tools.bench.traces import bench_traces  # noqa: PLC0415 - as above

    bench_traces()


def _stage0(options: Sequence[str]) -> None:
    from tools.bench.stage0 import bench_stage0  # noqa: PLC0415 - as above

    bench_stage0(options)


def _stage1(options: Sequence[str]) -> None:
    from tools.bench.stage1 import bench_stage1  # noqa: PLC0415 - as above

    bench_stage1(options)


def _talks(options: Sequence[str]) -> None:
    from tools.bench.talks import bench_talks  # noqa: PLC0415 - as above

    bench_talks(options)


def _voice(options: Sequence[str]) -> None:
    from tools.bench.voice import bench_voice  # noqa: PLC0415 - as above

    bench_voice(options)


BENCHES: Mapping[str, Callable[[], None]] = {
    "ready": _ready,
    "turns": _turns,
    "gateway": _gateway,
    "vad": _vad,
    "kernel": _kernel,
    "traces": _traces,
}
WITH_OPTIONS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "stage0": _stage0,
    "stage1": _stage1,
    "talks": _talks,
    "voice": _voice,
}


def main() -> None:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=(*BENCHES, *WITH_OPTIONS))
    # What follows is that benchmark's own, --help too.
    what = parser.parse_args(sys.argv[1:2]).what
    options = sys.argv[2:]
    if what not in WITH_OPTIONS and options:
        parser.error(f"{what} takes no options")
    print(conditions(" ".join((what, *options))), flush=True)
    if what in WITH_OPTIONS:
        WITH_OPTIONS[what](options)
    else:
        BENCHES[what]()


if __name__ == "__main__":
    main()
