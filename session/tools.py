"""Tools: functions that the client offers, the model's calls of them, and what they returned."""

import enum
from dataclasses import dataclass
from typing import Final, Self

from session.errors import MalformedEvent, WrongType


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str = ""
    parameters: str = "{}"
    """JSON schema of the arguments, an object, as JSON text."""


class ToolUse(enum.Enum):
    """Whether the model calls tools in an answer."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolFault:
    """What is wrong with tools or a tool choice: an error as a value, for when it matters."""

    message: str
    code: str
    param: str | None

    @classmethod
    def of(cls, error: MalformedEvent) -> Self:
        """Return the fault that an error tells of."""
        code = "invalid_type" if isinstance(error, WrongType) else error.wire_code
        return cls(error.message, code, error.param)

    def error(self) -> MalformedEvent:
        """Return the error."""
        return MalformedEvent(self.message, code=self.code, param=self.param)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """How the model chooses among the tools; with a `name` it must call that one."""

    use: ToolUse = ToolUse.AUTO
    name: str = ""
    fault: ToolFault | None = None
    """What is wrong with the client's choice, for a model that calls tools; None: nothing."""


FREE_CHOICE: Final = ToolChoice()
"""The model calls what it likes."""


@dataclass(frozen=True, slots=True)
class ToolList:
    """The tools of a session or an answer."""

    tools: tuple[Tool, ...] = ()
    fault: ToolFault | None = None
    """What is wrong with the client's list, for a model that calls tools; None: nothing."""


NO_TOOLS: Final = ToolList()


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """The model calls a tool. The same session never uses a `call_id` twice."""

    call_id: str
    name: str
    arguments: str
    """A JSON object, as JSON text."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call returned, as the client tells it."""

    call_id: str
    output: str
