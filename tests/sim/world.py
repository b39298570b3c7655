"""One simulated world: clients, sockets, sessions and stages, moved by the steps of a story.

Rule 1: time is a number. Between two steps everything that is due happens, in the order of time.
Rule 2: after each step mailboxes are emptied, sockets are written to, and attentive clients read,
        until nothing moves any more. The laws are checked at each of these moves.
Rule 3: the same steps in the same setup give the same world, to the last byte.
"""

from collections import Counter
from collections.abc import Iterable

from session.effects import (
    CancelStages,
    CloseStages,
    ConfigureStages,
    OpenStages,
    StageCall,
    SubmitUnit,
    Synthesize,
)
from session.ids import AttachmentId
from session.machine import DuplexSession
from session.outbox import Outbox
from session.stimuli import CloseRequested, OpenRequested
from session.unit import Decision, UnitResult
from tests.session.driver import CountingIds
from tests.sim import steps
from tests.sim.actor import Actor, Common, MakeSession
from tests.sim.client import Client, Socket
from tests.sim.setup import MAX_SESSIONS, Setup
from tests.sim.stages import SlotBook
from tests.sim.story import Step
from tests.sim.violation import Violation

START_S = 100.0
MAX_MOVES = 5_000
"""More moves than this between two steps, and the world spins."""


class World:
    """Everything of one simulation."""

    def __init__(
        self,
        setup: Setup,
        *,
        make_session: MakeSession = DuplexSession,
        make_outbox: type[Outbox] = Outbox,
    ) -> None:
        self.setup = setup
        self.now_s = START_S
        self.seen: Counter[str] = Counter()
        self.book = SlotBook(MAX_SESSIONS)
        self.ids = CountingIds()
        self.clients = [Client(number) for number in range(len(setup.configs))]
        self.actors: list[Actor] = []
        self.n_commands = 0
        self.told: list[tuple[int, StageCall]] = []
        """Calls that the stages have got and that nobody has planned an answer for."""
        self.asked: dict[AttachmentId, tuple[Client, Socket, int]] = {}
        """Sockets that want a session, and what they claim to have read."""
        self.common = Common(
            limits=setup.limits,
            profile=setup.profile,
            book=self.book,
            ids=self.ids,
            now=lambda: self.now_s,
            seen=self.seen,
            make_session=make_session,
            make_outbox=make_outbox,
        )

    # --- time -----------------------------------------------------------------------------------

    def run(self, story: Iterable[Step]) -> None:
        """Live through a whole story."""
        for step in story:
            self.take(step)
        self.finish()

    def take(self, step: Step) -> None:
        """Let time pass to the step, and do it."""
        self.pass_to(START_S + step.at_ms / 1000)
        steps.do(self, step)
        self.settle()

    def pass_to(self, at_s: float) -> None:
        """Let everything happen that is due by then."""
        for _ in range(MAX_MOVES):
            due = min((a.due_s for a in self.actors if a.due_s is not None), default=None)
            if due is None or due > at_s:
                self.now_s = max(self.now_s, at_s)
                return
            self.now_s = max(self.now_s, due)
            for actor in self.actors:
                if actor.due_s is not None and actor.due_s <= self.now_s:
                    actor.run_due()
            self.settle()
        raise Violation("the world spins: something is due again and again")

    def settle(self) -> None:
        """Let everything move until it rests."""
        for actor in self.actors:
            actor.drain(self.pump)
        self.pump()
        if any(actor.has_mail for actor in self.actors):
            self.settle()

    def pump(self) -> None:
        """Write to the sockets, and let the clients read."""
        for client in self.clients:
            for socket in client.sockets:
                socket.pump(capacity=self.setup.capacity, now=self.now_s)
            client.read()

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Let the stages work and the clients read; then close everything and look for remains."""
        for client in self.clients:
            for socket in client.sockets:
                socket.is_stalled = False
                if socket.is_cut:
                    socket.hang_up()
        self.settle()
        self._rounds(12, 0.5)
        self._rounds(8, 5.0)
        for actor in self.actors:
            if not actor.is_over and actor.laws.attached is None:
                raise Violation("a client that is gone keeps its session")
            if not actor.is_over:
                actor.post(CloseRequested("server_shutdown"))
        self._rounds(60, 0.5)
        self._check_remains()

    def _rounds(self, n: int, pause_s: float) -> None:
        for _ in range(n):
            if all(actor.is_over for actor in self.actors):
                return
            self.settle()
            for actor in self.actors:
                answer_all(actor)
            self.pass_to(self.now_s + pause_s)
        self.settle()

    def _check_remains(self) -> None:
        if self.book.holds:
            raise Violation("law 8: a slot is never given back")
        for actor in self.actors:
            if not actor.is_over:
                raise Violation("a session does not end")
            actor.check_remains()
        if self.asked:
            raise Violation("a socket waits for ever for the session that it asked for")
        for client in self.clients:
            client.check_end()

    # --- sessions and sockets -------------------------------------------------------------------

    def begin(self, client: Client) -> None:
        """Open a session for a client on a new socket."""
        attachment = AttachmentId(self.ids.new("att"))
        can_resume = self.setup.limits.disconnect_grace_s > 0
        actor = Actor(
            self.common,
            self.setup.configs[client.number],
            OpenRequested(None, attachment, is_resumable=can_resume),
            told=self._tell,
            answered=self.answer_socket,
        )
        self.actors.append(actor)
        client.forget()
        client.actor = actor
        client.current = Socket(attachment, actor)
        client.sockets.append(client.current)

    def _tell(self, actor: Actor, effect: StageCall) -> None:
        self.told.append((self.actors.index(actor), effect))

    def answer_socket(self, attachment: AttachmentId, refusal: str | None) -> None:
        """Tell a client whether its socket has the session that it asked for."""
        client, socket, claimed = self.asked.pop(attachment)
        if refusal is None:
            client.resumed(socket, claimed)
        elif socket in client.sockets:
            client.sockets.remove(socket)
            socket.hang_up()


def answer_all(actor: Actor) -> None:
    """Answer every call that is open as a stage does that works."""
    side = actor.stages
    while side.open_calls(CancelStages):
        side.cancelled(is_lost=False)
    for call in list(side.calls):
        match call.effect:
            case OpenStages():
                side.opened(call, None)
            case SubmitUnit():
                side.finished(call, UnitResult(Decision.LISTEN, turn_end=True))
            case Synthesize():
                side.chunk(call, 20, len(call.text))
                side.spoken(call)
            case ConfigureStages():
                side.configured(call)
            case CloseStages():
                side.released(call)
            case _:
                pass
