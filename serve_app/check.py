"""Checks a deploy file before anything starts: `python -m serve_app.check FILE`.

Prints one line for each fault, `FILE: field.path: message`, and exits with 2; with 0 and one line
when there is none. Serve itself retries a wrong file and then stays up without an application.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError
from ray.serve.schema import (
    DeploymentSchema,
    HTTPOptionsSchema,
    ServeApplicationSchema,
    ServeDeploySchema,
)

from serve_app.access.exposure import is_loopback
from serve_app.access.key_file import KeyFileError
from serve_app.access.key_ring import KeyRing
from serve_app.check_scaling import scaling_faults, target_faults
from serve_app.settings import (
    API_KEYS_VARIABLE,
    AppArgs,
    Fault,
    SettingsError,
    faults_of,
    keys_in,
    read_args,
    select_model,
)
from serve_app.tracing.settings import ENDPOINT_VARIABLES, endpoint_fault, endpoint_in

IMPORT_PATH: Final = "serve_app.app:build_app"
DEPLOYMENTS: Final = ("Gateway", "Stage0", "Stage1")
EXIT_FAULTY: Final = 2


def check_text(text: str, environ: Mapping[str, str]) -> list[Fault]:
    """Return everything that is wrong in the text of a deploy file."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [Fault("yaml", " ".join(str(error).split()))]
    if not isinstance(tree, dict):
        return [Fault("yaml", "must be a mapping with `applications` in it")]
    faults = list(_unknown_fields(tree))
    try:
        schema = ServeDeploySchema.model_validate(tree)
    except ValidationError as error:
        return faults + faults_of(error)
    faults += _check_http(schema)
    ours = [
        (f"applications.{index}", app)
        for index, app in enumerate(schema.applications)
        if app.import_path == IMPORT_PATH
    ]
    if not ours:
        faults.append(Fault("applications", f"none has import_path {IMPORT_PATH}"))
    for path, app in ours:
        faults += _check_app(path, app, schema, environ)
    return faults


def _unknown_fields(tree: Mapping[str, Any]) -> Iterator[Fault]:
    """Find misspelt fields, which Serve would pass over in silence."""
    yield from _unknown_in(ServeDeploySchema, tree, "")
    yield from _unknown_in(HTTPOptionsSchema, tree.get("http_options"), "http_options.")
    for index, app in enumerate(_items(tree.get("applications"))):
        path = f"applications.{index}."
        yield from _unknown_in(ServeApplicationSchema, app, path)
        for number, deployment in enumerate(_items(_get(app, "deployments"))):
            at = f"{path}deployments.{number}."
            yield from _unknown_in(DeploymentSchema, deployment, at)


def _unknown_in(schema: type[BaseModel], tree: Any, path: str) -> Iterator[Fault]:
    if isinstance(tree, dict):
        for name in tree:
            if name not in schema.model_fields:
                yield Fault(f"{path}{name}", "is not a known field")


def _items(tree: Any) -> list[Any]:
    return tree if isinstance(tree, list) else []


def _get(tree: Any, name: str) -> Any:
    return tree.get(name) if isinstance(tree, dict) else None


def _check_http(schema: ServeDeploySchema) -> Iterator[Fault]:
    if not 0 < schema.http_options.port < 65536:
        yield Fault("http_options.port", "must be a port number, from 1 to 65535")
    if schema.http_options.request_timeout_s is not None:
        yield Fault(
            "http_options.request_timeout_s",
            "must not be set: Serve would cut every conversation after that time",
        )


def _check_app(
    path: str, app: ServeApplicationSchema, schema: ServeDeploySchema, environ: Mapping[str, str]
) -> Iterator[Fault]:
    for index, deployment in enumerate(app.deployments):
        if deployment.name not in DEPLOYMENTS:
            known = ", ".join(DEPLOYMENTS)
            yield Fault(f"{path}.deployments.{index}.name", f"must be one of: {known}")
        yield from scaling_faults(f"{path}.deployments.{index}", deployment)
    environ = {**environ, **app.runtime_env.get("env_vars", {})}
    try:
        args = read_args(app.args)
        select_model(args, environ)
    except SettingsError as error:
        yield from (Fault(f"{path}.args.{at}", message) for at, message in error.faults)
        return
    most = args.session_limits().max_sessions
    for index, deployment in enumerate(app.deployments):
        yield from target_faults(f"{path}.deployments.{index}", deployment, most)
    yield from _check_exposure(f"{path}.args", args, schema, environ)
    if args.tracing.endpoint is None:
        yield from _check_traces(environ)


def _check_traces(environ: Mapping[str, str]) -> Iterator[Fault]:
    """Refuse an address in the environment that no span would ever reach."""
    endpoint = endpoint_in(environ)
    fault = None if endpoint is None else endpoint_fault(endpoint)
    if fault is not None:
        yield Fault(" or ".join(ENDPOINT_VARIABLES), fault)


def _check_exposure(
    path: str, args: AppArgs, schema: ServeDeploySchema, environ: Mapping[str, str]
) -> Iterator[Fault]:
    """Refuse a service that others can reach and nobody needs a key for."""
    files = {"api_keys_file": args.auth.api_keys_file, "admin_keys_file": args.auth.admin_keys_file}
    wrong = {
        name: said
        for name, file in files.items()
        if file is not None and (said := _wrong_with(file))
    }
    yield from (Fault(f"{path}.auth.{name}", said) for name, said in wrong.items())
    host = schema.http_options.host
    has_file = args.auth.api_keys_file is not None and "api_keys_file" not in wrong
    if has_file or keys_in(environ) or is_loopback(host):
        return
    is_set = "host" in schema.http_options.model_fields_set
    where = f"{host} can be reached" if is_set else "is missing, and Serve then can be reached"
    yield Fault(
        "http_options.host",
        f"{where} from other machines: set 127.0.0.1, or give API keys "
        f"(auth.api_keys_file or {API_KEYS_VARIABLE})",
    )


def _wrong_with(file: Path) -> str | None:
    """Say what is wrong with a file of keys.

    One that is not there may still come, such as a secret mounted where the service runs.
    """
    try:
        is_right = not file.exists() or not KeyRing(file=file).is_empty
    except KeyFileError as error:
        return str(error)
    return None if is_right else f"{file} has no key in it, or can not be read"


def main(arguments: list[str]) -> int:
    """Check the one file that is named, and say what is wrong with it."""
    if len(arguments) != 1:
        print("usage: python -m serve_app.check FILE", file=sys.stderr)
        return EXIT_FAULTY
    file = Path(arguments[0])
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"{file}: can not be read: {error}")
        return EXIT_FAULTY
    faults = check_text(text, os.environ)
    for fault in faults:
        print(f"{file}: {fault}")
    if faults:
        return EXIT_FAULTY
    print(f"{file}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
