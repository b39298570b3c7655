"""All files of k8s/ that are made from others, and those that are left of former ones."""

from pathlib import Path

from tools.k8s import monitoring, serve_config


def generated(root: Path) -> dict[str, str]:
    """Return the text of each generated file by its path."""
    return {**serve_config.patches(root), **monitoring.objects(root)}


def stale(root: Path) -> list[str]:
    """Return the files of the monitoring component that no source stands behind any more."""
    folder = root / monitoring.COMPONENT
    there = {str(path.relative_to(root)) for path in folder.iterdir()}
    kept = generated(root).keys() | {str(monitoring.COMPONENT / monitoring.WRITTEN_BY_HAND)}
    return sorted(there - kept)
