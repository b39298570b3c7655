"""The checks of the fixture contracts: a good log passes, and each fault is found by its check."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tools.acceptance import checks
from tools.acceptance.checks import CHECKS
from tools.acceptance.client_log import NOTE, RECEIVED, SENT, ClientLog, Line
from tools.acceptance.inputs import MODEL_POLICY, RESPONSE_REQUIRED, WrongRecording

CHUNK = b"\x10\x00" * 12_000
"""Half a second of an answer."""
Change = Callable[[list[Line]], list[Line]]


def line(kind: str, *, direction: str = RECEIVED, audio: bytes = b"", **fields: object) -> Line:
    return Line(0.0, direction, {"type": kind, **fields}, audio)


def acknowledged(played_ms: int = 1000) -> Line:
    playback = {"sent_ms": 1000, "played_ms": played_ms, "committed_ms": played_ms}
    inner = {"response_id": "r1", "playback": playback, "history_committed": played_ms == 1000}
    return line("playback.acknowledged", event=inner)


def answer() -> list[Line]:
    content = [{"type": "output_audio", "transcript": "one two"}]
    response = {"id": "r1", "status": "completed", "output": [{"content": content}]}
    return [
        line("response.created", response={"id": "r1"}),
        line("response.speak", response_id="r1"),
        line("response.audio.delta", response_id="r1", audio=CHUNK),
        line("response.audio_transcript.delta", response_id="r1", delta="one "),
        line("response.audio.delta", response_id="r1", audio=CHUNK),
        line("response.audio_transcript.delta", response_id="r1", delta="two"),
        line("response.audio.done", response_id="r1"),
        line("response.audio_transcript.done", response_id="r1", transcript="one two"),
        line("response.done", response=response),
        line("rate_limits.updated"),
    ]


def good(contract: str) -> list[Line]:
    """Return the log of a run in which all is well."""
    commits = [line("input_audio_buffer.commit", direction=SENT)]
    lines = [
        line("session.update", direction=SENT),
        line("session.created"),
        line("input_audio_buffer.append", direction=SENT, audio=CHUNK),
        *(commits if contract == "response-required" else []),
        *answer(),
        line("playback.ack", direction=SENT, response_id="r1"),
        acknowledged(),
        line("late_acknowledgements.began", direction=NOTE, response_id="r1"),
        acknowledged(),
        acknowledged(),
        line("quiet_interval.began", direction=NOTE, seconds=1.0),
        line("input_audio_buffer.append", direction=SENT, audio=CHUNK),
        line("session.close", direction=SENT),
        line("session.closed"),
        line("socket.closed", direction=NOTE),
    ]
    return [replace(one, at_s=float(at)) for at, one in enumerate(lines)]


def faults(contract: str, lines: list[Line]) -> set[str]:
    return {check.__name__ for check in CHECKS[contract] if check(lines)}


def place(lines: list[Line], kind: str) -> int:
    return next(at for at, one in enumerate(lines) if one.kind == kind)


def before(kind: str, *added: Line) -> Change:
    def change(lines: list[Line]) -> list[Line]:
        at = place(lines, kind)
        return [*lines[:at], *added, *lines[at:]]

    return change


def without(kind: str) -> Change:
    def change(lines: list[Line]) -> list[Line]:
        at = place(lines, kind)
        return [*lines[:at], *lines[at + 1 :]]

    return change


def instead(kind: str, other: Line) -> Change:
    return lambda lines: [other if one.kind == kind else one for one in lines]


DELTA = line("response.audio.delta", response_id="r1", audio=CHUNK)
FAULTS: list[tuple[str, Change]] = [
    ("no_errors", before("session.close", line("error", error={"code": "x"}))),
    ("created_and_done_are_symmetric", without("response.done")),
    ("created_and_done_are_symmetric", without("response.audio.done")),
    ("created_and_done_are_symmetric", without("response.created")),
    ("one_speak_before_the_first_audio", before("response.done", answer()[1])),
    ("one_speak_before_the_first_audio", without("response.speak")),
    ("each_audio_has_its_transcript", without("response.audio_transcript.delta")),
    ("joined_deltas_are_the_final_transcript", before("response.audio.done", *answer()[2:4])),
    ("nothing_of_a_response_after_its_end", before("rate_limits.updated", *answer()[2:4])),
    ("one_terminal_and_silence_after_it", before("socket.closed", DELTA)),
    ("one_terminal_and_silence_after_it", without("socket.closed")),
    ("one_terminal_and_silence_after_it", before("session.closed", line("session.closed"))),
    ("a_quiet_interval_before_the_close", before("session.close", answer()[0])),
    ("a_quiet_interval_before_the_close", without("quiet_interval.began")),
    ("late_acknowledgements_change_nothing", before("quiet_interval.began", acknowledged())),
]


@pytest.mark.parametrize("contract", CHECKS)
def test_a_good_run_passes(contract: str) -> None:
    assert faults(contract, good(contract)) == set()


@pytest.mark.parametrize("contract", CHECKS)
@pytest.mark.parametrize(("check", "change"), FAULTS)
def test_each_fault_is_found(contract: str, check: str, change: Change) -> None:
    assert check in faults(contract, change(good(contract)))


def test_an_answer_not_heard_to_its_end_is_found() -> None:
    short = [acknowledged(500) if o.kind == "playback.acknowledged" else o for o in good("x")]
    assert "every_answer_is_heard_to_its_end" in faults("model-policy", short)


def test_a_late_acknowledgement_that_moves_a_cursor_is_found() -> None:
    lines = good("x")
    at = place(lines, "late_acknowledgements.began")
    lines[at + 1] = acknowledged(1)
    assert faults("model-policy", lines) == {"late_acknowledgements_change_nothing"}


@pytest.mark.parametrize(
    "sent",
    [
        line("input_audio_buffer.commit", direction=SENT),
        line("response.create", direction=SENT),
        line("input_audio_buffer.append", direction=SENT, is_speech=True),
    ],
)
def test_a_client_that_decides_is_found(sent: Line) -> None:
    lines = before("response.created", sent)(good("model-policy"))
    assert "the_client_decides_nothing" in faults("model-policy", lines)


def test_a_response_that_was_cut_is_found() -> None:
    cut = line("response.done", response={"id": "r1", "status": "cancelled", "output": []})
    found = faults("model-policy", instead("response.done", cut)(good("model-policy")))
    assert "nothing_is_cut" in found


def test_a_required_response_is_one_and_committed_once() -> None:
    contract = "response-required"
    second = [replace(one, event=renamed(one)) for one in answer()]
    two = before("playback.ack", *second)(good(contract))
    assert "one_spoken_response" in faults(contract, two)
    twice = before("late_acknowledgements.began", acknowledged())(good(contract))
    assert faults(contract, twice) == {"one_history_commit"}
    never = without("playback.acknowledged")(good(contract))
    assert "one_history_commit" in faults(contract, never)


def renamed(one: Line) -> dict[str, object]:
    text = json.dumps(one.event).replace('"r1"', '"r2"')
    return dict(json.loads(text))


def test_every_check_is_tried_here() -> None:
    here = Path(__file__).read_text()
    named = {check.__name__ for contract in CHECKS.values() for check in contract}
    assert {name for name in named if f'"{name}"' not in here} == set()
    assert checks.EVERY


def test_the_log_counts_audio_and_writes_none() -> None:
    file = io.StringIO()
    log = ClientLog(file, clock=lambda: 5.0)
    log.sent({"type": "input_audio_buffer.append"}, CHUNK)
    log.note("input.began", name="x")
    written = [json.loads(text) for text in file.getvalue().splitlines()]
    assert [entry["audio_bytes"] for entry in written] == [len(CHUNK), 0]
    assert [entry["direction"] for entry in written] == [SENT, NOTE]


def test_the_recordings_are_those_that_were_pinned(tmp_path: Path) -> None:
    for spoken in (*MODEL_POLICY, RESPONSE_REQUIRED):
        assert len(spoken.pcm()) > 2 * 16_000
    assert len({spoken.sha256 for spoken in MODEL_POLICY}) == len(MODEL_POLICY)
    other = tmp_path / "other.wav"
    other.write_bytes(MODEL_POLICY[0].file.read_bytes())
    with pytest.raises(WrongRecording, match="SHA-256"):
        replace(MODEL_POLICY[1], path=str(other)).pcm()
