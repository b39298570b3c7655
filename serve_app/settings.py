"""The settings behind `args:` of a deploy file: one tree, validated before anything starts.

Rule 1: a field that is not known is an error, and so is a value of the wrong type.
Rule 2: everything wrong is reported at once, each fault with the path of its field.
"""

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
    field_validator,
)

from serve_app.tracing.settings import (
    ENDPOINT_VARIABLES,
    NO_TRACING,
    TracingSettings,
    own_endpoint_fault,
)
from session.config import SessionLimits
from stages.contract import Plugin
from stages.plugin_check import check_plugin
from stages.plugins import load_plugin

API_KEYS_VARIABLE: Final = "DUPLEX_API_KEYS"
"""Environment variable with API keys, separated by commas."""
ADMIN_KEYS_VARIABLE: Final = "DUPLEX_ADMIN_KEYS"
"""Environment variable with admin keys, separated by commas. They open /admin/ and nothing else."""
CHECKPOINT_VARIABLE: Final = "DUPLEX_CHECKPOINT"
"""Environment variable with the folder of a checkpoint, which `model: auto` then runs."""
TRACES_VARIABLE: Final = ENDPOINT_VARIABLES[1]
"""Environment variable with an address for OTLP over HTTP; traces go there where `tracing.endpoint`
is null. OpenTelemetry's other standard variables hold too (operations.md, Traces)."""
CHECKPOINT_MODEL: Final = "minicpmo"
DEFAULT_MODEL: Final = "embedded"


class Fault(NamedTuple):
    """One thing that is wrong in a deploy file."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class SettingsError(ValueError):
    """The settings are wrong; has every fault."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


class _Settings(BaseModel):
    """What all parts of the tree have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


MAY_BE_0: Final = frozenset({"disconnect_grace_s"})
"""Limits whose 0 means something: a lost socket ends its session at once."""


def _limit_fields() -> dict[str, Any]:
    """Return the fields of SessionLimits as pydantic wants them; all but MAY_BE_0 are positive."""
    hints = get_type_hints(SessionLimits)
    return {
        limit.name: (
            Annotated[hints[limit.name], Field(ge=0) if limit.name in MAY_BE_0 else Field(gt=0)],
            limit.default,
        )
        for limit in dataclasses.fields(SessionLimits)
    }


if TYPE_CHECKING:

    class LimitArgs(_Settings):
        """Bounds of sessions (`session.config.SessionLimits`)."""
else:
    # Made from SessionLimits, so that names, types and defaults stand in one place.
    LimitArgs = create_model("LimitArgs", __base__=_Settings, **_limit_fields())


class AuthArgs(_Settings):
    """Who may come in."""

    api_keys_file: Path | None = Field(default=None, strict=False)
    """File with one API key a line, and after it perhaps the client's name and bounds of its own:
    `KEY name=alice max_sessions=4 max_opens_per_minute=30`. Read again when it changes."""
    admin_keys_file: Path | None = Field(default=None, strict=False)
    """File with one admin key a line; read again when it changes. Where neither admin keys nor API
    keys are configured, /admin/ is open to this machine alone."""


class GatewayArgs(_Settings):
    """The deployment that holds the clients' sockets."""

    num_cpus: float = Field(default=0.2, ge=0)
    """Ray's count of processors that each replica takes; it only decides where things fit."""
    allowed_origins: tuple[str, ...] = Field(default=(), strict=False)
    """Origins of web pages that may connect, besides the service's own."""
    debug: bool = False
    """Offer /debug/timings."""
    metrics_public: bool = False
    """Let everybody read /metrics, also where the service has keys."""
    story_entries: int = Field(default=256, ge=16)
    """Entries of a session's story that are kept, the latest ones; about 400 bytes each."""
    ended_stories: int = Field(default=100, ge=0)
    """Sessions whose story is kept after their end."""


class LogEncoding(enum.StrEnum):
    """How a log line looks."""

    TEXT = "text"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """From which level on lines are written."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class LogArgs(_Settings):
    """The log files of the service's own processes."""

    encoding: LogEncoding = Field(default=LogEncoding.TEXT, strict=False)
    """text, or json: one object a line."""
    level: LogLevel = Field(default=LogLevel.INFO, strict=False)
    """DEBUG, INFO, WARNING or ERROR. DEBUG has a line for everything that happens in a session."""
    folder: Path | None = Field(default=None, strict=False)
    """Where they lie, in a folder `duplex`; null: where Ray's own logs are."""
    max_bytes: int = Field(default=104_857_600, gt=0)
    """A file that is as long is put aside, and a new one begun."""
    kept_files: int = Field(default=5, ge=1)
    """Files of a process that were put aside and are kept."""


class TracingArgs(_Settings):
    """Where the traces of units go."""

    endpoint: str | None = None
    """Address of whatever takes OTLP over HTTP, such as `http://127.0.0.1:4318`; `/v1/traces` is
    added. null: the one of OpenTelemetry's own variables, and no traces where there is none."""
    sample_ratio: float | None = Field(default=None, ge=0, le=1)
    """Share of the units that are traced. null: what OpenTelemetry's own variables say, else all
    of them."""

    @field_validator("endpoint")
    @classmethod
    def _is_address(cls, endpoint: str | None) -> str | None:
        fault = None if endpoint is None else own_endpoint_fault(endpoint)
        if fault is not None:
            raise ValueError(fault)
        return endpoint

    def settings(self) -> TracingSettings:
        """Return them as every process gets them."""
        return TracingSettings(self.endpoint, self.sample_ratio)


class StageArgs(_Settings):
    """What the engine of one replica of a stage is given."""

    num_cpus: float = Field(default=0.5, ge=0)
    """Ray's count of processors; it only decides where an engine fits."""
    num_gpus: float = Field(default=0.0, ge=0)
    """GPUs; fractions share one."""
    resources: dict[str, float] = Field(default_factory=dict)
    """Custom Ray resources, such as an accelerator's type."""


class AppArgs(_Settings):
    """The whole tree."""

    model: str = "auto"
    """`auto`, a model's name, or `package.module:ATTRIBUTE` of a plugin."""
    model_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of that model; it validates them itself."""
    limits: LimitArgs = Field(default_factory=LimitArgs)
    """Bounds of a session and of a stage."""
    auth: AuthArgs = Field(default_factory=AuthArgs)
    """Who may come in."""
    gateway: GatewayArgs = Field(default_factory=GatewayArgs)
    """The deployment that holds the clients' sockets."""
    logs: LogArgs = Field(default_factory=LogArgs)
    """The log files of the service's own processes."""
    stage0: StageArgs = Field(default_factory=StageArgs)
    """What the hearing and deciding half is given."""
    stage1: StageArgs = Field(default_factory=StageArgs)
    """What the speaking half is given."""
    tracing: TracingArgs = Field(default_factory=TracingArgs)
    """Where the traces of units go."""

    def session_limits(self) -> SessionLimits:
        """Return the limits as the session kernel knows them."""
        return SessionLimits(**self.limits.model_dump())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gateway runs: what it says of itself holds for itself alone."""

    replica: str = "local"
    node: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What one gateway replica goes by."""

    limits: SessionLimits
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    api_keys_file: Path | None = None
    admin_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_keys_file: Path | None = None
    allow_unauthenticated: bool = False
    """True only where the service listens on this machine alone."""
    allowed_origins: tuple[str, ...] = ()
    debug: bool = False
    metrics_public: bool = False
    tracing: TracingSettings = NO_TRACING
    story_entries: int = 256
    ended_stories: int = 100
    logs: LogArgs = field(default_factory=LogArgs)
    place: Place = Place()


@dataclass(frozen=True, slots=True)
class SelectedModel:
    """The model to deploy: its plugin, the name that finds it again elsewhere, and its settings."""

    name: str
    plugin: Plugin
    settings: dict[str, Any]


def read_args(args: Mapping[str, Any]) -> AppArgs:
    """Return the validated tree; raises SettingsError."""
    try:
        return AppArgs.model_validate(dict(args))
    except ValidationError as error:
        raise SettingsError(faults_of(error)) from None


def faults_of(error: ValidationError, at: str = "") -> list[Fault]:
    """Return pydantic's findings, with `at` in front of their paths."""
    return [
        Fault(".".join([*filter(None, [at]), *map(str, one["loc"])]), _plain(one))
        for one in error.errors()
    ]


def select_model(args: AppArgs, environ: Mapping[str, str]) -> SelectedModel:
    """Find the model, and validate its plugin and settings; raises SettingsError."""
    settings = dict(args.model_settings)
    name = args.model
    if name == "auto":
        name = _automatic_model(settings, environ)
    try:
        plugin = load_plugin(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise SettingsError([Fault("model", str(error))]) from error
    try:
        check_plugin(plugin, settings)
    except ValueError as error:
        raise SettingsError([Fault("model_settings", str(error))]) from error
    return SelectedModel(name, plugin, settings)


def gateway_settings(args: AppArgs) -> GatewaySettings:
    """Return what the gateway needs; a replica adds the keys and who may come in without one."""
    return GatewaySettings(
        limits=args.session_limits(),
        api_keys_file=args.auth.api_keys_file,
        admin_keys_file=args.auth.admin_keys_file,
        allowed_origins=args.gateway.allowed_origins,
        debug=args.gateway.debug,
        metrics_public=args.gateway.metrics_public,
        tracing=args.tracing.settings(),
        story_entries=args.gateway.story_entries,
        ended_stories=args.gateway.ended_stories,
        logs=args.logs,
    )


def keys_in(environ: Mapping[str, str], variable: str = API_KEYS_VARIABLE) -> tuple[str, ...]:
    """Return the keys that a variable of the environment lists."""
    listed = environ.get(variable, "").split(",")
    return tuple(key.strip() for key in listed if key.strip())


def _automatic_model(settings: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the model for a checkpoint where one is configured, otherwise the default."""
    checkpoint = settings.get("checkpoint") or environ.get(CHECKPOINT_VARIABLE)
    return CHECKPOINT_MODEL if checkpoint else DEFAULT_MODEL


def _plain(one: Any) -> str:
    """Say a finding in words of a deploy file."""
    if one["type"] == "extra_forbidden":
        return "is not a known field"
    message = str(one["msg"])
    return message[:1].lower() + message[1:]
