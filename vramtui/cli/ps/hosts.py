"""Several hosts at once, for `vramtui ps --host …` and `snapshot`: each on a thread of its own, under its name; one
that does not answer holds up no other.
"""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vramtui.cli.common.console import print_document
from vramtui.cli.common.exit_codes import NO_SOURCE
from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.ps.selection import csv_of, print_picked
from vramtui.cli.ps.tables import CLEAR_SCREEN, Selection, print_problems
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.readings import Sample
from vramtui.monitor.job_presets import matcher_of_library
from vramtui.monitor.job_reports import no_jobs
from vramtui.monitor.poller import ReadQueue
from vramtui.monitor.predictor import LazyDefault, Predictor
from vramtui.monitor.session import MonitorSession
from vramtui.presets import PresetLibrary
from vramtui.records.export.ps_json import ps_document
from vramtui.sources.ssh import TOO_MANY

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import Snapshot

FIRST = 40.0  # seconds for all to connect; who takes longer is said not to answer


class HostWatch:
    """One host: its session, and what comes of its reads, which begin at once.

    Attributes:
        jobs: what its jobs tell of themselves.
    """

    def __init__(self, opened: OpenedSource, matcher: Matcher, interval: float, predictor: Predictor) -> None:
        self.jobs = opened.jobs or no_jobs
        self._source = opened.source
        self._session = MonitorSession(jobs=self.jobs, predictor=predictor)
        self._session.recorded_peaks = opened.peaks
        self._session.match_by(matcher)
        self._reads = ReadQueue(opened.source, interval)
        self._reads.begin()

    def answer(self, seconds: float) -> "Snapshot | SourceFailed":
        """Wait up to so many seconds for the snapshot."""
        until = time.monotonic() + seconds
        result = self._reads.next(seconds)
        while result is not None and not isinstance(result, Sample) and time.monotonic() < until:
            if isinstance(result, SourceFailed) and TOO_MANY not in result.message:
                break
            # A read is overdue, or a busy server has thrown the connection away: an answer may come yet.
            result = self._reads.next(until - time.monotonic())
        if isinstance(result, Sample):
            self._session.ingest(result)
            return self._session.snapshot()
        return result if isinstance(result, SourceFailed) else SourceFailed("no answer.")

    def close(self) -> None:
        self._source.close()


def why_not(name: str, failure: SourceFailed) -> str:
    """The sentence that says why a host shows nothing."""
    sentence = failure.sentence
    return sentence if sentence.startswith(name) else f"{name}: {sentence}"


SCHEMA = 1


def show_hosts(
    hosts: Mapping[str, OpenedSource], selection: Selection, *, json: bool, watch: bool, interval: float
) -> None:
    """Print what each host shows, once or again and again.

    Raises:
        SystemExit: some host does not answer (not with `watch`).
    """
    matcher, predictor = matcher_of_library(PresetLibrary()), Predictor(LazyDefault())
    watches = {name: HostWatch(opened, matcher, interval, predictor) for name, opened in hosts.items()}
    try:
        seconds = FIRST
        while True:
            answers = {name: host_watch.answer(seconds) for name, host_watch in watches.items()}
            _print(answers, selection, json=json, watch=watch)
            if not watch:
                break
            seconds = 2 * interval + 1
    finally:
        for host_watch in watches.values():
            host_watch.close()
    if any(isinstance(answer, SourceFailed) for answer in answers.values()):
        raise SystemExit(NO_SOURCE)


def _print(answers: "Mapping[str, Snapshot | SourceFailed]", selection: Selection, *, json: bool, watch: bool) -> None:
    if json:
        print_document(document_of(answers), single=not watch)
    elif selection.as_csv:
        sys.stdout.write(_csv(answers, selection))
    else:
        if watch and sys.stdout.isatty():
            sys.stdout.write(CLEAR_SCREEN)
        for name, answer in answers.items():
            if isinstance(answer, SourceFailed):
                continue
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()
            print_picked(answer, selection)
            print_problems(answer, name)
    sys.stdout.flush()
    for name, answer in answers.items():
        if isinstance(answer, SourceFailed):
            sys.stderr.write(f"vramtui: {why_not(name, answer)}\n")


def document_of(answers: "Mapping[str, Snapshot | SourceFailed]") -> dict[str, Any]:
    """The document of several hosts."""
    documents = (
        {"error": answer.message, "hint": answer.hint} if isinstance(answer, SourceFailed) else ps_document(answer)
        for answer in answers.values()
    )
    return {"schema": SCHEMA, "hosts": [{"target": name, **one} for name, one in zip(answers, documents, strict=True)]}


def _csv(answers: "Mapping[str, Snapshot | SourceFailed]", selection: Selection) -> str:
    """The rows of all hosts, with the host's name in a first column."""
    lines: list[str] = []
    for name, answer in answers.items():
        if not isinstance(answer, SourceFailed):
            heading, *rows = csv_of(answer, selection).splitlines(keepends=True)
            lines += [f"host,{heading}"] if not lines else []
            lines += [f"{name},{row}" for row in rows]
    return "".join(lines)
