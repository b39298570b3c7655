"""The dashboard for operators: eight rows, from who gets in to what it costs."""

from typing import Final

from serve_app.metrics import definitions as d
from tools.dashboards import panels, ratios, targets
from tools.dashboards.board import Board, Note, Panel, Query, Row
from tools.dashboards.curves import growth, level, slow_end
from tools.dashboards.promql import WINDOW, rate, series, value

PER_STAGE: Final = "{{stage}}"

ADMISSION: Final = Row(
    "Admission",
    (
        panels.SESSIONS,
        Panel(
            title="Free slots",
            description="Share of each stage's slots that is free. At zero new sessions are "
            "refused.",
            unit="percentunit",
            queries=(Query(ratios.free_slots(), PER_STAGE),),
            bad=targets.FREE_SLOTS,
            bad_below=True,
        ),
        Panel(
            title="Sessions begun and refused",
            description="Sessions that asked for their stages, and those that got none, by why.",
            unit="ops",
            queries=(
                Query(rate(series(d.SESSIONS_BEGUN)), "begun"),
                Query(rate(series(d.SESSIONS_REFUSED), ("reason",)), "refused: {{reason}}"),
            ),
        ),
        panels.SESSIONS_ENDED,
    ),
    width=6,
)
UNIT_LOOP: Final = Row(
    "Unit loop",
    (
        Panel(
            title="Unit time, p95",
            description="Time of a unit at each stage as the gateway sees it. At Stage1 to the "
            "first chunk of speech.",
            unit="s",
            queries=slow_end(d.UNIT_SECONDS, "stage", where={"part": "total"}),
        ),
        Panel(
            title="Deadline misses",
            description="Share of units that took longer than they last.",
            unit="percentunit",
            queries=(Query(ratios.deadline_misses(WINDOW).ratio, PER_STAGE),),
            bad=targets.DEADLINE_MISSES,
        ),
        panels.UNIT_LAG,
        Panel(
            title="Gateway's own share, p95",
            description="Time in the gateway itself, and how late its event loop is.",
            unit="s",
            queries=slow_end(d.GATEWAY_SECONDS, "part"),
            bad=targets.LOOP_DELAY_P99_S,
        ),
    ),
    width=6,
)
DECISIONS: Final = Row(
    "Listening and speaking",
    (
        Panel(
            title="Decisions",
            description="Units by what the model decided. `stale`: an interruption came first.",
            unit="ops",
            queries=growth(d.UNITS, "outcome"),
            stacked=True,
        ),
        panels.ANSWERS,
        panels.BARGE_IN_STOP,
        Panel(
            title="Overlaps",
            description="Rulings on sound that came during an answer. `short_ack` and "
            "`silence_or_noise` did not mean to interrupt.",
            unit="ops",
            queries=growth(d.OVERLAPPED, "action", "reason"),
        ),
    ),
    width=6,
)
AUDIO_OUT: Final = Row(
    "Audio out",
    (
        panels.FIRST_AUDIO,
        panels.SPEECH_FACTOR,
        Panel(
            title="Answers with a gap",
            description="Share of spoken answers for which a client that plays at once had to "
            "wait.",
            unit="percentunit",
            queries=(Query(ratios.underruns(WINDOW).ratio, "underrun"),),
            bad=targets.UNDERRUNS,
        ),
        Panel(
            title="Time in gaps",
            description="How long such clients waited within answers, a second.",
            unit="s",
            queries=growth(d.UNDERRUN),
        ),
        panels.ACK_LAG,
        Panel(
            title="Output that waits",
            description="Output that clients have not read yet. Serve's own proxy takes it at "
            "once, whether they read or not.",
            unit="bytes",
            queries=level(d.BUFFERED),
        ),
    ),
)
SOCKETS: Final = Row(
    "Sockets",
    (
        Panel(
            title="Open and opened",
            description="WebSockets that are open, and those opened a second. Draining is 1 while "
            "no new session is taken.",
            unit="short",
            queries=(
                Query(value(series(d.OPEN_SOCKETS)), "open"),
                Query(value(series(d.DRAINING)), "draining"),
                Query(rate(series(d.SOCKETS_OPENED), ("dialect",)), "opened: {{dialect}}"),
            ),
        ),
        Panel(
            title="Closed",
            description="WebSockets closed, by who closed them and the code. 1006 from the client "
            "is a connection that broke; Serve's own proxy says 1005 of it.",
            unit="ops",
            queries=growth(d.SOCKETS_CLOSED, "by", "code"),
        ),
        Panel(
            title="Resumed and not",
            description="Attempts to go on with a session over another socket, by result, and "
            "sessions that lost their socket. `unsupported`: that wire can not.",
            unit="ops",
            queries=(
                Query(rate(series(d.RESUMES), ("result",)), "{{result}}"),
                Query(rate(series(d.DETACHED), ("reason",)), "detached: {{reason}}"),
                Query(rate(series(d.TAKEOVERS)), "takeovers"),
            ),
        ),
        Panel(
            title="Bad clients",
            description="Clients that did not read, and those that sent on although refused. "
            "Serve's own proxy takes all that it is sent, so behind it nobody is slow to read.",
            unit="ops",
            queries=(
                Query(rate(series(d.SLOW_READERS)), "slow readers"),
                Query(rate(series(d.FLOODS)), "floods"),
            ),
        ),
        Panel(
            title="Turned away at the door",
            description="Requests refused before anything was opened: 401 no key, 403 a page of "
            "another origin, 429 too many, 503 not ready. Key file: one that could not be read, or "
            "has a wrong line.",
            unit="ops",
            queries=(
                *growth(d.DOOR_REFUSALS, "of", "status"),
                Query(rate(series(d.KEY_FILE_FAULTS), ("fault",)), "key file: {{fault}}"),
            ),
        ),
        Panel(
            title="Errors sent",
            description="`error` events that clients were sent, by class (docs/errors.md).",
            unit="ops",
            queries=growth(d.ERRORS_SENT, "type", "error"),
        ),
    ),
)
ENGINES: Final = Row(
    "Engines",
    (
        Panel(
            title="Engines that are ready",
            description="Warm engines of each stage. Below 1 nothing works.",
            unit="short",
            queries=level(d.ENGINE_UP, "stage"),
            bad=1,
            bad_below=True,
        ),
        Panel(
            title="Memory used",
            description="Share of each engine's positions that open sessions hold. No curve "
            "where the model has no such memory.",
            unit="percentunit",
            queries=(Query(ratios.kv_used(), PER_STAGE),),
            bad=targets.KV_USED,
        ),
        Panel(
            title="Newest start",
            description="Since when the newest engine of each stage is ready, and the gateway is "
            "up. A step is a restart, or another replica.",
            unit="dateTimeAsIso",
            queries=(
                *(
                    Query(f"{query.expr} * 1000", query.legend)
                    for query in level(d.ENGINE_STARTED, "stage")
                ),
                Query(f"{value(series(d.GATEWAY_STARTED))} * 1000", "gateway"),
            ),
        ),
        Panel(
            title="Leases",
            description="Leases that ended, by why, and those refused. `given_back` and `expired` "
            "are gateways that died or hung.",
            unit="ops",
            queries=(
                Query(rate(series(d.LEASES_ENDED), ("stage", "reason")), "{{stage}} {{reason}}"),
                Query(rate(series(d.LEASES_REFUSED), ("stage",)), "{{stage}} refused"),
            ),
        ),
    ),
    width=6,
)
FAIRNESS: Final = Row(
    "Fairness",
    (
        panels.SLOWEST,
        Panel(
            title="Jain's index",
            description="1 when all sessions wait alike, 1/n when one of n does all the waiting.",
            unit="short",
            queries=level(d.JAIN),
            bad=targets.JAIN,
            bad_below=True,
        ),
    ),
    width=12,
)
COST: Final = Row(
    "Cost",
    (
        Panel(
            title="Session-seconds a second",
            description="Time that sessions hold their stages: what a GPU's price is shared by.",
            unit="short",
            queries=growth(d.SESSION_SECONDS),
        ),
        panels.SOUND,
        Panel(
            title="Spans dropped",
            description="Parts of traces that were lost: the endpoint for traces is down, slow, or "
            "refuses them. Conversations do not suffer. At zero where nothing is traced.",
            unit="ops",
            queries=growth(d.SPANS_DROPPED, "reason"),
        ),
        Note(
            title="What is not here",
            description="What operators may look for and these metrics have not.",
            text="The service does not count GPU-seconds, a GPU's load, or round trips of pings. "
            "The first two are the node's: DCGM's exporter has them. Cost of an hour of "
            "conversation = price of the GPUs an hour, divided by session-seconds a second.",
        ),
    ),
)
OVERVIEW: Final = Board(
    uid="duplex-overview",
    title="Duplex: overview",
    description="The whole service. Lines are where it breaks its promise or an alert looks.",
    rows=(ADMISSION, UNIT_LOOP, DECISIONS, AUDIO_OUT, SOCKETS, ENGINES, FAIRNESS, COST),
)
