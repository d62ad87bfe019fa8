"""The history of runs: an SQLite database that several programs may write to at once."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import reduce
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import HISTORY
from vramtui.core.base.text import printable, shortened
from vramtui.core.base.units import format_bytes
from vramtui.core.runs.run import Run, StoredRun, merged, same_process
from vramtui.records.export.plain import clean

FILE = "history.sqlite3"
BUSY_FOR = 3.0  # seconds to wait for another program that writes
TRY_AGAIN = 0.02
DAMAGED = ("not a database", "malformed")  # SQLite's words for SQLITE_NOTADB and SQLITE_CORRUPT
VERSION = 2
TABLE = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, started_at REAL NOT NULL, ended_at REAL, host TEXT NOT NULL,
    gpu_name TEXT NOT NULL, preset TEXT NOT NULL, method TEXT NOT NULL, predicted INTEGER, observed INTEGER,
    document BLOB NOT NULL, gpu_uuid TEXT NOT NULL, pid INTEGER NOT NULL
)
"""
_INDEXES = (
    "CREATE INDEX runs_by_time ON runs (started_at)",
    "CREATE INDEX runs_by_process ON runs (pid, gpu_uuid, host)",
)
_KEEP = """
INSERT INTO runs
    (key, started_at, ended_at, host, gpu_name, preset, method, predicted, observed, document, gpu_uuid, pid)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET started_at = excluded.started_at, ended_at = excluded.ended_at,
    preset = excluded.preset, method = excluded.method, predicted = excluded.predicted,
    observed = excluded.observed, document = excluded.document
"""
# What is larger than any run is not read.
_RUN = f"id, CASE WHEN length(CAST(document AS BLOB)) <= {HISTORY.size} THEN document END"
_SAME_PID = f"SELECT {_RUN} FROM runs WHERE pid = ? AND gpu_uuid = ? AND host = ? ORDER BY id"  # noqa: S608 - ours
_OF = "WHERE (:preset IS NULL OR preset = :preset) ORDER BY started_at DESC, id DESC LIMIT :limit"
_LIST = f"SELECT {_RUN} FROM runs {_OF}"  # noqa: S608 - ours
_ONE = f"SELECT {_RUN} FROM runs WHERE id = ?"  # noqa: S608 - ours
STEPS = 10_000  # of SQLite's, a millisecond, after which it is seen how long it has taken
NO_ROOM = 1 << 16  # bytes; SQLite needs less than this next to its file
OPENING = 60.0  # seconds


class RunHistory:
    """Keeps runs in the database `path` and finds them again. Every call opens the file for itself, so that no program
    holds it; it and its folder are made when something is kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: tuple[str, ...] = ()

    def keep(self, run: Run) -> None:
        """Keep `run`. What is there already about the same process becomes one entry with it: see `merged`. Raises
        UserError if the database cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Command lines may hold secrets.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except IsADirectoryError:
            pass
        except OSError as error:
            raise self._failure(error.strerror or str(error)) from None
        with self.locked() as database:
            former: list[StoredRun] = []
            for row in database.execute(_SAME_PID, (run.pid, printable(run.gpu_uuid), printable(run.host))).fetchall():
                # A damaged run is reported when it is read; the next job must be kept all the same.
                with suppress(UserError):
                    former.append(self._stored(*row))
            former = [stored for stored in former if same_process(stored.run, run)]
            for stored in former[1:]:
                database.execute("DELETE FROM runs WHERE id = ?", (stored.id,))
            run = reduce(merged, (*(stored.run for stored in former), run))
            try:
                document = msgspec.json.encode(run)
            except UnicodeEncodeError:  # JSON cannot hold a name that is not Unicode
                document = msgspec.json.encode(clean(msgspec.to_builtins(run)))
            key, host, gpu, uuid = map(printable, (run.key, run.host, run.gpu_name, run.gpu_uuid))
            named = (key, run.started_at, run.ended_at, host, gpu, printable(run.preset), printable(run.method))
            sizes = (run.predicted.process, run.observed.process)
            database.execute(_KEEP, (*named, *sizes, document, uuid, run.pid))

    def runs(self, preset: str | None = None, limit: int = 1000) -> tuple[StoredRun, ...]:
        """The latest first; of one preset if it is given. `damaged` then has a sentence for each damaged run. Raises
        UserError if the database cannot be read.
        """
        if not self.path.exists():
            return ()
        with self._open(reads=True) as database:
            rows = database.execute(_LIST, {"preset": preset, "limit": limit}).fetchall()
        runs: list[StoredRun] = []
        damaged: list[str] = []
        for row in rows:
            try:
                runs.append(self._stored(*row))
            except UserError as error:  # noqa: PERF203 - one damaged row must not hide the others
                damaged.append(str(error))
        self.damaged = tuple(damaged)
        return tuple(runs)

    def run(self, number: int) -> StoredRun:
        """One run by its number; raises UserError if there is none, or the database cannot be read."""
        row = None
        if self.path.exists():
            with self._open(reads=True) as database:
                row = database.execute(_ONE, (number,)).fetchone()
        if row is None:
            raise UserError(f"the history holds no run {number}; `vramtui history` lists those that there are")
        return self._stored(*row)

    def forget(self, number: int) -> bool:
        """Remove one run; False when there was none."""
        if not self.path.exists():
            return False
        with self._open() as database, database:
            return database.execute("DELETE FROM runs WHERE id = ?", (number,)).rowcount > 0

    def _stored(self, number: int, document: bytes | None) -> StoredRun:
        reason = f"it is nothing, or larger than {format_bytes(HISTORY.size, 0)}"
        try:
            if document is not None:
                return StoredRun(number, msgspec.json.decode(document, type=Run))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError) as error:
            reason = "it is not text" if isinstance(error, TypeError) else shortened(str(error))
        what = f"run {number} is damaged in {printable(str(self.path))}: {printable(reason)}"
        raise UserError(f"{what}; `vramtui history --forget {number}` removes it")

    @contextmanager
    def locked(self) -> Iterator[sqlite3.Connection]:
        """A connection with a write lock; its changes are kept if it ends without an error. Raises UserError if the
        database cannot be written.
        """
        with self._open() as database, database:
            database.execute("BEGIN IMMEDIATE")
            yield database

    @contextmanager
    def _open(self, *, reads: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            with closing(self._connect(reads=reads)) as database:
                yield database
        except (sqlite3.Error, OverflowError) as error:  # OverflowError: a figure beyond 64 bits
            reason = str(error)
            if reason == "interrupted":
                reason = f"it takes longer than {HISTORY.seconds:.0f} s to look up"
            elif "disk" in reason:  # SQLite reports an I/O error if the file next to its own cannot grow
                with suppress(OSError):
                    if shutil.disk_usage(self.path.parent).free < NO_ROOM:
                        reason = "the disk that holds it is full"
            raise self._failure(reason) from None
        except UnicodeDecodeError:  # SQLite quotes a damaged table, which is then not text
            raise self._failure("database disk image is malformed") from None

    def _connect(self, *, reads: bool) -> sqlite3.Connection:
        """A connection to the newest schema. SQLite waits for others where it writes, yet not where it enters WAL.

        One that only `reads` does without whatever has to be written for it where that cannot be.
        """
        until = time.monotonic() + BUSY_FOR
        while True:
            database = sqlite3.connect(self.path, timeout=BUSY_FOR)
            try:
                self._prepare(database)
            except BaseException as error:
                database.close()
                is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
                if not is_locked or time.monotonic() > until:
                    as_it_is = self._as_it_is() if reads and isinstance(error, sqlite3.OperationalError) else None
                    if as_it_is is None:
                        raise
                    return as_it_is
            else:
                return database
            time.sleep(TRY_AGAIN)

    def _as_it_is(self) -> sqlite3.Connection | None:
        """A connection that writes no second file, for a full disk and one that is read-only; None if
        somebody writes to the file, or it is of another version.
        """
        log = Path(f"{self.path}-wal")
        with suppress(OSError, sqlite3.Error):
            if log.exists() and log.stat().st_size:
                return None
            database = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            with suppress(sqlite3.Error):
                database.execute("PRAGMA trusted_schema = OFF")
                _bound(database, HISTORY.seconds or OPENING)
                if database.execute("PRAGMA user_version").fetchone() == (VERSION,):
                    return database
            database.close()
        return None

    def _prepare(self, database: sqlite3.Connection) -> None:
        _bound(database, OPENING)
        # No function is called that the file itself names: its tables may be somebody else's.
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        version = int(database.execute("PRAGMA user_version").fetchone()[0])
        if version == 0:
            database.execute("BEGIN IMMEDIATE")
            # Another program may have made it while this one waited for its turn.
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
            if version == 0:
                for statement in (TABLE, *_INDEXES, f"PRAGMA user_version = {VERSION}"):
                    database.execute(statement)
                version = VERSION
            database.commit()
        if version != VERSION:
            raise self._failure(f"made by another version (schema {version}, this one knows {VERSION})")
        _bound(database, HISTORY.seconds or OPENING)

    def _failure(self, reason: str) -> UserError:
        if any(words in reason for words in DAMAGED):
            reason += "; with it and its -wal moved elsewhere a new one is begun"
        return UserError(f"the history {printable(str(self.path))} cannot be used: {printable(reason)}")


def _bound(database: sqlite3.Connection, seconds: float) -> None:
    """Let what is asked from now on end after that much of a processor: tables can be views that have no end."""
    until = time.thread_time() + seconds
    database.set_progress_handler(lambda: time.thread_time() > until, STEPS)
