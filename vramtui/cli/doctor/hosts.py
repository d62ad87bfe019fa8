"""`vramtui doctor --host`: whether other machines answer, what reads their GPUs there, and what stands in the way."""

from collections.abc import Sequence
from functools import partial

from vramtui.cli.common.hosts import OtherHosts, open_hosts
from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.doctor.check import Check, Finding
from vramtui.cli.doctor.driver import driver_words
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.sources.ssh import START_LIMIT

INTERVAL = 1.0
LIMIT = START_LIMIT + 5.0  # seconds: a first connection may start a Python there


def checks(names: Sequence[str]) -> tuple[Check, ...]:
    """One for each host; all connect at once.

    Raises:
        UserError: a name that no host has, or an unknown group.
    """
    opened = open_hosts(OtherHosts(names), INTERVAL)
    return tuple(Check(name, partial(_look, name, one)) for name, one in opened.items())


def _look(name: str, opened: OpenedSource) -> Finding:
    try:
        sample = opened.source.read()
    except SourceFailed as failure:
        message = printable(failure.message).removeprefix(f"{name}: ").rstrip(".")
        return Finding(check=name, verdict="failed", message=message, hint=failure.hint)
    finally:
        opened.source.close()
    if not sample.gpus:
        return Finding(check=name, verdict="warning", message="it answers, and lists no GPU")
    summary = f"{driver_words(sample)}, read by {sample.source}"
    if sample.problems:
        first = sample.problems[0]
        hint = f"{printable(first.message)} {first.hint}".strip()
        return Finding(check=name, verdict="warning", message=summary, hint=hint)
    return Finding(check=name, verdict="ok", message=summary)
