"""The list of metrics keeps its own rules, and covers what the code can say."""

import ast
import re
from pathlib import Path

import pytest

from serve_app.metrics.definitions import METRICS, OVERLAPPED, RESPONSES, SESSIONS_ENDED
from serve_app.metrics.metric import OTHER, Kind, Metric, Owner, counter
from session.answering import COMPLETED, CUT

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_definition_keeps_the_rules(metric: Metric) -> None:
    assert re.fullmatch(r"duplex(_[a-z0-9]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help.endswith(".")
    assert metric.help.isascii(), "Ray takes no other text"
    assert len(set(metric.label_sets)) == len(metric.label_sets) > 0
    for values in metric.label_sets:
        assert len(values) == len(metric.labels)
        for value, allowed in zip(values, metric.labels.values(), strict=True):
            assert value in allowed
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    # Prometheus gives `le` to buckets, Ray these to every series.
    assert not metric.labels.keys() & {"le", "Component", "NodeAddress", "WorkerId", "job"}
    if metric.has_stage:
        assert metric.labels["stage"] == ("stage0", "stage1")
        assert metric.owner in (Owner.GATEWAY, Owner.ENGINES)


def test_names_are_unique_even_with_the_suffixes_of_histograms() -> None:
    names = []
    for metric in METRICS:
        suffixes = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
        names += [metric.name + suffix for suffix in suffixes]
    assert len(names) == len(set(names))


def test_a_value_that_is_not_known_counts_as_other() -> None:
    assert RESPONSES.known(("completed", "stop")) == ("completed", "stop")
    assert RESPONSES.known(("cancelled", "the client's own words")) == ("cancelled", OTHER)
    assert SESSIONS_ENDED.known(("made up",)) == (OTHER,)
    with pytest.raises(ValueError, match="no labels"):
        counter(Owner.GATEWAY, "duplex_x_total", "x.", labels={"a": ("b",)}).known(("c",))


def _literals(function: str, *places: int) -> set[tuple[str, ...]]:
    """Return the literal arguments at `places` of every call of `function` in the kernel."""
    found = set()
    for path in sorted((ROOT / "session").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == function and len(node.args) > max(places):
                given = [node.args[place] for place in places]
                values = [arg.value for arg in given if isinstance(arg, ast.Constant)]
                if len(values) == len(places):
                    found.add(tuple(str(value) for value in values))
    return found


def test_every_reason_that_the_kernel_writes_has_a_series() -> None:
    ends = _literals("end_answer", 1, 2)
    ends |= {("cancelled", reason) for (reason,) in _literals("interrupt", 1)}
    ends |= {("failed", reason) for (reason,) in _literals("fail_answer", 2)}
    ends |= {COMPLETED, CUT}
    assert len(ends) >= 9
    assert ends <= set(RESPONSES.label_sets)
    closes = _literals("close", 1) | _literals("_expiry", 0)
    assert len(closes) >= 5
    assert closes <= set(SESSIONS_ENDED.label_sets)


def test_every_ruling_on_overlap_has_a_series() -> None:
    source = (ROOT / "session/overlap.py").read_text()
    ruled = set(re.findall(r'OverlapRuling\(OverlapAction\.(\w+), "(\w+)"', source))
    assert len(ruled) >= 12
    ruled.remove(("LISTEN", "auto_response_continuous"))  # never told: it rules about silence
    assert {(action.lower(), reason) for action, reason in ruled} <= set(OVERLAPPED.label_sets)
    clients = {(action, "client_overlap_action") for action in ("barge_in", "listen", "drop")}
    assert clients <= set(OVERLAPPED.label_sets)
