"""session.update: in order, whole or not at all, and nothing of a refused one stays."""

from dataclasses import replace

from session.config import AudioEncoding, AudioFormat, ConfigPatch, OverlapPolicy
from session.effects import ConfigureStages, Effect
from session.errors import StageFailed
from session.events import ErrorRaised, SessionUpdated
from session.on_lifecycle import MAX_WAITING_UPDATES
from session.stimuli import ConfigureFailed, SessionConfigured, StagesConfigured
from tests.session.driver import AUTO, AUTO_VAD, PROFILE, Driver

FLEXIBLE = replace(PROFILE, updatable=frozenset({"temperature", "voice", "speed"}))


def update(event_id: str, **changes: object) -> SessionConfigured:
    return SessionConfigured(ConfigPatch(tuple(changes.items())), event_id)


def refuse(driver: Driver) -> list[Effect]:
    asked = driver.asked(ConfigureStages)[-1]
    return driver.do(ConfigureFailed(asked.fence, asked.generation, StageFailed("no such voice")))


def test_a_refused_update_leaves_nothing_in_the_one_that_waits_behind_it() -> None:
    d = Driver(AUTO, profile=FLEXIBLE)
    d.do(update("u1", voice="nobody's", speed=1.2))
    d.do(update("u2", temperature=0.3))
    refuse(d)
    assert [error.event_id for error in d.said(ErrorRaised)] == ["u1"]
    asked = d.asked(ConfigureStages)[-1].runtime
    assert (asked.voice, asked.speed, asked.temperature) == ("", 1.0, 0.3)
    d.configured()
    config = d.said(SessionUpdated)[-1].session.config
    assert (config.voice, config.speed, config.temperature) == (None, None, 0.3)


def test_what_can_not_be_without_the_refused_one_is_refused_with_it() -> None:
    d = Driver(replace(AUTO_VAD, overlap_policy=OverlapPolicy.BARGE_IN_ON_SPEECH), profile=FLEXIBLE)
    d.do(update("u1", voice="nobody's", turn_detection=None))
    d.do(update("u2", overlap_policy=OverlapPolicy.LISTEN_ONLY, temperature=0.5))
    d.do(update("u3", temperature=0.7))
    assert d.said(ErrorRaised) == []
    refuse(d)
    assert [error.event_id for error in d.said(ErrorRaised)] == ["u1", "u2"]
    assert d.asked(ConfigureStages)[-1].runtime.temperature == 0.7


def test_the_recording_of_a_voice_holds_for_a_whole_session() -> None:
    profile = replace(FLEXIBLE, ref_audio=True)
    for config in (AUTO, replace(AUTO, ref_audio=b"RIFF one")):
        d = Driver(config, profile=profile)
        d.do(update("u1", ref_audio=b"RIFF two"))
        (refused,) = d.said(ErrorRaised)
        assert (refused.error.wire_code, refused.error.param) == (
            "ref_audio_update_unsupported",
            "session.ref_audio",
        )
        d.do(update("u2", ref_audio=config.ref_audio, temperature=0.5))
        d.configured()
        assert d.said(SessionUpdated)[-1].session.config.temperature == 0.5
        assert len(d.said(ErrorRaised)) == 1
    d = Driver(AUTO, profile=FLEXIBLE)  # a model that has no use for it
    d.do(update("u3", ref_audio=b"RIFF two"))
    assert d.said(ErrorRaised) == []


def test_updates_do_not_wait_without_end() -> None:
    d = Driver(AUTO, profile=FLEXIBLE)
    for number in range(MAX_WAITING_UPDATES + 2):
        d.do(update(f"u{number}", temperature=number / 100))
    errors = d.said(ErrorRaised)
    assert [error.event_id for error in errors] == [
        f"u{MAX_WAITING_UPDATES}",
        f"u{MAX_WAITING_UPDATES + 1}",
    ]
    assert {error.error.wire_code for error in errors} == {"input_backpressure"}
    for _ in range(MAX_WAITING_UPDATES):
        d.configured()
    assert d.session.config.temperature == (MAX_WAITING_UPDATES - 1) / 100


def test_an_answer_to_a_question_that_was_not_asked_changes_nothing() -> None:
    d = Driver(AUTO, profile=FLEXIBLE)
    d.do(update("u1", temperature=0.3))
    asked = d.asked(ConfigureStages)[-1]
    assert d.do(StagesConfigured(asked.fence, asked.generation + 1)) == []
    assert d.do(ConfigureFailed(asked.fence, asked.generation + 1, StageFailed("x"))) == []
    d.configured()
    assert d.session.config.temperature == 0.3
    assert d.do(StagesConfigured(asked.fence, asked.generation)) == []


def test_a_waiting_update_says_whether_it_changes_how_audio_is_read() -> None:
    d = Driver(AUTO, profile=FLEXIBLE)
    d.do(update("u1", temperature=0.3))
    assert not d.session.awaits_input_format
    d.do(update("u2", input_format=AudioFormat(AudioEncoding.PCM16, 8_000)))
    assert d.session.awaits_input_format
    d.configured()
    d.configured()
    assert not d.session.awaits_input_format
