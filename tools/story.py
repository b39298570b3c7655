"""Shows an operator the sessions of a running service, or the story of one, in a terminal.

`python -m tools.story` lists the sessions, `python -m tools.story ID` tells the story of one.
An admin key comes from where `tools.admin_key` finds it.
"""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import ValidationError

from serve_app.gateway.story_routes import SESSIONS_PATH
from serve_app.logs.story_views import EntryView, SessionsView, SessionView, StoryView
from tools.admin_key import find_key, new_parser

DEFAULT_URL: Final = "http://127.0.0.1:8000"
TIMEOUT_S: Final = 10.0


def main(arguments: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Print what was asked for; return the exit status."""
    parser = new_parser("tools.story", __doc__)
    parser.add_argument("id", nargs="?", help="a session's id; without one, all are listed")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the service ({DEFAULT_URL})")
    parser.add_argument("--limit", type=int, default=200, help="so many entries or sessions (200)")
    asked = parser.parse_args(arguments)
    key = find_key(environ, asked.key_file)
    path = f"{SESSIONS_PATH}/{asked.id}" if asked.id else SESSIONS_PATH
    try:
        body = _fetch(f"{asked.url.rstrip('/')}{path}?limit={asked.limit}", key)
        lines = (
            story_lines(StoryView.model_validate_json(body))
            if asked.id
            else session_lines(SessionsView.model_validate_json(body))
        )
    except urllib.error.HTTPError as error:
        with error:
            print(f"{error.code}: {error.read().decode(errors='replace')}", file=sys.stderr)
        return 1
    except (OSError, ValidationError) as error:
        print(f"{asked.url} does not answer as this service does: {error}", file=sys.stderr)
        return 1
    for line in lines:
        print(line)
    return 0


def session_lines(sessions: SessionsView) -> Iterator[str]:
    """Return one line for each session."""
    if not (sessions.open or sessions.ended):
        yield "no session is open, and none has ended yet"
    for session in [*sessions.open, *sessions.ended]:
        yield _session_line(session)


def story_lines(story: StoryView) -> Iterator[str]:
    """Return a session's story as a timeline."""
    session = story.session
    yield _session_line(session)
    if session.stage0_replica is not None:
        yield f"  Stage0 at {session.stage0_replica}, Stage1 at {session.stage1_replica}"
    if story.left_out:
        yield f"  {story.left_out} earlier entries are not shown"
    for entry in story.entries:
        yield _entry_line(entry)


def _session_line(session: SessionView) -> str:
    end = f" ({session.end_reason})" if session.end_reason else ""
    return (
        f"{session.id}  {session.state}{end}  began {session.began_at}  "
        f"{session.duration_s:.1f} s  {session.dialect}  {session.principal or '-'}  "
        f"units {session.units}  answers {session.answers}"
    )


def _entry_line(entry: EntryView) -> str:
    name = entry.stimulus if entry.times == 1 else f"{entry.stimulus} x{entry.times}"
    until = f" to {entry.last_s:.3f}" if entry.times > 1 else ""
    sizes = [
        *([f"unit {entry.unit}"] if entry.unit is not None else []),
        *([f"{entry.audio_ms} ms"] if entry.audio_ms else []),
        *([f"{entry.characters} characters"] if entry.characters else []),
        *([f"{entry.images} images"] if entry.images else []),
    ]
    facts = [
        *(["STALE"] if entry.is_stale else []),
        *sizes,
        *entry.words,
        *([entry.response_id] if entry.response_id else []),
        *([f"-> {', '.join(entry.effects)}"] if entry.effects else []),
    ]
    fence = f"{entry.incarnation}.{entry.epoch}.{entry.turn}"
    return f"{entry.number:6d} {entry.first_s:10.3f}{until} [{fence}] {'  '.join([name, *facts])}"


def _fetch(url: str, key: str | None) -> bytes:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        body: bytes = answer.read()
    return body


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
