"""What one session lives through, as far as metrics without a session's name can tell."""

from typing import Final

from serve_app.metrics import definitions as d
from tools.dashboards import targets
from tools.dashboards.board import Board, Note, Panel, Row
from tools.dashboards.curves import growth, level, quantiles, slow_end

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
                Panel(
                    title="Sessions",
                    description="How many sessions the graphs here are of.",
                    unit="short",
                    queries=level(d.OPEN_SESSIONS, "state"),
                    stacked=True,
                ),
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
                Panel(
                    title="Ends",
                    description="Sessions that are over, by why.",
                    unit="ops",
                    queries=growth(d.SESSIONS_ENDED, "reason"),
                ),
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
                Panel(
                    title="Sound in and out",
                    description="Seconds of sound a second. An unbroken stream has 1 in for each "
                    "session.",
                    unit="short",
                    queries=growth(d.AUDIO_SECONDS, "direction"),
                ),
                Panel(
                    title="Time between units",
                    description="In sessions whose model hears without pause: one unit's length "
                    "when all is well.",
                    unit="s",
                    queries=quantiles(d.UNIT_GAP),
                ),
                Panel(
                    title="Lag behind the user",
                    description="Sound that waits behind a unit.",
                    unit="s",
                    queries=quantiles(d.UNIT_LAG),
                    bad=targets.UNIT_LAG_P95_S,
                ),
                Panel(
                    title="Slowest session by the mean",
                    description="Far above 1: one session waits while others do not.",
                    unit="short",
                    queries=level(d.LAG_RATIO),
                    bad=targets.LAG_RATIO,
                ),
                Panel(
                    title="Decisions",
                    description="Units by what the model decided, and what it was fed.",
                    unit="ops",
                    queries=growth(d.UNITS, "outcome", "fed"),
                ),
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
                Panel(
                    title="Speech end to first sound",
                    description="From the end of the user's speech, as the voice detection found "
                    "it, to the first sound.",
                    unit="s",
                    queries=quantiles(d.FIRST_AUDIO, {"since": "speech_end"}),
                    bad=targets.FIRST_AUDIO_P95_S,
                ),
                Panel(
                    title="Spoken answers",
                    description="Answers with sound, by whether a client that plays at once had "
                    "to wait.",
                    unit="ops",
                    queries=growth(d.SPOKEN, "playback"),
                ),
                Panel(
                    title="Answers",
                    description="Answers that have ended, by how and why.",
                    unit="ops",
                    queries=growth(d.RESPONSES, "status", "reason"),
                ),
                Panel(
                    title="Interruptions",
                    description="Time to stop an answer, p95, by who interrupted.",
                    unit="s",
                    queries=slow_end(d.BARGE_IN_STOP, "by"),
                    bad=targets.BARGE_IN_STOP_P95_S,
                ),
                Panel(
                    title="Acknowledgement behind playback",
                    description="How far acknowledged positions are behind what was played.",
                    unit="s",
                    queries=quantiles(d.ACK_LAG),
                ),
            ),
        ),
    ),
)
