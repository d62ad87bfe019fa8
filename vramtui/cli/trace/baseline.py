"""`vramtui trace --baseline`: a trace beside the peaks that a file has of it."""

from pathlib import Path

from vramtui.api.baseline import entry_of, markdown_table, over_baseline, read_baseline, tolerance_of, write_baseline
from vramtui.core.base.errors import UserError
from vramtui.estimators.traced.process.results import TraceResult


def compared(
    target: str, result: TraceResult, path: Path, fail_over: str, *, update: bool, markdown: Path | None
) -> str | None:
    """What grew by more than `fail_over`, in sentences; None where nothing did.

    Args:
        target: the name of the file's entry, as it was written on the command line.
        result: the trace.
        path: the baseline file.
        fail_over: a share such as `2%`.
        update: write the trace into the file instead of comparing.
        markdown: a file to which a table is added.

    Raises:
        UserError: the file is no baseline, or has no such entry; the share is none.
    """
    tolerance = tolerance_of(fail_over)
    entries = read_baseline(path)
    before, now = entries.get(target), entry_of(result, Path.cwd())
    if markdown is not None:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(markdown_table({target: (before, now)}))
    if update:
        write_baseline(path, entries | {target: now})
        return None
    if before is None:
        raise UserError(f"{path} has no entry for {target}; --update-baseline writes it")
    return over_baseline(before, now, of="allocated", tolerance=tolerance)
