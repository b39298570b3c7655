"""Panels that more than one dashboard shows. What stands once stands in its dashboard."""

from typing import Final

from serve_app.metrics import definitions as d
from tools.dashboards import targets
from tools.dashboards.board import Panel
from tools.dashboards.curves import growth, level, quantiles, slow_end

SESSIONS: Final = Panel(
    title="Sessions",
    description="Sessions by where they are. Detached ones wait for their client.",
    unit="short",
    queries=level(d.OPEN_SESSIONS, "state"),
    stacked=True,
)
SESSIONS_ENDED: Final = Panel(
    title="Sessions ended",
    description="Sessions that are over, by why.",
    unit="ops",
    queries=growth(d.SESSIONS_ENDED, "reason"),
)
SOUND: Final = Panel(
    title="Sound in and out",
    description="Seconds of sound taken in and given out, a second. An unbroken stream has 1 in "
    "for each session.",
    unit="short",
    queries=growth(d.AUDIO_SECONDS, "direction"),
)
DECISIONS: Final = Panel(
    title="Decisions",
    description="Units by what the model decided, and what it was fed. `stale`: an interruption "
    "came first.",
    unit="ops",
    queries=growth(d.UNITS, "outcome", "fed"),
)
UNIT_GAP: Final = Panel(
    title="Time between units",
    description="In sessions whose model hears without pause: one unit's length when all is well.",
    unit="s",
    queries=quantiles(d.UNIT_GAP),
)
UNIT_LAG: Final = Panel(
    title="Lag behind the user",
    description="Sound that waits behind a unit, in sessions whose model hears without pause.",
    unit="s",
    queries=quantiles(d.UNIT_LAG),
    bad=targets.UNIT_LAG_P95_S,
)
SLOWEST: Final = Panel(
    title="Slowest session by the mean",
    description="Mean unit time of the slowest session by that of all, over a minute. Far above "
    "1: one session waits while others do not.",
    unit="short",
    queries=level(d.LAG_RATIO),
    bad=targets.LAG_RATIO,
)
ANSWERS: Final = Panel(
    title="Answers",
    description="Answers that have ended, by how and why.",
    unit="ops",
    queries=growth(d.RESPONSES, "status", "reason"),
)
BARGE_IN_STOP: Final = Panel(
    title="Barge-in to stop, p95",
    description="From the user's first sound, or the client's event, to the event that cancels "
    "the answer.",
    unit="s",
    queries=slow_end(d.BARGE_IN_STOP, "by"),
    bad=targets.BARGE_IN_STOP_P95_S,
)
FIRST_AUDIO: Final = Panel(
    title="Speech end to first sound",
    description="From the end of the user's speech, as the voice detection found it, to the first "
    f"sound of the answer. The promise: p50 within {targets.FIRST_AUDIO_P50_S:g} s, "
    f"p95 within {targets.FIRST_AUDIO_P95_S:g} s.",
    unit="s",
    queries=quantiles(d.FIRST_AUDIO, {"since": "speech_end"}),
    bad=targets.FIRST_AUDIO_P95_S,
)
SPEECH_FACTOR: Final = Panel(
    title="Speech, time taken by time it lasts",
    description="Of whole units of speech, as the gateway sees it. Above 1 playback runs dry.",
    unit="short",
    queries=quantiles(d.SPEECH_FACTOR),
    bad=targets.SPEECH_FACTOR,
)
ACK_LAG: Final = Panel(
    title="Acknowledgement behind playback",
    description="How far acknowledged positions are behind what a client that plays at once has "
    "played.",
    unit="s",
    queries=quantiles(d.ACK_LAG),
)
