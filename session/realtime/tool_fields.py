"""Reads `tools` and `tool_choice`, of a session or of one response.

A session's list is kept also where it can not be read: a model without tools echoes it as it came,
and only a model that calls tools refuses it. So the reader says what is wrong instead of raising.
"""

import json
import re
from collections.abc import Callable
from typing import Final

from session.errors import MalformedEvent
from session.realtime.readers import bad_value, missing, text, too_long, wrong_type
from session.tools import Tool, ToolChoice, ToolFault, ToolList, ToolUse

MAX_TOOLS: Final = 128
MAX_TOOLS_BYTES: Final = 32_768
"""Bound of a whole list as JSON text in UTF-8; no more of it could be echoed."""
ReadTools = Callable[[object, str], tuple[Tool, ...]]
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def session_tools(value: object, param: str, read: ReadTools) -> ToolList:
    """Read a session's tools; what is wrong with them stands in the value."""
    try:
        return ToolList(read(value, param))
    except MalformedEvent as error:
        return ToolList(fault=ToolFault.of(error))


def session_tool_choice(value: object, param: str) -> ToolChoice:
    """Read a session's tool choice; what is wrong with it stands in the value."""
    try:
        return read_tool_choice(value, param)
    except MalformedEvent as error:
        return ToolChoice(fault=ToolFault.of(error))


def read_tools(value: object, param: str) -> tuple[Tool, ...]:
    """Read a list of functions; null is an empty one."""
    return _read(value, param, lambda entry: True)


def read_functions(value: object, param: str) -> tuple[Tool, ...]:
    """Read the functions of a list that may have other kinds of tools, such as remote servers."""
    return _read(value, param, is_function)


def is_function(entry: object) -> bool:
    """Whether an entry of a list of tools is a function, or nothing that has a kind."""
    return not isinstance(entry, dict) or entry.get("type", "function") == "function"


def _read(value: object, param: str, is_ours: Callable[[object], bool]) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_type(param, "a list of functions")
    # Errors name the place in the client's list.
    ours = [(place, entry) for place, entry in enumerate(value) if is_ours(entry)]
    if len(ours) > MAX_TOOLS:
        raise bad_value(param, f"a list of at most {MAX_TOOLS} functions")
    if len(_json([entry for _, entry in ours]).encode()) > MAX_TOOLS_BYTES:
        raise too_long(param, f"{MAX_TOOLS_BYTES} bytes of JSON")
    tools = tuple(_tool(entry, f"{param}.{place}") for place, entry in ours)
    if len({tool.name for tool in tools}) < len(tools):
        raise bad_value(param, "functions with different names")
    return tools


def read_tool_choice(value: object, param: str) -> ToolChoice:
    """Read auto, none, required, or an object that names a function; null is auto."""
    if value is None:
        return ToolChoice()
    if isinstance(value, dict) and value.get("type") == "function":
        return ToolChoice(ToolUse.REQUIRED, _name(value, param))
    for use in ToolUse:
        if use.value == value:
            return ToolChoice(use)
    wrong = bad_value if isinstance(value, str | dict) else wrong_type
    raise wrong(param, "auto, none, required, or a function as {type, name}")


def _tool(entry: object, param: str) -> Tool:
    if not isinstance(entry, dict):
        raise wrong_type(param, "an object of type function")
    if entry.get("type", "function") != "function":
        raise bad_value(param, "an object of type function")
    schema = entry.get("parameters")
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        raise wrong_type(f"{param}.parameters", "a JSON schema of type object")
    if schema.get("type", "object") != "object":
        raise bad_value(f"{param}.parameters", "a JSON schema of type object")
    description = text(MAX_TOOLS_BYTES)(entry.get("description") or "", f"{param}.description")
    return Tool(_name(entry, param), description, _json(schema))


def _name(entry: dict[str, object], param: str) -> str:
    name = entry.get("name")
    if name is None:
        raise missing(f"{param}.name")
    if not isinstance(name, str):
        raise wrong_type(f"{param}.name", "a text")
    if not _NAME.fullmatch(name):
        raise bad_value(f"{param}.name", "1 to 64 letters, digits, _ or -")
    return name


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
