"""What one session lives through, as far as metrics without a session's name can tell."""

from typing import Final

from serve_app.metrics import definitions as d
from tools.dashboards import panels
from tools.dashboards.board import Board, Note, Panel, Row
from tools.dashboards.curves import growth, quantiles

LIMITS: Final = """\
**No metric names a session**: every label has a closed set of values, or each conversation would
leave series behind for ever. So these graphs show *all* sessions of the moment, in the order in
which one session lives. While a single session is open, they are that session's.

The slowest of many is visible as a percentile and in *slowest session by the mean*; which
one it is, they do not say."""

SESSION: Final = Board(
    uid="duplex-session",
    title="Duplex: a session's life",
    description="What a session goes through, from opening to end. Of all sessions at once: no "
    "metric names one.",
    rows=(
        Row(
            "Opening and end",
            (
                Note(
                    title="What this shows, and what it can not",
                    description="Metrics have no label for a session.",
                    text=LIMITS,
                ),
                panels.SESSIONS,
                Panel(
                    title="Time to open",
                    description="From a session's first event to its stages being open.",
                    unit="s",
                    queries=quantiles(d.SESSION_OPEN),
                ),
                Panel(
                    title="How long sessions lasted",
                    description="Of those that ended; in steps, as the buckets are wide.",
                    unit="s",
                    queries=quantiles(d.SESSION_DURATION),
                ),
                panels.SESSIONS_ENDED,
                Panel(
                    title="Socket lost, and back",
                    description="Attempts to go on over another socket, by result.",
                    unit="ops",
                    queries=growth(d.RESUMES, "result"),
                ),
            ),
        ),
        Row(
            "Being heard",
            (
                panels.SOUND,
                panels.UNIT_GAP,
                panels.UNIT_LAG,
                panels.SLOWEST,
                panels.DECISIONS,
                Panel(
                    title="Errors it is sent",
                    description="`error` events by class.",
                    unit="ops",
                    queries=growth(d.ERRORS_SENT, "error"),
                ),
            ),
        ),
        Row(
            "Being answered",
            (
                Panel(
                    title="Request to first sound",
                    description="From the client's commit or request to the first sound.",
                    unit="s",
                    queries=quantiles(d.FIRST_AUDIO, {"since": "commit"}),
                ),
                panels.FIRST_AUDIO,
                Panel(
                    title="Spoken answers",
                    description="Answers with sound, by whether a client that plays at once had "
                    "to wait.",
                    unit="ops",
                    queries=growth(d.SPOKEN, "playback"),
                ),
                panels.ANSWERS,
                panels.BARGE_IN_STOP,
                panels.ACK_LAG,
            ),
        ),
    ),
)
