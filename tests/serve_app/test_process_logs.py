"""How a process's log lines look, where they go, and what of an exception is in them."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serve_app.logs.log_lines import FIELDS, Facts, say, trouble
from serve_app.logs.process_logs import FOLDER, PACKAGES, JsonFormatter, set_up, where_from
from serve_app.settings import LogArgs, LogEncoding, LogLevel, SettingsError, read_args
from session.errors import LocalProtocolError, MalformedEvent, StageFailed, StageUnavailable
from session.fence import Fence
from session.ids import SessionId

FENCE = Fence(SessionId("sess_1"), 0, 2, 3)
LOG = logging.getLogger("serve_app.test")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Give the loggers of this process back as they were."""
    loggers = [logging.getLogger(name) for name in PACKAGES]
    before = [(one.handlers[:], one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        for new in one.handlers[:]:
            if new not in handlers:
                one.removeHandler(new)
                new.close()
        one.setLevel(level)
        one.propagate = propagate


def logs(folder: Path, **settings: Any) -> LogArgs:
    return LogArgs(folder=folder, **settings)


def text_of(folder: Path) -> str:
    [file] = (folder / FOLDER).iterdir()
    return file.read_text(encoding="utf-8")


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(folder).splitlines()]


def test_as_json_a_line_is_one_object_with_its_facts(tmp_path: Path) -> None:
    set_up(logs(tmp_path, encoding=LogEncoding.JSON), "gateway")
    say(LOG, logging.INFO, "session ended", FENCE, Facts(reason="client_close", units=7))
    [line] = lines(tmp_path)
    assert line.pop("time").endswith("Z")
    assert line == {
        **{"level": "INFO", "logger": "serve_app.test", "message": "session ended"},
        **{"session": "sess_1", "incarnation": 0, "epoch": 2, "turn": 3},
        **{"reason": "client_close", "units": 7},
    }


def test_as_text_the_same_can_be_read(tmp_path: Path) -> None:
    set_up(logs(tmp_path), "gateway")
    facts = Facts(effects=("Emit", "WakeAt"), error_words="two words")
    say(LOG, logging.INFO, "handled", FENCE, facts)
    line = text_of(tmp_path)
    assert "INFO serve_app.test: handled session=sess_1 incarnation=0 epoch=2 turn=3" in line
    assert line.endswith('effects=Emit,WakeAt error_words="two words"\n')


def test_lines_of_all_our_packages_from_the_level_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = logs(tmp_path, encoding=LogEncoding.JSON, level=LogLevel.INFO)
    set_up(settings, "first")
    set_up(settings, "second")  # said again: the second time holds
    for name in ("serve_app.a", "stages.b", "session.c", "elsewhere"):
        logging.getLogger(name).debug("nothing")
        logging.getLogger(name).info("for the file")
        logging.getLogger(name).warning("for both: %s", 1)
    second = next((tmp_path / FOLDER).glob("second_*.log")).read_text().splitlines()
    assert [json.loads(line)["message"] for line in second] == ["for the file", "for both: 1"] * 3
    assert next((tmp_path / FOLDER).glob("first_*.log")).read_text() == ""
    shown = capsys.readouterr().err
    assert shown.count("for both: 1") >= 3
    assert "for the file" not in shown


def test_a_full_file_is_put_aside_and_so_many_are_kept(tmp_path: Path) -> None:
    set_up(logs(tmp_path, max_bytes=2_000, kept_files=2), "gateway")
    for _ in range(200):
        say(LOG, logging.INFO, "session begun", FENCE)
    files = list((tmp_path / FOLDER).iterdir())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) <= 6_000


def test_of_an_exception_its_place_is_written_and_not_its_words(tmp_path: Path) -> None:
    set_up(logs(tmp_path, encoding=LogEncoding.JSON), "gateway")
    words = "the user said hello"
    try:
        try:
            raise ValueError(words)
        except ValueError as cause:
            raise RuntimeError(words) from cause
    except RuntimeError as error:
        say(LOG, logging.ERROR, "session broke", FENCE, error=error)
        LOG.exception("a model call failed")
    for line in lines(tmp_path):
        assert "ValueError\n---\n" in line["exception"]
        assert line["exception"].endswith("RuntimeError")
        assert "test_process_logs.py" in line["exception"]
    assert words not in text_of(tmp_path)


def test_what_went_wrong_in_several_tasks_is_all_there() -> None:
    group = ExceptionGroup("x", [KeyError("word"), LocalProtocolError("a unit is already out")])
    where = where_from(group)
    assert "KeyError" in where
    assert "word" not in where
    assert "LocalProtocolError: a unit is already out" in where


def test_of_an_error_the_words_are_written_only_where_they_are_ours() -> None:
    for quoting in (MalformedEvent("hello", code="bad_event"), StageFailed("hello")):
        assert trouble(quoting).error_words is None
    lost = trouble(StageUnavailable("stage0 is gone"), stage="stage0")
    assert (lost.error, lost.error_code) == ("stage_unavailable", "stage_unavailable")
    assert (lost.error_words, lost.stage) == ("stage0 is gone", "stage0")


def test_no_fact_has_a_name_that_logging_uses() -> None:
    own = vars(logging.makeLogRecord({})).keys() | {"message", "asctime", "exception", "time"}
    assert not own & set(FIELDS)
    assert JsonFormatter().format(logging.makeLogRecord({"msg": "x"}))


def test_the_settings_of_a_deploy_file() -> None:
    args = read_args({"logs": {"encoding": "json", "level": "DEBUG", "folder": "/var/log/x"}})
    assert args.logs.encoding is LogEncoding.JSON
    assert args.logs.level is LogLevel.DEBUG
    assert args.logs.folder == Path("/var/log/x")
    with pytest.raises(SettingsError, match=r"logs\.encoding"):
        read_args({"logs": {"encoding": "xml"}})


def test_the_operator_s_page_has_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    logs = page.partition("\n## Logs\n")[2].partition("\n## ")[0]
    assert [field for field in FIELDS if f"`{field}`" not in logs] == []
