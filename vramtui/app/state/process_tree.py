"""Rows of one process tree: which they are, and each below the process that started it."""

from collections.abc import Sequence

import msgspec

from vramtui.app.state.view import ProcessRow

TREE, UNKNOWN_PARENTS = "tree", "parents not known"
BRANCH = "└ "


def root_of(row: ProcessRow) -> int | None:
    """The pid of the process that started the row's tree: its own where nothing above belongs to it. None where that
    is not known: on a host whose source does not tell parents, and of a process that may not be looked at.
    """
    process = row.process
    if process is None or process.ancestors is None:
        return None
    return process.ancestors.pids[-1] if process.ancestors.pids else process.pid


def root_command(rows: Sequence[ProcessRow]) -> str:
    """The command of the process that started the tree of `rows`; empty where it is not known."""
    for row in rows:
        process = row.process
        if process is not None and process.ancestors is not None:
            above = process.ancestors
            return above.command if above.pids else process.command_or_name or ""
    return ""


def in_tree_order(rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """The rows of one tree, each after the one that started it and with its `depth` below it; else in their order."""
    pids = {row.process.pid for row in rows if row.process is not None}
    below: dict[int | None, list[ProcessRow]] = {}
    for row in rows:
        above = row.process.ancestors.pids if row.process is not None and row.process.ancestors is not None else ()
        below.setdefault(next((pid for pid in above if pid in pids), None), []).append(row)
    found: list[ProcessRow] = []
    _take(below, None, 0, found)
    return found


def _take(below: dict[int | None, list[ProcessRow]], above: int | None, depth: int, rows: list[ProcessRow]) -> None:
    """The rows below one process, with all that is below them."""
    for row in below.pop(above, ()):
        rows.append(msgspec.structs.replace(row, depth=depth) if depth else row)
        _take(below, row.process.pid if row.process is not None else None, depth + 1, rows)
