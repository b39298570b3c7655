"""Judges manifests by the real schemas of custom resources, as an API server that is strict does.

Rule 1: a field that the schema does not know is a fault, wherever the schema does not keep such
        fields on purpose. So is a second entry with the same key in a list that is a map.
Rule 2: defaults are filled in first, because the rules in CEL see them.
Rule 3: each rule in CEL that a manifest reaches has a reading in Python (kube_rules.py); one that
        has none, or whose text has changed, is a fault.
"""

import copy
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.support.kube_rules import rule_faults

VARIABLE: Final = "KUBE_CRDS"
"""Names the folder with the CustomResourceDefinitions."""

METADATA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
        "namespace": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
"""What a schema of a custom resource leaves open and the API server knows by itself."""


def crd_folder() -> Path:
    """Return the folder with the schemas; leave the test out, loudly, where none is named."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"LEFT OUT: no schemas of custom resources; {VARIABLE} names their folder")
    return Path(named)


class CustomResources:
    """The schemas of one folder."""

    def __init__(self, folder: Path) -> None:
        self._schemas: dict[tuple[str, str], dict[str, Any]] = {}
        for file in sorted(folder.glob("*.yaml")):
            # Not the pure Python loader: one of these files is a megabyte.
            definition = yaml.load(file.read_text(), yaml.CSafeLoader)["spec"]
            for version in definition["versions"]:
                kind = f"{definition['group']}/{version['name']}", definition["names"]["kind"]
                self._schemas[kind] = version["schema"]["openAPIV3Schema"]
        self._validators = {
            kind: Draft7Validator(_strict(schema)) for kind, schema in self._schemas.items()
        }

    def know(self, manifest: dict[str, Any]) -> bool:
        """Whether the manifest is of one of these kinds."""
        return _kind(manifest) in self._schemas

    def faults(self, manifest: dict[str, Any]) -> list[str]:
        """Return everything that an API server would refuse, each with the path of its field."""
        schema = self._schemas[_kind(manifest)]
        found = [
            f"{'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"
            for error in self._validators[_kind(manifest)].iter_errors(manifest)
        ]
        whole = with_defaults(schema, manifest)
        found += doubled(schema, whole)
        # A rule can only read what has the right shape.
        return found or rule_faults(schema, whole)


def _kind(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["apiVersion"], manifest["kind"]


@cache
def custom_resources(folder: Path) -> CustomResources:
    """Return the schemas of a folder, read once."""
    return CustomResources(folder)


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a structural schema as a JSON schema that refuses unknown fields."""
    whole = _closed(schema)
    whole["properties"]["metadata"] = METADATA
    whole["required"] = sorted({*whole.get("required", ()), "apiVersion", "kind", "metadata"})
    return whole


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    closed = {name: value for name, value in schema.items() if name != "default"}
    if schema.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
        closed["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable") and "type" in closed:
        closed["type"] = [closed["type"], "null"]
    if "properties" in schema:
        closed["properties"] = {n: _closed(part) for n, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = _closed(schema["additionalProperties"])
    if isinstance(schema.get("items"), dict):
        closed["items"] = _closed(schema["items"])
    return closed


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """Return the value as the API server keeps it: with the schema's defaults."""
    match value:
        case dict():
            parts = schema.get("properties", {})
            filled = {n: copy.deepcopy(p["default"]) for n, p in parts.items() if "default" in p}
            filled |= value
            rest = schema.get("additionalProperties")
            of_rest = rest if isinstance(rest, dict) else {}
            return {n: with_defaults(parts.get(n, of_rest), v) for n, v in filled.items()}
        case list():
            return [with_defaults(schema.get("items", {}), item) for item in value]
        case _:
            return value


def doubled(schema: dict[str, Any], value: Any, at: str = "") -> Iterator[str]:
    """Yield entries of a list that have the key of another one, where the key must be theirs."""
    match value:
        case dict():
            for name, part in value.items():
                inner = schema.get("properties", {}).get(name)
                if isinstance(inner, dict):
                    yield from doubled(inner, part, f"{at}.{name}".lstrip("."))
        case list():
            if schema.get("x-kubernetes-list-type") == "map":
                keys = [
                    tuple(e.get(k) for k in schema["x-kubernetes-list-map-keys"]) for e in value
                ]
                yield from (
                    f"{at}: {k} twice" for k in sorted(set(keys), key=str) if keys.count(k) > 1
                )
            for index, item in enumerate(value):
                yield from doubled(schema.get("items", {}), item, f"{at}.{index}")
        case _:
            pass
