"""`vramtui ps --host …` for several hosts: each under its name; one that does not answer holds up no other."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import NO_SOURCE
from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.ps.selection import csv_of, print_picked
from vramtui.cli.ps.tables import CLEAR_SCREEN, Selection
from vramtui.cli.remote.host_watch import FIRST, HostWatch, why_not
from vramtui.core.base.errors import SourceFailed
from vramtui.monitor.job_presets import matcher_of_library
from vramtui.monitor.predictor import LazyDefault, Predictor
from vramtui.presets import PresetLibrary
from vramtui.records.export.ps_json import ps_document

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import Snapshot

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
            answers = {name: one.answer(seconds) for name, one in watches.items()}
            _print(answers, selection, json=json, watch=watch)
            if not watch:
                break
            seconds = 2 * interval + 1
    finally:
        for one in watches.values():
            one.close()
    if any(isinstance(answer, SourceFailed) for answer in answers.values()):
        raise SystemExit(NO_SOURCE)


def _print(answers: "Mapping[str, Snapshot | SourceFailed]", selection: Selection, *, json: bool, watch: bool) -> None:
    if json:
        document = document_of(answers)
        if watch:
            sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        else:
            print_json(document)
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
    sys.stdout.flush()
    for name, answer in answers.items():
        if isinstance(answer, SourceFailed):
            sys.stderr.write(f"vramtui: {why_not(name, answer)}\n")


def document_of(answers: "Mapping[str, Snapshot | SourceFailed]") -> dict[str, Any]:
    """What `--json` prints of several hosts."""
    told = (
        {"error": answer.message, "hint": answer.hint} if isinstance(answer, SourceFailed) else ps_document(answer)
        for answer in answers.values()
    )
    return {"schema": SCHEMA, "hosts": [{"target": name, **one} for name, one in zip(answers, told, strict=True)]}


def _csv(answers: "Mapping[str, Snapshot | SourceFailed]", selection: Selection) -> str:
    """As for one host, with its name in a first column."""
    lines: list[str] = []
    for name, answer in answers.items():
        if not isinstance(answer, SourceFailed):
            heading, *rows = csv_of(answer, selection).splitlines(keepends=True)
            lines += [f"host,{heading}"] if not lines else []
            lines += [f"{name},{row}" for row in rows]
    return "".join(lines)
