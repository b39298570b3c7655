"""Time of one `DuplexSession.handle()` and size of a session, over an hour of virtual audio.

The conversation is that of tests/support/spoken_hour.py: appends of 200 ms with their
voice-activity windows, units, chunks, acknowledgements, updates and interruptions.
"""

import gc
import statistics
import time
import tracemalloc
from collections import defaultdict
from typing import Final

from serve_app.dialects import Dialect
from serve_app.handled import Handled, told_by
from serve_app.logs.session_records import SessionRecord, SessionRecords
from serve_app.logs.session_story import Caller
from serve_app.metrics.fairness import Fairness
from serve_app.metrics.ray_meter import GATEWAYS, RayMeter
from serve_app.metrics.session_observer import SessionObserver, observe
from session.config import PlaybackCommitPolicy
from session.effects import Effect
from session.machine import DuplexSession
from session.stimuli import Stimulus
from tests.support.object_count import size_of
from tests.support.spoken_hour import SpokenHour, plain

MINUTES: Final = (5, 30, 60)
EVERY: Final = "all"
UNIT_MS: Final = 1_000


class Stopwatch:
    """Times each call of `handle`, by kind of stimulus."""

    def __init__(self) -> None:
        self.took_ns: defaultdict[str, list[int]] = defaultdict(list)
        self.observed_ns: list[int] = []
        """What it took to count each."""
        self.recorded_ns: list[int] = []
        """What it took to write each into the session's story."""
        self._meter = RayMeter(GATEWAYS)
        self._observer: SessionObserver | None = None
        self._record: SessionRecord | None = None
        self._stale = 0

    def handle(self, session: DuplexSession, stimulus: Stimulus, now: float) -> list[Effect]:
        """Handle a stimulus and note how long that took."""
        began = time.perf_counter_ns()
        effects = session.handle(stimulus, now=now)
        took = time.perf_counter_ns() - began
        self.took_ns[type(stimulus).__name__].append(took)
        self.took_ns[EVERY].append(took)
        if self._observer is None or self._record is None:
            self._observer = observe(
                session, self._meter, Fairness(), dialect=Dialect.DUPLEX, unit_ms=UNIT_MS
            )
            caller = Caller(Dialect.DUPLEX.value, "bench")
            self._record = SessionRecords().begin(session.fence, caller, since_unix_s=0, now=now)
        is_stale = session.stale != self._stale
        self._stale = session.stale
        handled = Handled(told_by(stimulus), effects, session.fence, is_stale, now, now)
        began = time.perf_counter_ns()
        self._observer.handled(handled)
        self.observed_ns.append(time.perf_counter_ns() - began)
        began = time.perf_counter_ns()
        self._record.handled(handled)
        self.recorded_ns.append(time.perf_counter_ns() - began)
        return effects


def bench_kernel() -> None:
    """Print the times, then the sizes; apart, because counting would disturb the clock."""
    watch = Stopwatch()
    hour = SpokenHour(watch.handle)
    gc.collect()
    hour.run(3600)
    print(f"{hour.answers} answers, {hour.interrupted} of them interrupted.\n")
    print("| stimulus | calls | p50 µs | p99 µs | max µs |\n| --- | --- | --- | --- | --- |")
    for name, took in sorted(watch.took_ns.items(), key=lambda entry: -len(entry[1])):
        print(f"| {name} | {len(took)} | {_row(took)} |")
    print(f"\nCounting it, through Ray (µs): {_row(watch.observed_ns)}.", end=" ")
    share = sum(watch.observed_ns) / sum(watch.took_ns[EVERY])
    print(f"In all {share:.0%} of the time of `handle()` in the same run.", end=" ")
    share = sum(watch.recorded_ns) / sum(watch.took_ns[EVERY])
    print(f"Its story (µs): {_row(watch.recorded_ns)}. In all {share:.0%}.\n")
    _print_by_the_clock(watch.took_ns[EVERY])
    _print_sizes()


def _print_by_the_clock(acknowledged_ns: list[int]) -> None:
    """Print what a client costs that never says how much it has played."""
    watch = Stopwatch()
    SpokenHour(watch.handle, PlaybackCommitPolicy.REAL_TIME).run(3600)
    took = watch.took_ns[EVERY]
    ratio = statistics.median(took) / statistics.median(acknowledged_ns)
    print(f"By the clock, without acknowledgements (µs): {_row(took)}, {ratio:.2f} of the above.\n")


def _row(took_ns: list[int]) -> str:
    micros = sorted(nanos / 1000 for nanos in took_ns)
    p99 = micros[min(len(micros) - 1, int(len(micros) * 0.99))]
    return f"{statistics.median(micros):.1f} | {p99:.1f} | {micros[-1]:.1f}"


def _print_sizes() -> None:
    print("| minute | objects of the session | their KiB | objects of the process | traced KiB |")
    print("| --- | --- | --- | --- | --- |")
    tracemalloc.start()
    hour = SpokenHour(plain)
    for minute in MINUTES:
        hour.run(minute * 60 - hour.now)
        own = size_of(hour.session)
        gc.collect()
        traced, _ = tracemalloc.get_traced_memory()
        cells = (own.objects, own.n_bytes // 1024, len(gc.get_objects()), traced // 1024)
        print(f"| {minute} | {' | '.join(str(cell) for cell in cells)} |", flush=True)
    tracemalloc.stop()
