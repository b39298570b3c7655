"""What each kind of step does to a world. A step that finds nothing to act upon does nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from session.config import (
    AnswerSettings,
    AudioEncoding,
    AudioFormat,
    ConfigPatch,
    ResponseOptions,
    TurnDetection,
)
from session.context import ContextMessage, ItemReference
from session.effects import (
    CancelStages,
    CloseStages,
    ConfigureStages,
    OpenStages,
    StageCall,
    SubmitUnit,
    Synthesize,
)
from session.errors import MalformedEvent
from session.ids import AttachmentId, ItemId, ResponseId
from session.realtime.commands import SessionResumeAsked
from session.service_stimuli import DrainRequested, DrainWithdrawn
from session.socket_stimuli import EventAcked
from session.stimuli import (
    AttachedCommand,
    AudioAppended,
    BargedIn,
    CloseRequested,
    EventRefused,
    HeartbeatReceived,
    InputCancelled,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputClearRequested,
    PlaybackAcked,
    ResponseCancelRequested,
    ResponseRequested,
    SessionConfigured,
    TextAppended,
    TurnSignalled,
)
from session.tools import FunctionCall
from session.unit import Decision, UnitResult
from tests.sim.actor import Spoken
from tests.sim.client import Client, Socket
from tests.sim.samples import PAIRS_PER_MS, numbered
from tests.sim.stages import Call, StageSide
from tests.sim.story import Step
from tests.sim.told import APART

if TYPE_CHECKING:
    from tests.sim.world import World

Commands = Callable[..., AttachedCommand | Spoken | None]

PATCHES: Final = {
    "warm": (("temperature", 0.9),),
    "cold": (("temperature", 0.1),),
    "deaf": (("turn_detection", None),),
    "keen": (("turn_detection", TurnDetection(0.4, silence_duration_ms=300)),),
    "model": (("model", "another"),),
    "voice": (("voice", "other"),),
    "ulaw in": (("input_format", AudioFormat(AudioEncoding.G711_ULAW, 8_000)),),
    "wav out": (("output_format", AudioFormat(AudioEncoding.WAV, 24_000)),),
    "text only": (("output_modalities", ("text",)),),
}


def do(world: "World", step: Step) -> None:
    """Do one step."""
    if step.what in _STAGE:
        if step.who < len(world.actors):
            world.seen[f"stage: {step.what}"] += 1
            _STAGE[step.what](world.actors[step.who].stages, step.args)
        return
    if step.what in _SERVER:
        if step.who < len(world.actors):
            _SERVER[step.what](world, step.who, step.args)
        return
    if step.who >= len(world.clients):
        return
    client = world.clients[step.who]
    if step.what in _SOCKET:
        _SOCKET[step.what](world, client, step.args)
        return
    command = _COMMAND[step.what](client, *step.args)
    socket = client.current
    if command is not None and socket is not None and socket.is_open and socket.actor is not None:
        world.n_commands += 1
        socket.actor.post(_named(command, f"c{world.n_commands}"), socket.attachment)


def is_of_session(step: Step) -> bool:
    """Whether a step names a session; the others name a client."""
    return step.what in _STAGE or step.what in _SERVER


def _named(command: AttachedCommand | Spoken, event_id: str) -> AttachedCommand | Spoken:
    """Give a command the id that an error about it will name."""
    if isinstance(command, Spoken):
        return replace(command, append=replace(command.append, event_id=event_id))
    return replace(command, event_id=event_id)


# --- sockets ----------------------------------------------------------------------------------


def _open(world: "World", client: Client, args: Sequence[Any]) -> None:
    for socket in client.sockets:
        socket.is_cut = True
        socket.hang_up()
    world.seen["open"] += 1
    world.begin(client)


def _break(world: "World", client: Client, args: Sequence[Any]) -> None:
    """The client's newest socket breaks; a quiet one is noticed later."""
    if client.current is None or not client.current.is_open:
        return
    client.current.is_cut = True
    world.seen["broken quietly" if args[0] else "broken"] += 1
    if client.current.wire:
        world.seen["broken in a burst"] += 1
    if not args[0]:
        client.current.hang_up()


def _notice(world: "World", client: Client, args: Sequence[Any]) -> None:
    for socket in client.sockets:
        if socket.is_cut:
            socket.hang_up()


def _stall(world: "World", client: Client, args: Sequence[Any]) -> None:
    if client.current is not None:
        world.seen["stalled"] += 1
        client.current.is_stalled = True


def _wake(world: "World", client: Client, args: Sequence[Any]) -> None:
    for socket in client.sockets:
        socket.is_stalled = False


def _resume(world: "World", client: Client, args: Sequence[Any]) -> None:
    which_seq, which_token = args
    actor = client.actor
    if actor is None or actor.is_over or client.has_ended:
        return
    tokens = client.tokens or ["never had one"]
    token = {
        "newest": tokens[-1],
        "same": client.presented or tokens[-1],
        "old": tokens[0],
        "junk": "junk",
    }[which_token]
    client.presented = token
    newest = len(actor.shadow.numbered)
    claimed = {
        "last": client.last_seq,
        "first": 0,
        "behind": max(0, client.last_seq - 2),
        "ahead": min(newest, client.last_seq + 2),
        "beyond": newest + 3,
    }[which_seq]
    attachment = AttachmentId(world.ids.new("att"))
    socket = Socket(attachment, None)
    client.sockets.append(socket)
    world.asked[attachment] = (client, socket, claimed)
    actor.ask(SessionResumeAsked(actor.session_id, token, claimed), attachment)


def _ghost(world: "World", client: Client, args: Sequence[Any]) -> None:
    """A socket that has been replaced goes on sending."""
    old = [s for s in client.sockets if s is not client.current and s.actor is not None]
    if not old or client.actor is None or old[-1].actor is not client.actor:
        return
    world.seen["ghost"] += 1
    client.actor.post(_COMMAND[args[0]](client, *args[1:]), old[-1].attachment)  # type: ignore[arg-type]  # ghosts send commands that are always there


_SOCKET: Final[dict[str, Callable[["World", Client, Sequence[Any]], None]]] = {
    "open": _open,
    "break": _break,
    "notice": _notice,
    "stall": _stall,
    "read_on": _wake,
    "resume": _resume,
    "ghost": _ghost,
}

# --- the server -------------------------------------------------------------------------------


def _jam(world: "World", who: int, args: Sequence[Any]) -> None:
    """Something slow holds the mailbox: what comes waits, with its place in the order."""
    world.actors[who].jammed_until_s = world.now_s + args[0] / 1000


def _shut(world: "World", who: int, args: Sequence[Any]) -> None:
    world.actors[who].post(CloseRequested("server_shutdown"))


def _drain(world: "World", who: int, args: Sequence[Any]) -> None:
    """The server is about to go away, within so long."""
    world.actors[who].post(DrainRequested(world.now_s + args[0] / 1000))


def _stay(world: "World", who: int, args: Sequence[Any]) -> None:
    world.actors[who].post(DrainWithdrawn())


_SERVER: Final[dict[str, Callable[["World", int, Sequence[Any]], None]]] = {
    "jam": _jam,
    "shut": _shut,
    "drain": _drain,
    "stay": _stay,
}

# --- what a client says -----------------------------------------------------------------------


def _pick(names: Sequence[str], back: int) -> str | None:
    return names[-1 - back] if back < len(names) else None


def _say(
    client: Client,
    ms: int,
    probability: float,
    is_speech: bool | None,
    action: str | None,
    n_frames: int,
) -> Spoken:
    pcm = numbered(client.next_pair, ms)
    client.next_pair += ms * PAIRS_PER_MS
    append = AudioAppended(
        pcm,
        is_speech=is_speech,
        force_listen=action == "force_listen",
        force_barge_in=action == "force_barge_in",
        video_frames=(b"a picture",) * n_frames,
        overlap_action=None if action is None or action.startswith("force") else action,
    )
    return Spoken(append, probability)


_APART: Final = (ContextMessage("system", f"{APART}: be kind"), ContextMessage("user", APART))
_NOBODY: Final = (ItemReference(ItemId("item_of_nobody")),)


def _create(client: Client, kind: str) -> ResponseRequested:
    options = {
        "plain": ResponseOptions(),
        "aside": ResponseOptions(is_out_of_band=True),
        "text": ResponseOptions(output_modalities=("text",)),
        "warm": ResponseOptions(settings=AnswerSettings(temperature=0.9)),
        "refused": ResponseOptions(settings=AnswerSettings(speed=2.0)),
        "bare": ResponseOptions(),
        "apart": ResponseOptions(is_out_of_band=True, input=_APART),
        "apart from nothing": ResponseOptions(is_out_of_band=True, input=()),
        "apart from nobody": ResponseOptions(is_out_of_band=True, input=_NOBODY),
    }
    return ResponseRequested(options[kind], is_bare=kind == "bare")


def _ack(
    client: Client, back: int, share: float, committed_ms: int | None, truncates: bool
) -> PlaybackAcked:
    name = _pick(client.answers, back)
    played_ms = int(client.audio_ms.get(name or "", 0) * share)
    return PlaybackAcked(
        played_ms,
        committed_ms,
        None if name is None else ResponseId(name),
        truncates=truncates,
    )


def _output(client: Client, back: int) -> ItemCreated:
    call_id = _pick(client.calls, back) or "call_of_nobody"
    return ItemCreated("user", '{"ok": true}', call_id=call_id)


def _item(client: Client, role: str, name: str | None, after: int | str | None) -> ItemCreated:
    """Make an item, after the newest, after another one, or after something that is no item."""
    previous = _pick(client.items, after) if isinstance(after, int) else after
    name = client.spoken_id if name == "the spoken" else name
    text = "a text"
    if role != "user":
        text = f"message {client.next_message}"
        client.next_message += 1
    return ItemCreated(
        role,
        text,
        item_id=None if name is None else ItemId(name),
        previous_item_id=None if previous is None else ItemId(previous),
    )


def _voice_item(client: Client, ms: int) -> ItemCreated:
    pcm = numbered(client.next_item_pair, ms)
    client.next_item_pair += ms * PAIRS_PER_MS
    return ItemCreated("user", "", pcm=pcm)


def _cancel(client: Client, back: int | None) -> ResponseCancelRequested:
    name = None if back is None else _pick(client.answers, back)
    return ResponseCancelRequested(None if name is None else ResponseId(name))


def _hush(client: Client, back: int | None) -> OutputClearRequested:
    name = None if back is None else _pick(client.answers, back)
    return OutputClearRequested(None if name is None else ResponseId(name))


def _item_id(client: Client, back: int) -> ItemId:
    return ItemId(_pick(client.items, back) or "item_of_nobody")


def _event_ack(client: Client, offset: int) -> EventAcked:
    return EventAcked(max(0, client.last_seq + offset))


_COMMAND: Final[dict[str, Commands]] = {
    "say": _say,
    "commit": lambda _, create, speech: InputCommitted(create, speech),
    "clear": lambda _: InputCleared(),
    "drop": lambda _: InputCancelled(),
    "create": _create,
    "cancel": _cancel,
    "barge": lambda _: BargedIn(),
    "text": lambda _, text: TextAppended(text),
    "item": _item,
    "voice_item": _voice_item,
    "output": _output,
    "cut": lambda client, back, ms: ItemTruncated(_item_id(client, back), ms),
    "delete": lambda client, back: ItemDeleted(_item_id(client, back)),
    "show": lambda client, back: ItemRetrieved(_item_id(client, back)),
    "ack": _ack,
    "hush": _hush,
    "update": lambda _, name: SessionConfigured(ConfigPatch(PATCHES[name])),
    "beat": lambda _: HeartbeatReceived(),
    "signal": lambda _, name: TurnSignalled(name),
    "garbage": lambda _: EventRefused(MalformedEvent("not JSON")),
    "event_ack": _event_ack,
    "close": lambda _: CloseRequested(),
}

# --- what a stage answers ---------------------------------------------------------------------


def _with_call(
    kind: type[StageCall], act: Callable[[StageSide, Call, Sequence[Any]], None]
) -> Callable[[StageSide, Sequence[Any]], None]:
    """Act upon one of the open calls of a kind; the step's first argument says which."""

    def step(side: StageSide, args: Sequence[Any]) -> None:
        calls = side.open_calls(kind)
        if calls:
            act(side, calls[min(args[0], len(calls) - 1)], args[1:])

    return step


def _unit(side: StageSide, call: Call, args: Sequence[Any]) -> None:
    speaks, text, turn_end, heard, call_id = args
    calls = () if call_id is None or not speaks else (FunctionCall(call_id, "look_up", "{}"),)
    result = UnitResult(
        Decision.SPEAK if speaks else Decision.LISTEN,
        text if speaks else "",
        turn_end=turn_end,
        heard=heard,
        calls=calls,
    )
    side.finished(call, result)


def _cancelled(side: StageSide, args: Sequence[Any]) -> None:
    if side.open_calls(CancelStages):
        side.cancelled(is_lost=args[0])


_KINDS: Final[dict[str, type[StageCall]]] = {
    "unit": SubmitUnit,
    "speech": Synthesize,
    "configure": ConfigureStages,
}

_STAGE: Final[dict[str, Callable[[StageSide, Sequence[Any]], None]]] = {
    "opened": _with_call(OpenStages, lambda side, call, args: side.opened(call, args[0])),
    "unit": _with_call(SubmitUnit, _unit),
    "unit_fail": _with_call(SubmitUnit, lambda side, call, args: side.fail(call, args[0])),
    "voice": _with_call(Synthesize, lambda side, call, args: side.chunk(call, args[0], args[1])),
    "voiced": _with_call(Synthesize, lambda side, call, args: side.spoken(call)),
    "voice_fail": _with_call(Synthesize, lambda side, call, args: side.fail(call, args[0])),
    "configured": _with_call(ConfigureStages, lambda side, call, args: side.configured(call)),
    "configure_fail": _with_call(
        ConfigureStages, lambda side, call, args: side.fail(call, args[0])
    ),
    "released": _with_call(CloseStages, lambda side, call, args: side.released(call)),
    "release_fail": _with_call(CloseStages, lambda side, call, args: side.fail(call, args[0])),
    "cancelled": _cancelled,
    "again": lambda side, args: side.again(_KINDS[args[0]]),
    "lose": lambda side, args: side.lose(args[0]),
}
