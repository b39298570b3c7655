"""What traces cost the gateway: an hour of virtual audio with them and without, in one run.

The conversation is that of tests/support/spoken_hour.py. Counted is the processor time of the
whole process: the kernel, what counts for the metrics, what traces, and the thread that sends.
Spans go to another process, which takes them and does nothing with them.
"""

import gc
import multiprocessing
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from typing import Final

from serve_app.clock import MonotonicClock
from serve_app.dialects import Dialect
from serve_app.handled import handle
from serve_app.metrics.fairness import Fairness
from serve_app.metrics.ray_meter import GATEWAYS, RayMeter
from serve_app.metrics.session_observer import SessionObserver, observe
from serve_app.tracing.opening import open_tracer
from serve_app.tracing.settings import NO_TRACING, TracingSettings
from serve_app.tracing.traced_units import SessionTrace, session_trace
from serve_app.tracing.tracer import Tracer
from session.effects import Effect, Emit, SubmitUnit, Synthesize
from session.events import SpeechDelta
from session.machine import DuplexSession
from session.stimuli import Stimulus
from tests.support.spoken_hour import SpokenHour

UNIT_MS: Final = 1_000
ROUNDS: Final = 3
HOUR_S: Final = 3600


class Gateway:
    """Does with each stimulus what a gateway does besides sending and receiving."""

    def __init__(self, tracer: Tracer, meter: RayMeter) -> None:
        self.units = 0
        self._tracer = tracer
        self._meter = meter
        self._observer: SessionObserver | None = None
        self._trace: SessionTrace | None = None

    def handle(self, session: DuplexSession, stimulus: Stimulus, now: float) -> list[Effect]:
        """Handle a stimulus, count it and trace it."""
        handled = handle(session, stimulus, at_s=now, now=now)
        if self._observer is None or self._trace is None:
            self._observer = observe(
                session, self._meter, Fairness(), dialect=Dialect.DUPLEX, unit_ms=UNIT_MS
            )
            self._trace = session_trace(session, self._tracer, MonotonicClock())
        self._observer.handled(handled)
        self._trace.handled(handled)
        for effect in handled.effects:
            match effect:
                case SubmitUnit(fence=fence, seq=seq):
                    self.units += 1
                    self._trace.unit(fence, seq)
                case Synthesize(fence=fence, seq=seq):
                    self._trace.speech(fence, seq)
                case Emit(event=SpeechDelta() as speech):
                    self._trace.sent(speech)
                case _:
                    pass
        return list(handled.effects)


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time of one way to trace."""

    name: str
    seconds: float
    units: int

    @property
    def unit_us(self) -> float:
        """Microseconds for a unit."""
        return self.seconds / self.units * 1e6


def bench_traces() -> None:
    """Print what a unit costs without traces, with some and with all; the best of ROUNDS each."""
    ours, theirs = multiprocessing.Pipe()
    sink = multiprocessing.get_context("spawn").Process(target=_sink, args=(theirs,), daemon=True)
    sink.start()
    endpoint = f"http://127.0.0.1:{ours.recv()}"
    ways = {
        "off": NO_TRACING,
        "one unit in ten": TracingSettings(endpoint, 0.1),
        "every unit": TracingSettings(endpoint, 1.0),
    }
    meter = RayMeter(GATEWAYS)
    best: dict[str, Cost] = {}
    for _ in range(ROUNDS):
        for name, settings in ways.items():
            cost = _measured(name, settings, meter)
            if name not in best or cost.seconds < best[name].seconds:
                best[name] = cost
    sink.kill()
    off = best["off"]
    print("| traced | units | µs a unit | ratio |\n| --- | --- | --- | --- |")
    for cost in best.values():
        ratio = cost.unit_us / off.unit_us
        print(f"| {cost.name} | {cost.units} | {cost.unit_us:.0f} | {ratio:.2f} |")


def _measured(name: str, settings: TracingSettings, meter: RayMeter) -> Cost:
    tracer = open_tracer(settings, "gateway", clock=MonotonicClock(), meter=meter)
    gateway = Gateway(tracer, meter)
    hour = SpokenHour(gateway.handle)
    gc.collect()
    began = time.process_time()
    hour.run(HOUR_S)
    tracer.close()
    return Cost(name, time.process_time() - began, gateway.units)


class _Taker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take it."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


def _sink(line: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Taker)
    line.send(server.server_address[1])
    server.serve_forever()
