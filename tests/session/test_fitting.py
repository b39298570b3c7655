"""What of a client's wishes a model can have, where nothing may be refused."""

from dataclasses import replace

from session.config import (
    AnswerSettings,
    ConfigPatch,
    ResponseOptions,
)
from session.effects import SubmitUnit
from session.events import ErrorRaised, SessionUpdated
from session.fitting import fitted, fitted_answer
from session.stimuli import ItemCreated, ResponseRequested, SessionConfigured
from tests.session.driver import PROFILE, TURN_MODE, Driver

ONE_VOICE = replace(PROFILE, voices=frozenset(), updatable=frozenset())
TWO_VOICES = replace(
    PROFILE,
    voices=frozenset({"low", "high"}),
    updatable=frozenset({"instructions", "voice"}),
    response_options=frozenset({"voice"}),
)


def test_at_the_open_every_setting_may_be_had() -> None:
    wanted = replace(TURN_MODE, instructions="a", temperature=0.5, speed=1.2, voice="any")
    assert fitted(wanted, None, ONE_VOICE) == wanted


def test_a_voice_that_a_model_with_several_does_not_have_is_its_own() -> None:
    for named, had in (("high", "high"), ("other", None), (None, None)):
        assert fitted(replace(TURN_MODE, voice=named), None, TWO_VOICES).voice == had
    before = replace(TURN_MODE, voice="low")
    assert fitted(replace(before, voice="other"), before, TWO_VOICES).voice == "low"


def test_later_what_the_model_can_not_change_stays() -> None:
    before = replace(TURN_MODE, instructions="a", speed=1.0, voice="low")
    wanted = replace(before, instructions="b", speed=1.5, voice="high", auto_response=True)
    assert fitted(wanted, before, TWO_VOICES) == replace(wanted, speed=1.0)
    assert fitted(wanted, before, ONE_VOICE) == replace(before, auto_response=True)


def test_a_lenient_update_is_never_refused_and_says_what_holds() -> None:
    d = Driver(replace(TURN_MODE, instructions="a"), profile=ONE_VOICE)
    patch = ConfigPatch((("instructions", "b"), ("force_listen_count", 0)))
    effects = d.do(SessionConfigured(patch, "mine", is_lenient=True))
    [updated] = d.said(SessionUpdated, effects)
    assert updated.session.config.instructions == "a"
    assert updated.client_event_id == "mine"
    assert d.said(ErrorRaised) == []
    d.do(SessionConfigured(patch))
    assert len(d.said(ErrorRaised)) == 1, "the same update, where a refusal is wanted"


def test_the_voice_of_one_answer() -> None:
    named = AnswerSettings(voice="high", speed=1.5)
    assert fitted_answer(named, TWO_VOICES) == named
    assert fitted_answer(replace(named, voice="other"), TWO_VOICES).voice is None
    assert fitted_answer(named, ONE_VOICE).voice is None
    any_name = replace(ONE_VOICE, response_options=frozenset({"voice"}))
    assert fitted_answer(named, any_name) == named


def test_a_lenient_request_is_answered_in_the_sessions_voice() -> None:
    d = Driver(TURN_MODE, profile=TWO_VOICES)
    d.do(ItemCreated("user", "hello"))
    options = ResponseOptions(settings=AnswerSettings(voice="other"))
    d.do(ResponseRequested(options, is_lenient=True))
    [submitted] = d.asked(SubmitUnit)
    assert submitted.unit.options is None
