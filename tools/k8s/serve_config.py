"""Each overlay's deploy file, as the `serveConfigV2` of its RayService.

Rule 1: an overlay names a file of deploy/ and states only what differs (`serve_changes.yaml`), on
        top of what differs in every cluster (`k8s/base/serve_changes.yaml`).
Rule 2: mappings are merged, lists of named things are merged by name, anything else is replaced,
        and null removes a field.
Rule 3: a change that names what is not in the file, or removes what is not there, is an error.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

BASE_CHANGES: Final = Path("k8s/base/serve_changes.yaml")
OVERLAYS: Final = Path("k8s/overlays")
CHANGES: Final = "serve_changes.yaml"
PATCH: Final = "serve_config.yaml"

NOTICE: Final = "# Made by `make docs` from {source} and the serve_changes.yaml files.\n"
PATCH_HEAD: Final = """\
apiVersion: ray.io/v1
kind: RayService
metadata:
  name: duplex
spec:
  serveConfigV2: |
"""


class ChangeError(ValueError):
    """A change that does not fit the deploy file; the message has the path of the field."""


def patches(root: Path) -> dict[str, str]:
    """Return the patch of each overlay by its path."""
    common = _read(root / BASE_CHANGES)
    found = {}
    for overlay in sorted(path.parent for path in (root / OVERLAYS).glob(f"*/{CHANGES}")):
        own = _read(overlay / CHANGES)
        source = own["deploy_file"]
        tree = merged(merged(_read(root / source), common), own["changes"])
        found[str(overlay.relative_to(root) / PATCH)] = patch(tree, source)
    return found


def patch(tree: Mapping[str, Any], source: str) -> str:
    """Return a patch that gives the RayService this deploy file."""
    text = yaml.dump(tree, Dumper=_Plain, sort_keys=False, width=96)
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    return NOTICE.format(source=source) + PATCH_HEAD + indented


def merged(tree: Mapping[str, Any], changes: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Return the tree with the changes in it; raise ChangeError."""
    result = dict(tree)
    for name, change in changes.items():
        path = f"{at}{name}"
        match change:
            case None:
                if name not in result:
                    raise ChangeError(f"{path}: can not be removed, it is not in the deploy file")
                del result[name]
            case dict():
                result[name] = merged(result.get(name) or {}, change, f"{path}.")
            case list() if _are_named(change):
                result[name] = _merged_by_name(result.get(name, []), change, path)
            case _:
                result[name] = change
    return result


def _are_named(things: list[Any]) -> bool:
    return all(isinstance(thing, dict) and "name" in thing for thing in things)


def _merged_by_name(things: list[Any], changes: list[Any], at: str) -> list[Any]:
    by_name = {change["name"]: change for change in changes}
    unknown = by_name.keys() - {thing["name"] for thing in things}
    if unknown:
        raise ChangeError(
            f"{at}: the deploy file has none of the name {', '.join(sorted(unknown))}"
        )
    return [
        merged(thing, by_name[thing["name"]], f"{at}.{thing['name']}.")
        if thing["name"] in by_name
        else thing
        for thing in things
    ]


class _Plain(yaml.SafeDumper):
    """Writes a value that occurs twice twice, not as a reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _read(file: Path) -> dict[str, Any]:
    tree: dict[str, Any] = yaml.safe_load(file.read_text())
    return tree
