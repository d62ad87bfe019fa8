"""What is written to a disk: how each file is made ready, changed, and seen to be the old one or the new one."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.examples import SMALL, a_run
from tests.records.moments import moment
from vramtui.core.base.errors import UserError
from vramtui.core.observation.readings import Host, Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.presets.reader import parse_preset
from vramtui.presets.settings import read_settings, write_settings
from vramtui.presets.whole_files import write_new, write_preset_text
from vramtui.records.export.files import save_snapshot
from vramtui.records.recording.files import RecordingHeader, RecordingWriter, read_recording
from vramtui.records.run_history import RunHistory

OLD, NEW = "old", "new"
NEW_PRESET = SMALL.replace("batch_size = 2", "batch_size = 48")
RUN = a_run(key="gpu01|GPU-0|4213|100.0", started_at=100.0, run_kind="train")
RUNS = tuple(msgspec.structs.replace(RUN, key=f"key-{n}", pid=n, started_at=100.0 + n) for n in range(3))
ANOTHER = msgspec.structs.replace(RUN, key="key-9", pid=9, started_at=200.0)
SAMPLES = tuple(Sample(taken_at=1000.0 + n, source="nvml", host=Host(name="gpu01")) for n in range(4))


@dataclass(frozen=True)
class Subject:
    """A kind of file.

    Attributes:
        name: in words.
        prepare: makes what is there before, in an empty folder.
        change: changes it.
        state: `old` or `new`; anything else says what is wrong with it.
        is_gone_on_with: whether the change can be made again whatever was left of it.
        raises: what says that it was not made.
    """

    name: str
    prepare: Callable[[Path], object]
    change: Callable[[Path], object]
    state: Callable[[Path], str]
    is_gone_on_with: bool = True
    raises: type[Exception] = UserError


def _file(folder: Path) -> Path:
    return folder / "history.sqlite3"


def _kept(folder: Path) -> None:
    for run in RUNS:
        RunHistory(_file(folder)).keep(run)


def _history(before: set[str]) -> Callable[[Path], str]:
    def state(folder: Path) -> str:
        history = RunHistory(_file(folder))
        keys = {stored.run.key for stored in history.runs()}
        if history.damaged:
            return str(history.damaged)
        with closing(sqlite3.connect(_file(folder))) as database:
            (verdict,) = database.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            return str(verdict)
        return OLD if keys == before else NEW if keys == before | {ANOTHER.key} else f"runs {sorted(keys)}"

    return state


def _preset(folder: Path) -> str:
    text = (folder / "small.toml").read_text()
    parse_preset(text, folder / "small.toml")
    return {SMALL: OLD, NEW_PRESET: NEW}.get(text, text)


def _settings(folder: Path) -> str:
    settings = read_settings(folder / "config.toml")
    return {2.0: OLD, 5.0: NEW}.get(settings.dashboard.interval, f"{settings.dashboard.interval}")


def _new_file(folder: Path) -> str:
    path = folder / "made.toml"
    return OLD if not path.exists() else NEW if path.read_text() == SMALL else path.read_text()


def _said(folder: Path) -> Path:
    """Where it stands what the writer has said to be written: on a disk that never fails."""
    return folder.parent.with_name("said")


def _record(ending: str) -> Callable[[Path], object]:
    def record(folder: Path) -> None:
        path = folder / f"new{ending}"
        if path.exists():  # gone on with: a recording is never written over another
            path.unlink()
        _said(folder).unlink(missing_ok=True)
        with closing(RecordingWriter(path, RecordingHeader(started_at=1000.0))) as writer:
            for sample in SAMPLES:
                writer.write(RecordedTick(sample))
                _said(folder).write_text(str(sample.taken_at))

    return record


def _recorded(ending: str) -> Callable[[Path], str]:
    """A beginning of it, with all that was said to be written; all of it is new."""

    def state(folder: Path) -> str:
        path = folder / f"new{ending}"
        said = float(_said(folder).read_text()) if _said(folder).exists() else 0.0
        count = sum(sample.taken_at <= said for sample in SAMPLES)
        if not path.exists():
            return OLD
        try:
            found = read_recording(path).samples
        except UserError as error:
            return OLD if count == 0 else str(error)
        if found != SAMPLES[: len(found)]:
            return f"other samples: {found}"
        if len(found) < count:
            return f"{len(found)} samples of {count}"
        return NEW if len(found) == len(SAMPLES) else OLD

    return state


def _snapshot(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in files:
        ending = {".json": "}\n", ".md": "\n", ".csv": "\n", ".html": "</html>\n"}[path.suffix]
        if not path.read_text().endswith(ending):
            return f"{path.name} of {path.stat().st_size} bytes is not whole"
    return NEW if {path.suffix for path in files} == {".json", ".csv", ".md", ".html"} else OLD


SUBJECTS = (
    Subject("history", _kept, lambda f: RunHistory(_file(f)).keep(ANOTHER), _history({run.key for run in RUNS})),
    Subject("first run of a history", lambda _: None, lambda f: RunHistory(_file(f)).keep(ANOTHER), _history(set())),
    Subject(
        "preset",
        lambda f: (f / "small.toml").write_text(SMALL),
        lambda f: write_preset_text(f / "small.toml", NEW_PRESET),
        _preset,
    ),
    Subject(
        "settings",
        lambda f: (f / "config.toml").write_text("[dashboard]\ninterval = 2.0\n"),
        lambda f: write_settings(f / "config.toml", {"dashboard.interval": 5.0}),
        _settings,
    ),
    Subject(
        "new file",
        lambda _: None,
        lambda f: write_new(f / "made.toml", SMALL.encode()),
        _new_file,
        is_gone_on_with=False,
        raises=OSError,
    ),
    Subject("recording", lambda _: None, _record(".jsonl"), _recorded(".jsonl")),
    Subject("compressed recording", lambda _: None, _record(".jsonl.gz"), _recorded(".jsonl.gz")),
    Subject("snapshot", lambda _: None, lambda f: save_snapshot(moment(), f, ("json", "csv", "md", "html")), _snapshot),
)
# Written over what is there: what the matrix has to see.
CARELESS = Subject(
    "careless", SUBJECTS[3].prepare, lambda folder: (folder / "small.toml").write_text(NEW_PRESET), _preset
)
