"""The duplex wire under its newer names: the same events, and nothing under an older name."""

import json

from session.item_events import (
    ItemAdded,
)
from session.realtime.dialects.duplex_ga import GA_NAMES, LEFT_OUT, DuplexGaProjector
from tests.fakes.ids import SeqIds
from tests.realtime.samples import (
    DELTA,
    FINISHED,
    LAST_DELTA,
    STARTED,
    USER_SPEECH,
    as_is,
    facts,
    project,
)

TALK = (ItemAdded(USER_SPEECH, None), STARTED, DELTA, LAST_DELTA, FINISHED)


def test_only_names_differ() -> None:
    newer = DuplexGaProjector(facts=facts(), encode=as_is)
    ids = SeqIds()
    sent = [event for each in TALK for event in newer.project(each)]
    assert all(event.is_journaled for event in sent)
    shown = [json.loads(event.to_text(ids.new("event"), 7)) for event in sent]
    expected = [event for event in project(*TALK) if event["type"] not in LEFT_OUT]
    assert [event["type"] for event in shown] == [
        GA_NAMES.get(event["type"], event["type"]) for event in expected
    ]
    stamps = {"type", "event_id", "server_event_seq"}
    assert [{k: v for k, v in event.items() if k not in stamps} for event in shown] == [
        {k: v for k, v in event.items() if k not in stamps} for event in expected
    ]
    assert {event["server_event_seq"] for event in shown} == {7}
