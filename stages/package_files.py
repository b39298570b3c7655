"""Finds model files inside installed packages without importing those packages.

Importing could cost far more than a path: some of them import whole frameworks on sight.
"""

import importlib.util
from pathlib import Path


def package_file(package: str, relative: str, *, distribution: str) -> Path:
    """Return the path of `relative` inside the installed `package`.

    `distribution` is what the user installs to get it. Raises FileNotFoundError that says so.
    """
    spec = importlib.util.find_spec(package)
    roots = (spec.submodule_search_locations or ()) if spec is not None else ()
    for root in roots:
        path = Path(root) / relative
        if path.exists():
            return path
    raise FileNotFoundError(
        f"{relative} of Python package {package!r} is missing; install {distribution}"
    )
