"""Where a tool has its admin key from, and where it never has it from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from serve_app.settings import ADMIN_KEYS_VARIABLE
from tools.admin_key import SERVICE_VARIABLE, find_key, first_key, service_key
from tools.drain import main as drain
from tools.story import main as story


def test_the_first_key_of_a_file_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# admins\n\nroot name=ops\nspare\n")
    assert first_key(file) == "root"
    assert first_key(tmp_path / "none") is None
    file.write_text("# none yet\n")
    assert first_key(file) is None


def test_the_nearest_key_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("written\n")
    service = {"DUPLEX_ADMIN_KEYS": " , served,old"}
    assert find_key({"KEY": " own ", **service}, file) == "own"
    assert find_key({"KEY": " ", **service}, file) == "written"
    assert find_key(service, tmp_path / "none") == "served"
    assert find_key(service, None) == "served"
    assert find_key({}, None) is None


def test_the_services_keys_are_read_where_the_service_reads_them() -> None:
    assert SERVICE_VARIABLE == ADMIN_KEYS_VARIABLE
    assert service_key({ADMIN_KEYS_VARIABLE: "first,second"}) == "first"


@pytest.mark.parametrize("main", [drain, story])
def test_a_key_on_the_command_line_is_refused(
    main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--url", "http://127.0.0.1:9", "--key", "secret"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --key" in capsys.readouterr().err
