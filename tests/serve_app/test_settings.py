"""The tree behind `args` of a deploy file: what it takes and refuses, which model it selects."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from serve_app.settings import (
    ADMIN_KEYS_VARIABLE,
    SettingsError,
    gateway_settings,
    keys_in,
    read_args,
    select_model,
)
from session.config import SessionLimits
from session.ids import SessionId
from stages.contract import Plugin
from stages.scripted.plugin import PLUGIN


def faults(args: dict[str, Any]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        select_model(read_args(args), {})
    return [str(fault) for fault in caught.value.faults]


def test_no_args_give_the_kernels_defaults() -> None:
    args = read_args({})
    assert args.session_limits() == SessionLimits()
    assert args.model == "auto"


def test_every_limit_of_the_kernel_can_be_set() -> None:
    raised = {
        limit.name: 7 if limit.default is None else 2 * limit.default
        for limit in dataclasses.fields(SessionLimits)
        if isinstance(limit.default, int | float | None)
    }
    limits = read_args({"limits": raised}).session_limits()
    assert dataclasses.asdict(limits) == raised
    assert read_args({"limits": {"idle_ttl_s": None}}).session_limits().idle_ttl_s is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"limits": {"max_session": 3}}, "limits.max_session: is not a known field"),
        ({"limits": {"max_sessions": "3"}}, "limits.max_sessions: input should be a valid integer"),
        ({"limits": {"max_sessions": True}}, "limits.max_sessions: input should be a valid int"),
        ({"limits": {"max_sessions": 0}}, "limits.max_sessions: input should be greater than 0"),
        ({"limits": {"idle_ttl_s": -1}}, "limits.idle_ttl_s: input should be greater than 0"),
        ({"limits": {"stage_timeout_s": None}}, "limits.stage_timeout_s: input should be a valid"),
        ({"modle": "embedded"}, "modle: is not a known field"),
        ({"stage0": {"num_gpu": 1}}, "stage0.num_gpu: is not a known field"),
        ({"auth": {"api_keys_file": 3}}, "auth.api_keys_file: input is not a valid path"),
        ({"gateway": {"allowed_origins": "x"}}, "gateway.allowed_origins: input should be a"),
        (
            {"model": "no_such"},
            "model: unknown model 'no_such'; known: embedded, minicpmo, minicpmo_tiny, scripted",
        ),
        ({"model": "no.such.module:PLUGIN"}, "model: No module named 'no'"),
        ({"model": "session.unit:Unit"}, "model: session.unit:Unit is not a stages.contract.Plug"),
        ({"model": "session.unit:NoSuch"}, "model: module 'session.unit' has no attribute"),
        (
            {"model": "scripted", "model_settings": {"sentences": 0}},
            "model_settings: sentences: Input should be greater than or equal to 1",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_path(args: dict[str, Any], said: str) -> None:
    [fault] = faults(args)
    assert fault.startswith(said)


def test_all_faults_are_named_at_once() -> None:
    assert len(faults({"limits": {"a": 1, "max_sessions": -1}, "b": 2})) == 3


def test_a_named_model_is_selected_with_its_settings() -> None:
    args = read_args({"model": "scripted", "model_settings": {"sentences": 3}})
    selected = select_model(args, {"DUPLEX_CHECKPOINT": "/models/x"})
    assert selected.plugin is PLUGIN
    assert selected.name == "scripted"
    assert selected.settings == {"sentences": 3}


@pytest.mark.parametrize(
    ("settings", "environ"),
    [({"checkpoint": "/models/x"}, {}), ({}, {"DUPLEX_CHECKPOINT": "/models/x"})],
)
def test_a_checkpoint_chooses_the_model_that_runs_it(
    settings: dict[str, Any], environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUPLEX_CHECKPOINT", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert select_model(read_args({"model_settings": settings}), environ).name == "minicpmo"


def test_the_real_model_needs_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUPLEX_CHECKPOINT", raising=False)
    with pytest.raises(SettingsError, match="checkpoint: there is none"):
        select_model(read_args({"model": "minicpmo"}), {})


def test_the_tiny_model_makes_its_own() -> None:
    args = {"model": "minicpmo_tiny", "model_settings": {"checkpoint": "/models/x"}}
    with pytest.raises(SettingsError, match="makes its own"):
        select_model(read_args(args), {})
    assert select_model(read_args({"model": "minicpmo_tiny"}), {}).name == "minicpmo_tiny"


class NoSpeaker:
    """A Stage1 without most of its calls, and with one that takes too little."""

    async def open(self, session_id: SessionId) -> None:
        """Take too few arguments."""

    async def warm_up(self) -> None:
        """Nothing to warm."""


def broken(**changes: Any) -> Plugin:
    return dataclasses.replace(PLUGIN, **changes)


BROKEN_STAGE1 = broken(make_stage1=lambda _: NoSpeaker())
OLD_CONTRACT = broken(descriptor=dataclasses.replace(PLUGIN.descriptor, contract_version=0))
OTHER_RATE = broken(descriptor=dataclasses.replace(PLUGIN.descriptor, output_rate_hz=22_050))


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("BROKEN_STAGE1", "NoSpeaker.open() must take (session_id, runtime)"),
        ("BROKEN_STAGE1", "NoSpeaker has no speak()"),
        ("OLD_CONTRACT", "stage contract 0"),
        ("OTHER_RATE", "makes 22050 Hz"),
    ],
)
def test_a_plugin_that_breaks_the_contract_is_not_deployed(
    attribute: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = globals()[attribute]
    monkeypatch.setattr("serve_app.settings.load_plugin", lambda _: plugin)
    [fault] = faults({"model": "broken"})
    assert said in fault


def test_the_gateway_gets_its_part() -> None:
    args = read_args(
        {
            "limits": {"max_sessions": 3},
            "auth": {"api_keys_file": "/etc/keys", "admin_keys_file": "/etc/admin"},
            "gateway": {"allowed_origins": ["https://a.example"], "debug": True},
        }
    )
    settings = gateway_settings(args)
    assert settings.limits.max_sessions == 3
    assert settings.api_keys_file == Path("/etc/keys")
    assert settings.admin_keys_file == Path("/etc/admin")
    assert settings.allowed_origins == ("https://a.example",)
    assert settings.debug
    assert not settings.allow_unauthenticated


def test_keys_come_from_the_environment_and_never_into_a_log() -> None:
    keys = keys_in({"DUPLEX_API_KEYS": " key-1, key-2,, "})
    assert keys == ("key-1", "key-2")
    assert keys_in({}) == ()
    environ = {"DUPLEX_ADMIN_KEYS": "root-1", "DUPLEX_API_KEYS": "key-1"}
    admin = keys_in(environ, ADMIN_KEYS_VARIABLE)
    assert admin == ("root-1",)
    settings = dataclasses.replace(gateway_settings(read_args({})), api_keys=keys, admin_keys=admin)
    assert "key-1" not in repr(settings)
    assert "root-1" not in repr(settings)
