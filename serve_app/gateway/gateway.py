"""What one gateway replica has, and how it serves one socket.

A plain class, so that tests run it under uvicorn alone; `gateway_replica` makes it a Serve
deployment.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from fastapi import WebSocket

from serve_app.access.admin_door import AdminDoor
from serve_app.access.client_secrets import ClientSecrets
from serve_app.access.doorkeeper import Admitted, Doorkeeper, Refusal
from serve_app.access.key_ring import KeyRing
from serve_app.access.quota_desk import QuotaDesk
from serve_app.access.request_headers import selected_protocol
from serve_app.audio.speech_scorer import OpenScorer, SileroScorers
from serve_app.clock import Clock, MonotonicClock, unix_now_s
from serve_app.dialects import DialectKit
from serve_app.gateway.asgi_socket import AsgiSocket
from serve_app.gateway.connection import Connection, SocketGone
from serve_app.gateway.draining import Draining, surely_begins
from serve_app.gateway.gateway_watch import GatewayWatch
from serve_app.gateway.http_answers import error_fields
from serve_app.gateway.http_door import refuse_socket
from serve_app.gateway.lobby import DRAINING_TEXT
from serve_app.gateway.socket_query import ChooseKit, read_query
from serve_app.ids import RandomIds
from serve_app.logs.bounded_log import Line
from serve_app.logs.log_lines import Facts, trouble
from serve_app.logs.session_records import SessionRecords
from serve_app.metrics.definitions import DOOR_REFUSALS
from serve_app.metrics.exporters import ReadExporters
from serve_app.metrics.meter import NO_METER, Meter, count_error
from serve_app.metrics.metric import OTHER
from serve_app.metrics.timings import GatewayTimings
from serve_app.ports import StageDirectory
from serve_app.sessions.open_sessions import OpenSessions
from serve_app.sessions.session_actor import World
from serve_app.sessions.session_host import SessionHost
from serve_app.settings import GatewaySettings
from serve_app.tracing.opening import open_tracer
from session.errors import DuplexError, LocalProtocolError, StageError, UnsupportedOption
from session.fitting import fitted
from session.ids import IdFactory
from session.realtime.facts import ServerFacts

OpenDirectory = Callable[[], Awaitable[StageDirectory]]
"""Finds the stages; raises StageError while they can not be reached."""

SHUTDOWN_S: Final = 10.0
"""Time for open sessions to give their stages back when the process ends."""
POLICY_VIOLATION: Final = 1008
INTERNAL_ERROR: Final = 1011
TRY_AGAIN_LATER: Final = 1013


class Gateway:
    """Everything that one gateway replica has."""

    def __init__(
        self,
        settings: GatewaySettings,
        open_directory: OpenDirectory,
        *,
        clock: Clock | None = None,
        ids: IdFactory | None = None,
        open_scorer: OpenScorer | None = None,
        meter: Meter = NO_METER,
        read_exporters: ReadExporters | None = None,
    ) -> None:
        self.settings = settings
        self.read_exporters = read_exporters
        self.meter = meter
        self.sessions = OpenSessions()
        self.timings = GatewayTimings(meter)
        keys = KeyRing(settings.api_keys, settings.api_keys_file, meter=meter)
        self.ids = ids or RandomIds()
        self.secrets = ClientSecrets(self.ids.token().encode())
        self.door = Doorkeeper(
            keys,
            secrets=self.secrets,
            allow_unauthenticated=settings.allow_unauthenticated,
            allowed_origins=settings.allowed_origins,
        )
        self.admin = AdminDoor(
            KeyRing(settings.admin_keys, settings.admin_keys_file, meter=meter),
            api_keys=keys,
            is_local=settings.allow_unauthenticated,
        )
        self._clock = clock or MonotonicClock()
        self.quotas = QuotaDesk(keys, self.sessions.held_by, settings.limits, self._clock)
        self.tracer = open_tracer(settings.tracing, "gateway", clock=self._clock, meter=meter)
        self.records = SessionRecords(
            most_entries=settings.story_entries, most_ended=settings.ended_stories
        )
        self.watch = GatewayWatch(meter, self.sessions, self._clock, self.records.bounded.flush)
        self.draining = Draining(
            self.sessions,
            self.watch.open_sockets,
            clock=self._clock,
            limits=settings.limits,
            place=settings.place,
        )
        self._open_scorer = open_scorer or SileroScorers().open
        self._open_directory = open_directory
        self._directory: StageDirectory | None = None
        self._finding = asyncio.Lock()

    def now(self) -> float:
        """Return the time on the sessions' clock."""
        return self._clock.now()

    async def directory(self) -> StageDirectory:
        """Return the way to the stages, found once; raise StageError while there is none."""
        async with self._finding:
            if self._directory is None:
                self._directory = await self._open_directory()
        return self._directory

    async def stage_health(self) -> dict[str, str]:
        """Return what each stage answers: `ok`, or what is wrong."""
        try:
            return await (await self.directory()).health()
        except StageError as error:
            return {"stages": error.message}

    async def serve_socket(self, socket: WebSocket, choose: ChooseKit) -> None:
        """Serve one WebSocket from its handshake to its end, in the dialect that its URL names."""
        admitted = self.door.admit_socket(socket.headers, now_unix_s=unix_now_s())
        if not isinstance(admitted, Refusal) and self._refuses_new(socket, choose):
            admitted = Refusal(503, DRAINING_TEXT)
        if isinstance(admitted, Refusal):
            self.refused("socket", admitted)
            await refuse_socket(socket, admitted)
            return
        await socket.accept(subprotocol=selected_protocol(socket.headers))
        accepted = AsgiSocket(socket)
        try:
            await self._serve(accepted, socket, choose, admitted)
        except Exception as error:  # noqa: BLE001 - it closes this socket and no other
            broke = Line("a connection broke", Facts(), logging.ERROR)
            self.records.bounded.write(broke, now=self.now(), error=error)
            broken = LocalProtocolError("the server made a mistake on this connection")
            await self._say_and_close(accepted, broken, INTERNAL_ERROR)
        finally:
            self.watch.socket_closed(accepted, *accepted.ending)

    def refused(self, of: str, refusal: Refusal) -> None:
        """Somebody was turned away at the door."""
        self.meter.count(DOOR_REFUSALS, of, str(refusal.status))
        facts = Facts(reason=of, status=refusal.status)
        line = Line("turned away at the door", facts, logging.WARNING)
        self.records.bounded.write(line, now=self.now())

    def _refuses_new(self, socket: WebSocket, choose: ChooseKit) -> bool:
        """Whether a socket can only begin a session, and none begins any more."""
        if not self.sessions.is_draining:
            return False
        if self.draining.is_past_deadline:
            return True
        try:
            kit = choose(socket.query_params, socket.headers)
        except UnsupportedOption:
            return False  # it is told what is wrong, whoever answers it
        return surely_begins(kit, read_query(socket.query_params), self.settings.limits)

    async def close(self) -> None:
        """End every session, politely."""
        await self.sessions.close_all("server_shutdown", within_s=SHUTDOWN_S)
        await asyncio.to_thread(self.tracer.close)

    async def _serve(
        self, accepted: AsgiSocket, socket: WebSocket, choose: ChooseKit, admitted: Admitted
    ) -> None:
        try:
            kit = choose(socket.query_params, socket.headers)
        except UnsupportedOption as error:
            self.watch.socket_opened(accepted, OTHER)
            await self._turn_away(accepted, error, POLICY_VIOLATION, admitted)
            return
        self.watch.socket_opened(accepted, kit.dialect.value)
        try:
            directory = await self.directory()
        except StageError as error:
            await self._turn_away(accepted, error, TRY_AGAIN_LATER, admitted)
            return
        query = read_query(socket.query_params)
        await Connection(accepted, query, self._host(directory, kit, admitted)).run()

    async def _turn_away(
        self, socket: AsgiSocket, error: DuplexError, code: int, admitted: Admitted
    ) -> None:
        found = trouble(error)
        facts = replace(found, error_words=None, principal=admitted.principal.name)
        self.records.bounded.write(Line("a socket got no session", facts), now=self.now())
        await self._say_and_close(socket, error, code)

    async def _say_and_close(self, socket: AsgiSocket, error: DuplexError, code: int) -> None:
        """End a socket that never got a session, or whose connection broke."""
        count_error(self.meter, error)
        event = {
            "type": "error",
            "event_id": self.ids.new("event"),
            "error": error_fields(error),
        }
        try:
            await socket.send(json.dumps(event))
            await socket.close(code, error.wire_code)
        except SocketGone:
            return

    def _host(self, directory: StageDirectory, kit: DialectKit, admitted: Admitted) -> SessionHost:
        descriptor = directory.descriptor
        world = World(
            directory,
            self._clock,
            self.settings.limits,
            self._open_scorer,
            self.timings,
            self.meter,
            self.watch.fairness,
            self.tracer,
            self.records,
        )
        facts = ServerFacts(
            model_id=descriptor.model_id,
            profile=descriptor.profile,
            max_sessions=world.limits.max_sessions,
            limits=self.quotas.shown(admitted.principal, world.limits),
            supports_resume=world.limits.disconnect_grace_s > 0,
        )

        defaults = kit.defaults(descriptor.model_id, descriptor.profile)
        if kit.has_realtime_sessions:
            defaults = fitted(admitted.settings.apply_to(defaults), None, descriptor.profile)
        return SessionHost(
            world,
            defaults,
            facts,
            self.ids,
            self.sessions,
            self.quotas,
            kit,
            admitted.principal,
        )
