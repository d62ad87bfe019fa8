"""`vramtui record --host …` for several hosts: a file for each, at once."""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from vramtui.cli.common.exit_codes import on_end_signals
from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.record.command import open_writer
from vramtui.cli.record.follow import Follower, preset_matchers, recording_session
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation.matching import Matcher
from vramtui.core.observation.readings import Sample
from vramtui.monitor.poller import ReadQueue

COMPRESSED = ".gz"
END_LIMIT = 5.0  # seconds in which a recording is ended


def file_of(file: Path, host: str) -> Path:
    """`day.jsonl.gz` of gpu01 is `day.gpu01.jsonl.gz`."""
    name = host.replace("/", "_")
    first, dot, rest = file.name.partition(".")
    return file.with_name(f"{first}.{name}{dot}{rest}")


class HostRecorder(threading.Thread):
    """Records one host. One that is down is waited for.

    Args:
        host: its name.
        opened: its source.
        file: where to.
        interval: seconds between samples.
        duration: seconds.
        presets: gives what matches its processes. It is read once for all hosts, on one thread.
    """

    def __init__(
        self,
        host: str,
        opened: OpenedSource,
        file: Path,
        interval: float,
        duration: float,
        presets: Callable[[], Matcher],
    ) -> None:
        super().__init__(name=f"record {host}", daemon=True)
        self.problem = ""
        self.samples = 0
        self.file = file
        self._host = host
        self._opened = opened
        self._interval = interval
        self._presets = presets
        self._until = time.monotonic() + duration
        self._reads = ReadQueue(opened.source, interval)
        self._follower: Follower | None = None
        self._is_over = False
        self._said = ""

    def run(self) -> None:
        """Until the time is over, or `finish`."""
        try:
            first = self._first()
            if first is None:
                self.problem = self._said or "it has sent nothing"
                return
            session = recording_session(self._opened, "none", ProbeClient("record"))
            with closing(open_writer(self.file, self._interval, first)) as writer:
                self._follower = Follower(self._reads, session, writer, self, presets=self._presets)
                if not self._is_over:
                    self._follower.follow(first, self._until - time.monotonic())
        except UserError as error:
            self.problem = str(error)

    def finish(self) -> None:
        """End the recording."""
        self._is_over = True
        if self._follower is not None:
            self._follower.end()
        self._reads.wake()

    def took(self) -> None:
        """Count a sample."""
        self.samples += 1
        if self._said:
            self._said = ""
            sys.stderr.write(f"vramtui: {self._host} is answering again\n")

    def trouble(self, sentence: str) -> None:
        """Say what is wrong, unless it was said last; a wait that grows is said once."""
        if self._said.split(" for ", maxsplit=1)[0] != sentence.split(" for ", maxsplit=1)[0]:
            sys.stderr.write(f"vramtui: {sentence}\n")
        self._said = sentence

    def _first(self) -> Sample | None:
        while not self._is_over and time.monotonic() < self._until:
            result = self._reads.next(1.0)
            if isinstance(result, Sample):
                return result
            if isinstance(result, SourceFailed):
                self.trouble(result.sentence)
        return None


def record_hosts(hosts: Mapping[str, OpenedSource], file: Path, interval: float, duration: float) -> None:
    """Record all of them until the time is over or a signal comes.

    Raises:
        UserError: some host could not be recorded.
    """
    presets = preset_matchers()
    recorders = {
        host: HostRecorder(host, opened, file_of(file, host), interval, duration, presets)
        for host, opened in hosts.items()
    }
    taken = next((one.file for one in recorders.values() if one.file.exists()), None)
    if taken is not None:
        raise UserError(f"{taken} exists already; a recording never overwrites")

    def end() -> None:
        for one in recorders.values():
            one.finish()

    on_end_signals(end)
    for one in recorders.values():
        one.start()
    for one in recorders.values():
        while one.is_alive():
            one.join(END_LIMIT)
    for opened in hosts.values():
        opened.source.close()
    _report(recorders)


def _report(recorders: Mapping[str, HostRecorder]) -> None:
    failed = []
    for host, one in recorders.items():
        if one.problem:
            failed.append(f"{host}: {one.problem.removeprefix(f'{host}: ')}")
        else:
            sys.stderr.write(f"{host}: {one.samples} samples: vramtui --replay {one.file}\n")
    if failed:
        raise UserError("\n".join(failed))
