"""The hint for somebody who is here for the first time is shown once."""

from pathlib import Path

from vramtui.cli.dashboard.services import first_time_hint


def test_it_is_shown_once(tmp_path: Path) -> None:
    marker = tmp_path / "data" / "welcomed"
    assert "New here?" in first_time_hint(marker)
    assert first_time_hint(marker) == ""


def test_where_nothing_can_be_remembered_it_does_not_come_every_time(tmp_path: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_text("a file, no folder")
    assert first_time_hint(in_the_way / "welcomed") == ""
