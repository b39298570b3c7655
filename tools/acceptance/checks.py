"""What must hold of a run: laws of the wire over the client's log, and the sound of the replies.

Each check is a function from the log to a list of faults; an empty list is a pass.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tools.acceptance.client_log import NOTE, RECEIVED, SENT, Line

Log = Sequence[Line]
Check = Callable[[Log], list[str]]
AFTER_DONE: Final = frozenset(
    {"rate_limits.updated", "playback.acknowledged", "output_audio_buffer.cleared"}
)
"""What may still name a response after its `response.done`."""


def received(log: Log, *kinds: str) -> list[Line]:
    """Return what the service sent, of some kinds or of all."""
    return [
        line for line in log if line.direction == RECEIVED and (not kinds or line.kind in kinds)
    ]


def responses(log: Log) -> dict[str, list[Line]]:
    """Return the events of each response, in wire order."""
    found: defaultdict[str, list[Line]] = defaultdict(list)
    for line in received(log):
        if line.response_id:
            found[line.response_id].append(line)
    return dict(found)


def replies(log: Log) -> dict[str, bytes]:
    """Return the sound of each response."""
    sound: defaultdict[str, bytearray] = defaultdict(bytearray)
    for line in received(log, "response.audio.delta"):
        sound[line.response_id] += line.audio
    return {response_id: bytes(pcm) for response_id, pcm in sound.items()}


def transcripts(log: Log) -> dict[str, str]:
    """Return the joined transcript deltas of each response."""
    text: defaultdict[str, str] = defaultdict(str)
    for line in received(log, "response.audio_transcript.delta"):
        text[line.response_id] += str(line.event.get("delta", ""))
    return dict(text)


# --- every contract -------------------------------------------------------------------------------


def no_errors(log: Log) -> list[str]:
    """The service refuses and breaks nothing."""
    return [f"error: {line.event.get('error')}" for line in received(log, "error")]


def created_and_done_are_symmetric(log: Log) -> list[str]:
    """Each response has one beginning, one end, and one end of its audio if it has any."""
    faults = []
    for response_id, lines in responses(log).items():
        counts = Counter(line.kind for line in lines)
        if (counts["response.created"], counts["response.done"]) != (1, 1):
            faults.append(f"{response_id}: {counts['response.created']} created")
        if counts["response.audio.done"] != int(counts["response.audio.delta"] > 0):
            faults.append(f"{response_id}: {counts['response.audio.done']} response.audio.done")
        if lines[0].kind != "response.created":
            faults.append(f"{response_id} begins with {lines[0].kind}")
    return faults


def one_speak_before_the_first_audio(log: Log) -> list[str]:
    """`response.speak` comes at most once, and no later than sound does."""
    faults = []
    for response_id, lines in responses(log).items():
        kinds = [line.kind for line in lines]
        if kinds.count("response.speak") > 1:
            faults.append(f"{response_id}: several response.speak")
        if (
            "response.audio.delta" in kinds
            and "response.speak" not in (kinds[: kinds.index("response.audio.delta")])
        ):
            faults.append(f"{response_id}: audio before response.speak")
    return faults


def each_audio_has_its_transcript(log: Log) -> list[str]:
    """An audio delta is followed by the transcript delta of the same chunk."""
    pair = ("response.audio.delta", "response.audio_transcript.delta")
    faults = []
    for response_id, lines in responses(log).items():
        kinds = [line.kind for line in lines if line.kind in pair]
        if kinds != list(pair) * (len(kinds) // 2):
            faults.append(f"{response_id}: audio and transcript deltas do not alternate")
    return faults


def joined_deltas_are_the_final_transcript(log: Log) -> list[str]:
    """What was sent piece by piece is what is said at the end, there and in `response.done`."""
    joined = transcripts(log)
    finals = {
        line.response_id: str(line.event.get("transcript"))
        for line in received(log, "response.audio_transcript.done")
    }
    faults = [
        f"{response_id}: deltas {joined.get(response_id)!r}, final {final!r}"
        for response_id, final in finals.items()
        if joined.get(response_id, "") != final
    ]
    for line in received(log, "response.done"):
        said, kept = joined.get(line.response_id, ""), _final_text(line)
        if said and kept != said:
            faults.append(f"{line.response_id}: deltas {said!r}, response.done {kept!r}")
    return faults


def _final_text(done: Line) -> str:
    response = done.event.get("response")
    output = response.get("output") if isinstance(response, Mapping) else None
    parts = [
        part
        for item in (output if isinstance(output, list) else [])
        for part in item.get("content", [])
    ]
    return "".join(str(part.get("transcript") or part.get("text") or "") for part in parts)


def nothing_of_a_response_after_its_end(log: Log) -> list[str]:
    """After `response.done` only acknowledgements and the like name the response."""
    faults = []
    for response_id, lines in responses(log).items():
        kinds = [line.kind for line in lines]
        if "response.done" not in kinds:
            continue
        late = [k for k in kinds[kinds.index("response.done") + 1 :] if k not in AFTER_DONE]
        faults += [f"{response_id}: {kind} after response.done" for kind in late]
    return faults


def one_terminal_and_silence_after_it(log: Log) -> list[str]:
    """`session.closed` comes once and is the last event before the socket closes."""
    kinds = [line.kind for line in received(log)]
    if kinds.count("session.closed") != 1 or kinds[-1] != "session.closed":
        return [f"the last events are {kinds[-3:]}"]
    if not any(line.kind == "socket.closed" for line in log if line.direction == NOTE):
        return ["the socket was not read to its end"]
    return []


def every_answer_is_heard_to_its_end(log: Log) -> list[str]:
    """All sound of a completed response was acknowledged and its history committed."""
    faults = []
    for response_id in _completed(log):
        sound_ms = len(replies(log).get(response_id, b"")) * 1000 // (2 * 24_000)
        views = [_playback(line) for line in _acknowledgements(log, response_id)]
        if sound_ms and not any(view["committed_ms"] == view["sent_ms"] for view in views):
            faults.append(f"{response_id}: {sound_ms} ms sent, {views[-1:]} acknowledged")
    return faults


def late_acknowledgements_change_nothing(log: Log) -> list[str]:
    """An answer that was heard stays heard, whatever is acknowledged afterwards."""
    began = next(
        (at for at, line in enumerate(log) if line.kind == "late_acknowledgements.began"), None
    )
    if began is None:
        return []
    response_id = str(log[began].event["response_id"])
    before = [_playback(line) for line in _acknowledgements(log[:began], response_id)]
    after = [_playback(line) for line in _acknowledgements(log[began:], response_id)]
    if len(after) != 2:
        return [f"{len(after)} answers to two late acknowledgements"]
    if response_id in _completed(log) and any([view] != before[-1:] for view in after):
        return [f"{before[-1:]} became {after}"]
    return [
        f"cursors out of order: {view}"
        for view in after
        if not view["committed_ms"] <= view["played_ms"] <= view["sent_ms"]
    ]


def a_quiet_interval_before_the_close(log: Log) -> list[str]:
    """Between the last quiet interval's beginning and `session.close` no response begins."""
    begins = [at for at, line in enumerate(log) if line.kind == "quiet_interval.began"]
    closes = [at for at, line in enumerate(log) if line.kind == "session.close"]
    if not begins or not closes:
        return ["no quiet interval, or no session.close"]
    inside = log[begins[-1] : closes[0]]
    wanted_s = float(str(log[begins[-1]].event["seconds"]))
    if inside[-1].at_s - inside[0].at_s < 0.9 * wanted_s:
        return [f"only {inside[-1].at_s - inside[0].at_s:.1f} s"]
    return [f"{line.response_id} began" for line in inside if line.kind == "response.created"]


def _completed(log: Log) -> list[str]:
    return [
        line.response_id
        for line in received(log, "response.done")
        if isinstance(response := line.event.get("response"), Mapping)
        and response.get("status") == "completed"
    ]


def _acknowledgements(log: Log, response_id: str) -> list[Line]:
    return [
        line for line in received(log, "playback.acknowledged") if line.response_id == response_id
    ]


def _playback(line: Line) -> dict[str, int]:
    inner = line.event.get("event")
    playback = inner.get("playback") if isinstance(inner, Mapping) else None
    return dict(playback) if isinstance(playback, Mapping) else {}


# --- model-policy ---------------------------------------------------------------------------------


def the_client_decides_nothing(log: Log) -> list[str]:
    """No commit, no request for an answer, and appends without a hint of what is in them."""
    allowed = {"session.update", "input_audio_buffer.append", "playback.ack", "session.close"}
    sent = [line for line in log if line.direction == SENT]
    faults = [f"the client sent {line.kind}" for line in sent if line.kind not in allowed]
    return faults + [
        f"an append says {sorted(line.event)}"
        for line in sent
        if line.kind == "input_audio_buffer.append" and set(line.event) != {"type"}
    ]


def nothing_is_cut(log: Log) -> list[str]:
    """Every response ends completed: nothing cancels, truncates or outdates another."""
    done = [line.response_id for line in received(log, "response.done")]
    cut = sorted(set(done) - set(_completed(log)))
    return [f"{response_id} was not completed" for response_id in cut]


# --- response-required ----------------------------------------------------------------------------


def one_spoken_response(log: Log) -> list[str]:
    """One utterance and one commit have one complete spoken response."""
    counts = {
        "commits": sum(line.kind == "input_audio_buffer.commit" for line in log),
        "created": len(received(log, "response.created")),
        "completed": len(_completed(log)),
        "with sound": len(replies(log)),
    }
    return [f"{count} {what}" for what, count in counts.items() if count != 1]


def one_history_commit(log: Log) -> list[str]:
    """The one acknowledgement of the whole answer commits it to the history, once."""
    begun = [at for at, line in enumerate(log) if line.kind == "late_acknowledgements.began"]
    before = log[: begun[0]] if begun else log
    commits = [
        line
        for line in received(before, "playback.acknowledged")
        if isinstance(inner := line.event.get("event"), Mapping) and inner.get("history_committed")
    ]
    return [] if len(commits) == 1 else [f"{len(commits)} history commits"]


EVERY: Final[Sequence[Check]] = (
    no_errors,
    created_and_done_are_symmetric,
    one_speak_before_the_first_audio,
    each_audio_has_its_transcript,
    joined_deltas_are_the_final_transcript,
    nothing_of_a_response_after_its_end,
    one_terminal_and_silence_after_it,
    every_answer_is_heard_to_its_end,
    late_acknowledgements_change_nothing,
    a_quiet_interval_before_the_close,
)
CHECKS: Final[Mapping[str, Sequence[Check]]] = {
    "model-policy": (*EVERY, the_client_decides_nothing, nothing_is_cut),
    "response-required": (*EVERY, one_spoken_response, one_history_commit),
}
