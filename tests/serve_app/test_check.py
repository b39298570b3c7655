"""The check of a deploy file: what it finds, how it says so, and how it exits."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray import serve

from serve_app.access.exposure import is_loopback
from serve_app.access.key_file import KeyFileError
from serve_app.app import build_app
from serve_app.check import check_text, main

ROOT = Path(__file__).parents[2]


def deploy(
    args: dict[str, Any] | None = None, http: dict[str, Any] | None = None, **app: Any
) -> dict[str, Any]:
    return {
        "http_options": {"host": "127.0.0.1", "port": 8000} if http is None else http,
        "applications": [
            {
                "name": "duplex",
                "route_prefix": "/",
                "import_path": "serve_app.app:build_app",
                "args": {"model": "scripted", **(args or {})},
                **app,
            }
        ],
    }


def faults(tree: Any, **environ: str) -> list[str]:
    return [str(fault) for fault in check_text(yaml.safe_dump(tree), environ)]


def test_a_good_file_has_no_fault() -> None:
    assert faults(deploy()) == []


def test_a_gateway_need_not_say_that_there_is_one() -> None:
    assert faults(deploy(deployments=[{"name": "Gateway", "max_ongoing_requests": 100}])) == []


ARGS = "applications.0.args."


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (deploy({"limits": {"max_sesions": 2}}), f"{ARGS}limits.max_sesions: is not a known field"),
        (deploy({"model": "whisper"}), f"{ARGS}model: unknown model 'whisper'"),
        (deploy({"model_settings": {"tempo": 2}}), f"{ARGS}model_settings: tempo: Extra"),
        (deploy(deployments=[{"name": "Stage2"}]), "applications.0.deployments.0.name: must be on"),
        (
            deploy(deployments=[{"name": "Stage0", "num_replica": 2}]),
            "applications.0.deployments.0.num_replica: is not a known field",
        ),
        (
            deploy(deployments=[{"name": "Stage0", "autoscaling_config": {"min_replica": 2}}]),
            "applications.0.deployments.0.autoscaling_config.min_replica: is not a known field",
        ),
        (
            deploy(deployments=[{"name": "Stage0", "autoscaling_config": {"max_replicas": 0}}]),
            "applications.0.deployments.0.autoscaling_config.max_replicas: input should be",
        ),
        (
            deploy(deployments=[{"name": "Gateway", "autoscaling_config": {"max_replicas": 2}}]),
            "applications.0.deployments.0.autoscaling_config: must not be set",
        ),
        (
            deploy(
                {"limits": {"max_sessions": 8}},
                deployments=[
                    {"name": "Stage1", "autoscaling_config": {"target_ongoing_requests": 8}}
                ],
            ),
            "applications.0.deployments.0.autoscaling_config.target_ongoing_requests: must",
        ),
        (
            deploy({"tracing": {"endpoint": "collector:4317"}}),
            f"{ARGS}tracing.endpoint: value error, 'collector:4317' is no address for OTLP",
        ),
        (
            deploy({"tracing": {"endpoint": "http://user:pw@h:4318"}}),
            f"{ARGS}tracing.endpoint: value error, an address with a user or a password",
        ),
        (
            deploy({"tracing": {"sample_ratio": 2.0}}),
            f"{ARGS}tracing.sample_ratio: input should be less than or equal to 1",
        ),
        (
            deploy(runtime_env={"env_vars": {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}}),
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4317",
        ),
        (deploy(import_path="other.app:build"), "applications: none has import_path"),
        (deploy(name=""), "applications: value error, Application names must be nonempty"),
        (deploy(rout_prefix="/"), "applications.0.rout_prefix: is not a known field"),
        ({**deploy(), "http_optoins": {}}, "http_optoins: is not a known field"),
        (deploy(http={"host": "127.0.0.1", "prot": 1}), "http_options.prot: is not a known field"),
        (deploy(http={"host": "::1", "port": "x"}), "http_options.port: "),
        (deploy(http={"host": "::1", "port": 99999}), "http_options.port: must be a port number"),
        (
            deploy(deployments=[{"name": "Gateway", "num_replicas": 2}]),
            "applications.0.deployments.0.num_replicas: must be 1",
        ),
        (
            deploy(http={"host": "127.0.0.1", "request_timeout_s": 60}),
            "http_options.request_timeout_s: must not be set",
        ),
        ([1, 2], "yaml: must be a mapping"),
        ({"applications": "none"}, "applications: "),
    ],
)
def test_one_fault_is_one_line_with_its_path(tree: Any, said: str) -> None:
    [fault] = faults(tree)
    assert fault.startswith(said)


def test_text_that_is_not_yaml_is_said_to_be_that() -> None:
    [fault] = check_text("a: [1,\nb: 2", {})
    assert fault.path == "yaml"
    assert "line 2" in fault.message


def test_all_faults_are_found_in_one_go() -> None:
    tree = deploy({"modle": "x", "limits": {"max_sessions": 0}})
    assert len(faults({**tree, "extra": 1})) == 3


@pytest.mark.parametrize("http", [{"host": "0.0.0.0"}, {"host": "10.0.0.3"}, {}])
def test_a_service_that_others_can_reach_needs_keys(http: dict[str, Any], tmp_path: Path) -> None:
    [fault] = faults(deploy(http=http))
    assert fault.startswith("http_options.host: ")
    assert ("is missing" in fault) is (not http)
    assert faults(deploy(http=http), DUPLEX_API_KEYS="k1") == []
    assert faults(deploy(http=http), DUPLEX_API_KEYS=" , ") == [fault]
    keys = tmp_path / "keys"
    keys.write_text("k1\n")
    assert faults(deploy({"auth": {"api_keys_file": str(keys)}}, http)) == []
    env = {"env_vars": {"DUPLEX_API_KEYS": "k1"}}
    assert faults(deploy(http=http, runtime_env=env)) == []


def test_a_key_file_with_a_wrong_line_is_a_fault_that_shows_no_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("s3cret name=alice\ns4cret name=bob max_sessions=0\n")
    [said] = faults(deploy({"auth": {"api_keys_file": str(keys)}}))
    assert said.startswith(f"{ARGS}auth.api_keys_file: {keys}: line 2: max_sessions must be a ")
    assert "s4cret" not in said


def test_no_application_is_built_on_a_key_file_with_a_wrong_line(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("s3cret alice\n")
    args = {"model": "scripted", "auth": {"api_keys_file": str(keys)}}
    with pytest.raises(KeyFileError, match=re.escape(f"{keys}: line 1: word 2 ")):
        build_app(args)
    keys.write_text("s3cret name=alice\n")
    assert isinstance(build_app(args), serve.Application)


def test_a_key_file_without_keys_is_no_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# none yet\n")
    said = faults(deploy({"auth": {"api_keys_file": str(keys)}}, {"host": "0.0.0.0"}))
    assert [fault.partition(":")[0] for fault in said] == [
        f"{ARGS}auth.api_keys_file",
        "http_options.host",
    ]


def test_a_file_of_admin_keys_is_looked_at_too_and_lets_no_client_in(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# none yet\n")
    args = {"auth": {"admin_keys_file": str(keys)}}
    said = faults(deploy(args, {"host": "127.0.0.1"}))
    assert [fault.partition(":")[0] for fault in said] == [f"{ARGS}auth.admin_keys_file"]
    keys.write_text("root\n")
    assert faults(deploy(args, {"host": "127.0.0.1"})) == []
    said = faults(deploy(args, {"host": "0.0.0.0"}))
    assert [fault.partition(":")[0] for fault in said] == ["http_options.host"]


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        (None, True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_what_is_local(host: str | None, *, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_the_command_says_what_is_wrong_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "duplex.yaml"
    file.write_text(yaml.safe_dump(deploy({"modle": "embedded"})))
    assert main([str(file)]) == 2
    assert capsys.readouterr().out == f"{file}: {ARGS}modle: is not a known field\n"


def test_the_command_says_ok_and_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "duplex.yaml"
    file.write_text(yaml.safe_dump(deploy()))
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: ok\n"


def test_a_file_that_is_not_there_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert "can not be read" in capsys.readouterr().out
    assert main([]) == 2
