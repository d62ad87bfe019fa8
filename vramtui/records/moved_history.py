"""The history of runs on its way to the state folder from the data folder, which had it until 0.2; traces to the cache.

Nothing is taken away before what it held stands, whole and on the disk, in its new place: whatever ends it midway,
the next start goes on with it. Where it cannot be done (a home that is read-only, a full disk) all stays where it was.
"""

import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.records.run_history import RunHistory

ALL = 1 << 30
BESIDE = ("-wal", "-shm", "-journal")  # SQLite's own files beside a database
KEPT = "key, started_at, ended_at, host, gpu_name, preset, method, predicted, observed, document, gpu_uuid, pid"


def move_history(former: Path, present: Path) -> Path:
    """Move all runs of one database to another place, and say which of the two is to be used.

    Where there are runs in both (an older version wrote once more, or the move ended midway) they become one.
    """
    try:
        with RunHistory(former).locked() as database:
            if not former.exists():  # another program has moved it while this one waited
                return present
            present.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if present.exists():
                _add(database, former, present)
            else:
                _copy(former, present)
            # The database last: what is beside it belongs to nothing else then, whatever ends this here.
            for suffix in (*BESIDE, ""):
                Path(f"{former}{suffix}").unlink(missing_ok=True)
    except (OSError, UserError):
        return present if present.exists() else former
    return present


def _copy(former: Path, present: Path) -> None:
    """Write a copy of the database, and give it its name only once it is on the disk."""
    draft = present.with_name(f".{present.name}.{os.getpid()}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(former)) as database, closing(sqlite3.connect(draft)) as copy:
            database.backup(copy)
        _sync(draft)
        draft.rename(present)
        _sync(present.parent)
    finally:
        for name in ("", *BESIDE):
            with suppress(OSError):
                Path(f"{draft}{name}").unlink()


def _add(database: sqlite3.Connection, former: Path, present: Path) -> None:
    """Put the runs of one database into the other; a run of both becomes one, damaged ones go along as they are."""
    added = RunHistory(present)
    rows = database.execute(f"SELECT {KEPT} FROM runs ORDER BY id")  # noqa: S608 - ours
    with added.locked() as other:
        other.executemany(f"INSERT OR IGNORE INTO runs ({KEPT}) VALUES ({KEPT.count(',') * '?, '}?)", rows)  # noqa: S608 - ours
    for stored in RunHistory(former).runs(limit=ALL):
        added.keep(stored.run)


def move_beside(former: Path, present: Path) -> None:
    """Move what can be made again; where it is in both places, the former goes."""
    with suppress(OSError):
        if not present.exists():
            present.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.move(former, present)
        elif former.is_dir():
            shutil.rmtree(former)
        else:
            former.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
