import errno
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.records.moments import moment
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import FORMATS
from vramtui.records.export.files import save_snapshot

STEM = "vramtui-gpu01.example-20260131-120509"
SVG = "<svg/>"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_one_file_a_format_under_one_name(tmp_path: Path) -> None:
    paths = save_snapshot(moment(), tmp_path / "new" / "folder", picture=SVG)
    assert [path.name for path in paths] == [f"{STEM}.{kind}" for kind in FORMATS]
    assert _names(tmp_path / "new" / "folder") == sorted(path.name for path in paths)
    assert json.loads(paths[0].read_text())["gpus"][0]["processes"][0]["estimate"]["parts"]
    assert SVG in paths[3].read_text()


def test_the_next_set_gets_a_number_also_where_one_name_or_link_is_there(tmp_path: Path) -> None:
    first = save_snapshot(moment(), tmp_path, picture=SVG)
    before = {path: path.read_bytes() for path in first}
    second = save_snapshot(moment(), tmp_path, picture="<svg>2</svg>")
    third = save_snapshot(moment(), tmp_path, ("csv",))
    assert {path.stem for path in second} == {f"{STEM}-2"}
    assert third == [tmp_path / f"{STEM}-3.csv"]
    assert {path: path.read_bytes() for path in first} == before
    (tmp_path / f"{STEM}-4.md").write_text("mine")
    paths = save_snapshot(moment(), tmp_path, ("json", "csv"))
    assert {path.stem for path in paths} == {f"{STEM}-5"}
    assert (tmp_path / f"{STEM}-4.md").read_text() == "mine"
    (tmp_path / f"{STEM}-6.json").symlink_to(tmp_path / "elsewhere")
    (path,) = save_snapshot(moment(), tmp_path, ("json",))
    assert path.stem == f"{STEM}-7"
    assert not (tmp_path / "elsewhere").exists()


def test_many_at_once_never_share_a_file(tmp_path: Path) -> None:
    saved: list[list[Path]] = []
    threads = [
        threading.Thread(target=lambda: saved.append(save_snapshot(moment(), tmp_path, picture=SVG))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({path for paths in saved for path in paths}) == 8 * len(FORMATS)
    assert all(len({path.stem for path in paths}) == 1 for paths in saved)
    assert all(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.parametrize("host", ["../../etc/passwd", "a/b\\c\x1b[2J", "..", "", "ü" * 300])
def test_a_host_name_cannot_leave_the_folder(host: str, tmp_path: Path) -> None:
    (path,) = save_snapshot(moment(host), tmp_path, ("json",))
    assert path.parent == tmp_path
    assert path.name.isascii()
    assert path.name.isprintable()
    assert len(path.name) < 100


def test_an_unknown_format_or_a_file_in_place_of_the_folder_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'cvs' is not a format \(did you mean csv\?\); there are: json, csv, md"):
        save_snapshot(moment(), tmp_path, ("json", "cvs"))
    assert _names(tmp_path) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"not written to .*/file: file exists; choose another folder"):
        save_snapshot(moment(), tmp_path / "file", ("json",))


@pytest.mark.parametrize(("code", "sentence"), [
    (errno.EACCES, r"not written to .*: permission denied; choose another folder"),
    (errno.ENOSPC, r"the disk that holds .* is full"),
    (errno.EROFS, r"read-only file system; choose another folder"),
])  # fmt: skip
def test_what_the_system_refuses(code: int, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., int] = os.open

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith(".csv"):
            raise OSError(code, os.strerror(code))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError, match=sentence):
        save_snapshot(moment(), tmp_path, ("json", "csv"))
    assert _names(tmp_path) == []


def test_nothing_is_left_of_a_set_that_does_not_fit(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.records.moments import moment\n"
        "from vramtui.core.base.errors import UserError; from vramtui.records.export.files import save_snapshot\n"
        "try: save_snapshot(moment(), Path(sys.argv[1]), ('csv', 'html'), picture='x' * 100_000)\n"
        "except UserError as error: print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert "file too large" in ended.stdout
    assert _names(tmp_path) == []
