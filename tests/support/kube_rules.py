"""The rules in CEL of the custom resources that k8s/ uses, read by hand into Python.

A reading names the rule by its message and by a digest of its text, so that a rule that changes is
read anew. Rules about a change of an object (`oldSelf`) do not apply to a new one.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

VALID_PATH: Final = re.compile(r"(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})+")
PLAIN_PATHS: Final = ("Exact", "PathPrefix")
SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True, slots=True)
class Reading:
    """What a rule says, in Python."""

    digest: str
    holds: Callable[[Any], bool]


def digest(rule: str) -> str:
    """Return what stands for a rule's text."""
    return hashlib.sha256(rule.encode()).hexdigest()[:8]


def duration_s(text: str) -> float:
    """Return the length of a duration in Kubernetes' notation, in seconds."""
    parts = re.findall(r"(\d+)(ms|h|m|s)", text)
    return sum(int(count) * SECONDS[unit] for count, unit in parts)


def rule_faults(schema: dict[str, Any], value: Any, at: str = "") -> list[str]:
    """Return the rules that a value breaks, and those that nobody has read."""
    return list(_faults(schema, value, at))


def _faults(schema: dict[str, Any], value: Any, at: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" not in rule["rule"]:
            yield from _broken(rule, value, at)
    match value:
        case dict():
            rest = schema.get("additionalProperties")
            for name, part in value.items():
                inner = schema.get("properties", {}).get(name, rest)
                if isinstance(inner, dict):
                    yield from _faults(inner, part, f"{at}.{name}".lstrip("."))
        case list():
            for index, item in enumerate(value):
                yield from _faults(schema.get("items", {}), item, f"{at}.{index}")
        case _:
            pass


def _broken(rule: dict[str, str], value: Any, at: str) -> Iterator[str]:
    reading = READINGS.get(rule["message"])
    if reading is None or reading.digest != digest(rule["rule"]):
        yield f"{at}: nobody has read the rule {digest(rule['rule'])}: {rule['message']}"
    elif not reading.holds(value):
        yield f"{at}: {rule['message']}"


def operator_faults(service: dict[str, Any]) -> Iterator[str]:
    """Yield what KubeRay itself refuses in a RayService although the schema lets it through."""
    strategy = service["spec"].get("upgradeStrategy", {})
    kind = strategy.get("type")
    if kind not in (None, "NewCluster", "NewClusterWithIncrementalUpgrade", "None"):
        yield f"spec.upgradeStrategy.type: {kind} is none of KubeRay's"
    options = strategy.get("clusterUpgradeOptions")
    if (options is not None) != (kind == "NewClusterWithIncrementalUpgrade"):
        yield "spec.upgradeStrategy.clusterUpgradeOptions: belongs to the incremental upgrade alone"
    elif options is not None and options["stepSizePercent"] > options.get("maxSurgePercent", 100):
        yield "spec.upgradeStrategy.clusterUpgradeOptions: a step is larger than the surge"
    cluster = service["spec"]["rayClusterConfig"]
    for index, group in enumerate(cluster.get("workerGroupSpecs", [])):
        if group["minReplicas"] > group["maxReplicas"]:
            yield f"spec.rayClusterConfig.workerGroupSpecs.{index}: minReplicas above maxReplicas"
    if "autoscalerOptions" in cluster and not cluster.get("enableInTreeAutoscaling"):
        yield "spec.rayClusterConfig.autoscalerOptions: enableInTreeAutoscaling is not on"


# --- readings: Gateway -------------------------------------------------------------------------


def _no_tls_on_plain(listeners: Any) -> bool:
    return all("tls" not in one for one in listeners if one["protocol"] in ("HTTP", "TCP", "UDP"))


def _https_terminates(listeners: Any) -> bool:
    of_https = [one["tls"] for one in listeners if one["protocol"] == "HTTPS" and "tls" in one]
    return all(tls.get("mode", "") in ("", "Terminate") for tls in of_https)


def _tls_has_a_mode(listeners: Any) -> bool:
    return all(one.get("tls", {}).get("mode") for one in listeners if one["protocol"] == "TLS")


def _no_host_name_below_http(listeners: Any) -> bool:
    return all(not one.get("hostname") for one in listeners if one["protocol"] in ("TCP", "UDP"))


def _names_differ(listeners: Any) -> bool:
    return _all_differ([one["name"] for one in listeners])


def _places_differ(listeners: Any) -> bool:
    return _all_differ([(one["port"], one["protocol"], one.get("hostname")) for one in listeners])


def _has_certificate(tls: Any) -> bool:
    return tls["mode"] != "Terminate" or bool(tls.get("certificateRefs") or tls.get("options"))


def _all_differ(values: list[Any]) -> bool:
    return len(set(values)) == len(values)


# --- readings: HTTPRoute -----------------------------------------------------------------------


def _parent(ref: Any) -> tuple[Any, ...]:
    return ref["group"], ref["kind"], ref["name"], ref.get("namespace") or ""


def _all_or_none_has_a_section(parents: Any) -> bool:
    sections = {(_parent(one), bool(one.get("sectionName"))) for one in parents}
    return _all_differ([parent for parent, _ in sections])


def _sections_differ(parents: Any) -> bool:
    return _all_differ([(*_parent(one), one.get("sectionName") or "") for one in parents])


def _few_matches(rules: Any) -> bool:
    return sum(len(rule["matches"]) for rule in rules[:16]) <= 128


def _redirects_have_no_backend(rule: Any) -> bool:
    return not rule.get("backendRefs") or not any(
        "requestRedirect" in one for one in rule.get("filters", [])
    )


def _replaces_prefix(filters: Any, kind: str) -> bool:
    """Whether exactly one filter of the kind replaces the prefix of a path."""
    found = [
        one
        for one in filters
        if one.get(kind, {}).get("path", {}).get("type") == "ReplacePrefixMatch"
        and "replacePrefixMatch" in one[kind]["path"]
    ]
    return len(found) == 1


def _has_one_prefix(rule: Any) -> bool:
    matches = rule["matches"]
    return len(matches) == 1 and matches[0].get("path", {}).get("type") == "PathPrefix"


def _prefix_for(kind: str) -> Callable[[Any], bool]:
    return lambda rule: not _replaces_prefix(rule.get("filters", []), kind) or _has_one_prefix(rule)


def _prefix_for_backends(kind: str) -> Callable[[Any], bool]:
    def holds(rule: Any) -> bool:
        refs = rule.get("backendRefs", [])
        found = [ref for ref in refs if _replaces_prefix(ref.get("filters", []), kind)]
        return len(found) != 1 or _has_one_prefix(rule)

    return holds


def _service_has_a_port(ref: Any) -> bool:
    return not (ref["group"] == "" and ref["kind"] == "Service") or "port" in ref


def _of_plain(holds: Callable[[str], bool]) -> Callable[[Any], bool]:
    return lambda path: path["type"] not in PLAIN_PATHS or holds(path["value"])


def _lacks(part: str) -> Callable[[Any], bool]:
    return _of_plain(lambda value: part not in value)


def _backend_is_not_slower(timeouts: Any) -> bool:
    if "request" not in timeouts or "backendRequest" not in timeouts:
        return True
    request_s = duration_s(timeouts["request"])
    return request_s == 0 or duration_s(timeouts["backendRequest"]) <= request_s


ONE_PREFIX: Final = "filter with path.replacePrefixMatch, exactly one PathPrefix match must be"
OF_PLAIN: Final = "when type one of ['Exact', 'PathPrefix']"
SAME_PARENT: Final = "when parentRefs includes 2 or more references to the same parent"

READINGS: Final = {
    "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']": Reading(
        "78a77239", _no_tls_on_plain
    ),
    "tls mode must be Terminate for protocol HTTPS": Reading("aec2bd59", _https_terminates),
    "tls mode must be set for protocol TLS": Reading("79a48446", _tls_has_a_mode),
    "hostname must not be specified for protocols ['TCP', 'UDP']": Reading(
        "08d23c40", _no_host_name_below_http
    ),
    "Listener name must be unique within the Gateway": Reading("b3c66e24", _names_differ),
    "Combination of port, protocol and hostname must be unique for each listener": Reading(
        "d31959b5", _places_differ
    ),
    "certificateRefs or options must be specified when mode is Terminate": Reading(
        "f161b726", _has_certificate
    ),
    f"sectionName must be specified {SAME_PARENT}": Reading("c931cd54", _all_or_none_has_a_section),
    f"sectionName must be unique {SAME_PARENT}": Reading("e906342c", _sections_differ),
    "While 16 rules and 64 matches per rule are allowed, the total number of matches across all "
    "rules in a route must be less than 128": Reading("dfef9215", _few_matches),
    "RequestRedirect filter must not be used together with backendRefs": Reading(
        "80d5779a", _redirects_have_no_backend
    ),
    f"When using RequestRedirect {ONE_PREFIX} specified": Reading(
        "14c17d52", _prefix_for("requestRedirect")
    ),
    f"When using URLRewrite {ONE_PREFIX} specified": Reading("0fa5a331", _prefix_for("urlRewrite")),
    f"Within backendRefs, when using RequestRedirect {ONE_PREFIX} specified": Reading(
        "06e14dab", _prefix_for_backends("requestRedirect")
    ),
    f"Within backendRefs, When using URLRewrite {ONE_PREFIX} specified": Reading(
        "bf9fd433", _prefix_for_backends("urlRewrite")
    ),
    "Must have port for Service reference": Reading("089ed26a", _service_has_a_port),
    f"value must be an absolute path and start with '/' {OF_PLAIN}": Reading(
        "d1b1dcc5", _of_plain(lambda value: value.startswith("/"))
    ),
    f"must not contain '//' {OF_PLAIN}": Reading("2a730cba", _lacks("//")),
    f"must not contain '/./' {OF_PLAIN}": Reading("8c3f86ff", _lacks("/./")),
    f"must not contain '/../' {OF_PLAIN}": Reading("ced0ffea", _lacks("/../")),
    f"must not contain '%2f' {OF_PLAIN}": Reading("16add9e2", _lacks("%2f")),
    f"must not contain '%2F' {OF_PLAIN}": Reading("5f510e91", _lacks("%2F")),
    f"must not contain '#' {OF_PLAIN}": Reading("20989435", _lacks("#")),
    f"must not end with '/..' {OF_PLAIN}": Reading(
        "0c441c9d", _of_plain(lambda value: not value.endswith("/.."))
    ),
    f"must not end with '/.' {OF_PLAIN}": Reading(
        "c36405e2", _of_plain(lambda value: not value.endswith("/."))
    ),
    "type must be one of ['Exact', 'PathPrefix', 'RegularExpression']": Reading(
        "1267f055", lambda path: path["type"] in (*PLAIN_PATHS, "RegularExpression")
    ),
    "must only contain valid characters (matching ^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|"
    "[%][0-9a-fA-F]{2})+$) for types ['Exact', 'PathPrefix']": Reading(
        "67736b8f", _of_plain(lambda value: VALID_PATH.fullmatch(value) is not None)
    ),
    "backendRequest timeout cannot be longer than request timeout": Reading(
        "3f02004f", _backend_is_not_slower
    ),
    "the managedBy field value must be either 'ray.io/kuberay-operator' or "
    "'kueue.x-k8s.io/multikueue'": Reading(
        "4cdc559e",
        lambda value: value in ("ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"),
    ),
}
"""A rule's reading by the rule's message."""
