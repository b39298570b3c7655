"""What a session shows of itself to whoever watches it."""

from session.lifecycle import Life
from session.socket_stimuli import SocketLost
from session.stimuli import AudioAppended
from tests.session.driver import AUTO, Driver


def test_where_a_session_is_and_whether_a_client_has_it() -> None:
    d = Driver(opened=False)
    lives = [d.session.life]
    assert d.session.is_attached
    d.do(SocketLost())
    lives.append(d.session.life)
    assert lives == [Life.OPENING, Life.ABANDONED]


def test_how_much_sound_waits_behind_the_unit_that_is_out() -> None:
    d = Driver(config=AUTO)
    unit_bytes = d.session._state.unit_bytes  # noqa: SLF001 - in the model's own measure
    assert d.session.waiting_input_ms == 0
    d.do(AudioAppended(bytes(unit_bytes)))
    assert d.session.waiting_input_ms == 0
    d.do(AudioAppended(bytes(500 * 32)))
    assert d.session.waiting_input_ms == 500
