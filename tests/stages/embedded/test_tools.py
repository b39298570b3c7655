"""The embedded model's functions: which one is meant, its arguments, and how its output is said."""

import json
from typing import Any

import pytest

from session.config import RuntimeConfig
from session.tools import Tool, ToolChoice, ToolOutput, ToolUse
from stages.embedded.tool_choice import choose_call
from stages.embedded.tool_outputs import MOST_CHARS, NOTHING, say_outputs

TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}


def tool(name: str, description: str = "", *, needs: Any = None, **properties: Any) -> Tool:
    """Return a function that needs all of its parameters, or those that are named."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if needs is None else needs,
    }
    return Tool(name, description, json.dumps(schema))


WEATHER = tool("get_weather", "Get the current weather for a city.", location=TEXT)
TIMER = tool("set_timer", "Starts a timer.", minutes=WHOLE, label=TEXT, needs=["minutes"])
ORDER = tool("lookupOrderStatus", order_id=TEXT)
LIGHT = tool("control_light", room=TEXT, state={"type": "string", "enum": ["on", "off", "half_on"]})
PING = tool("ping")


def call(text: str, *tools: Tool, choice: ToolChoice | None = None) -> tuple[str, Any] | None:
    runtime = RuntimeConfig(tools=tools, tool_choice=choice or ToolChoice())
    chosen = choose_call(text, runtime)
    return None if chosen is None else (chosen.name, json.loads(chosen.arguments))


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("What is the weather in Paris?", "Paris"),
        ("Tell me about the weather in New York right now.", "New York"),
        ("How's the weather in Paris, France today?", "Paris, France"),
        ("what will the weather be at the Eiffel Tower", "Eiffel Tower"),
        (
            "Could you please get the weather for the city of Rio de Janeiro, please?",
            "Rio de Janeiro",
        ),
        ("I want the weather in Oslo.", "Oslo"),
        ("The weather in Rome?", "Rome"),
        ("Hello. What's the weather in Bonn? Thank you.", "Bonn"),
    ],
)
def test_a_text_is_what_stands_behind_a_preposition(text: str, location: str) -> None:
    assert call(text, PING, WEATHER) == ("get_weather", {"location": location})


@pytest.mark.parametrize(
    "text",
    [
        "What is the weather?",
        "What is the weather for me?",
        "What is the weather in the city?",
        "I like the weather in Paris.",
        "The weather in Paris is nice.",
        "What is the capital of France?",
        "Who are you?",
        "",
    ],
)
def test_what_is_not_asked_or_not_known_calls_nothing(text: str) -> None:
    assert call(text, WEATHER, TIMER) is None


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("Set a timer for five minutes.", "set_timer", {"minutes": 5}),
        (
            "Start a timer of 90 minutes for the pasta",
            "set_timer",
            {"minutes": 90, "label": "pasta"},
        ),
        ("What is the status of order 5?", "lookupOrderStatus", {"order_id": "5"}),
        ("Turn the light in the kitchen off", "control_light", {"room": "kitchen", "state": "off"}),
        (
            "Put the lights half on in here, in the hall",
            "control_light",
            {"room": "hall", "state": "half_on"},
        ),
        ("Ping!", "ping", {}),
    ],
)
def test_arguments_follow_the_schema(text: str, name: str, arguments: Any) -> None:
    assert call(text, PING, WEATHER, TIMER, ORDER, LIGHT) == (name, arguments)


@pytest.mark.parametrize(
    ("text", "properties", "needs", "arguments"),
    [
        (
            "weather in Paris in celsius?",
            {"place": TEXT, "unit": UNIT},
            None,
            {"place": "Paris", "unit": "celsius"},
        ),
        ("weather in Paris?", {"place": TEXT, "unit": UNIT}, ["place"], {"place": "Paris"}),
        ("weather in Paris?", {"place": TEXT, "unit": UNIT}, None, None),
        (
            "weather in Paris?",
            {"place": TEXT, "unit": {**UNIT, "default": "celsius"}},
            None,
            {"place": "Paris", "unit": "celsius"},
        ),
        ("weather?", {"place": {"anyOf": [TEXT, {"type": "null"}]}}, None, {"place": None}),
        (
            "weather in Rome?",
            {"place": {"anyOf": [TEXT, {"type": "null"}]}},
            None,
            {"place": "Rome"},
        ),
        ("weather?", {"place": {"type": ["string", "null"]}}, None, {"place": None}),
        ("weather in two and a half days?", {"days": WHOLE}, None, {"days": 2}),
        ("weather at two point five degrees?", {"degrees": WHOLE}, None, None),
        (
            "weather at two point five degrees?",
            {"degrees": {"type": "number"}},
            None,
            {"degrees": 2.5},
        ),
        ("weather in 30 days or 3?", {"days": {**WHOLE, "maximum": 9}}, None, {"days": 3}),
        ("weather in 3 days?", {"days": {**WHOLE, "minimum": 9}}, None, None),
        ("weather?", {"kind": {"const": "all"}}, None, {"kind": "all"}),
        ("weather in Rome?", {"places": {"type": "array"}}, None, None),
        ("weather in Rome?", {"place": True}, None, None),
        ("weather in Rome?", {"place": {"type": []}}, None, None),
        (
            "weather in Rome for two days?",
            {"days": WHOLE, "place": TEXT},
            None,
            {"days": 2, "place": "Rome"},
        ),
    ],
)
def test_a_parameter_is_filled_or_there_is_no_call(
    text: str, properties: Any, needs: Any, arguments: Any
) -> None:
    called = call(text, tool("get_weather", needs=needs, **properties))
    assert called == (None if arguments is None else ("get_weather", arguments))


@pytest.mark.parametrize("parameters", ["{}", '{"properties": []}', '{"required": 1}', "[]"])
def test_a_schema_that_says_nothing_wants_nothing(parameters: str) -> None:
    assert call("weather?", Tool("weather", "", parameters)) == ("weather", {})


def test_the_description_counts_where_the_name_says_nothing() -> None:
    rain = Tool("rain_radar")
    about = tool("query", "Answers questions about train departures.", station=TEXT)
    assert call("When are departures of trains at Bern?", rain, about) == (
        "query",
        {"station": "Bern"},
    )
    assert call("Tell me about trains.", rain, about) is None


def test_the_next_function_is_called_where_the_best_can_not_be() -> None:
    best = tool("weather_map", "Weather", zoom=WHOLE)
    assert call("Show a weather map of Rome.", WEATHER, best) == (
        "get_weather",
        {"location": "Rome"},
    )
    assert call("Show a weather map of Rome, zoom three.", WEATHER, best) == (
        "weather_map",
        {"zoom": 3},
    )


# --- tool_choice ------------------------------------------------------------------------------

MUST = ToolChoice(ToolUse.REQUIRED)


def test_none_calls_nothing() -> None:
    assert call("What is the weather in Paris?", WEATHER, choice=ToolChoice(ToolUse.NONE)) is None


def test_a_required_call_is_made_of_what_fits_best() -> None:
    assert call("I like the weather in Paris.", PING, WEATHER, choice=MUST) == (
        "get_weather",
        {"location": "Paris"},
    )
    assert call("Hello.", WEATHER, PING, choice=MUST) == ("ping", {})
    assert call("", WEATHER, choice=MUST) is None


def test_a_named_function_is_the_only_one() -> None:
    named = ToolChoice(ToolUse.REQUIRED, "ping")
    assert call("What is the weather in Paris?", WEATHER, PING, choice=named) == ("ping", {})


# --- outputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("It is sunny.", ["It is sunny."]),
        ("sunny, 21 degrees", ["Sunny, 21 degrees."]),
        ('{"temperature": 21, "condition": "sunny"}', ["Temperature 21, condition sunny."]),
        (
            '{"windSpeed": 3.5, "is_raining": false, "note": null}',
            ["Wind speed 3.5, is raining no, note nothing."],
        ),
        ('"Hello there. Bye."', ["Hello there.", "Bye."]),
        ("21", ["21."]),
        ('[1, "two", {"a": true}]', ["1, two, a yes."]),
        ('{"a": {"b": {"c": {"d": {"e": 1}}}}}', ["A b c d more."]),
        ("{not json}", ["Not json."]),
        ("", [NOTHING]),
        ("{}", [NOTHING]),
    ],
)
def test_an_output_is_said_in_words(output: str, said: list[str]) -> None:
    assert say_outputs((ToolOutput("c", output),)) == said


@pytest.mark.parametrize(
    "output", ["word " * 50_000, "x" * 50_000, "[" * 50_000, json.dumps(["word"] * 90)]
)
def test_a_long_output_is_cut(output: str) -> None:
    said = " ".join(say_outputs((ToolOutput("c", output),)))
    assert 0 < len(said) <= MOST_CHARS + 1


def test_several_outputs_are_said_in_order() -> None:
    assert say_outputs((ToolOutput("a", "one"), ToolOutput("b", "two"))) == ["One.", "Two."]
