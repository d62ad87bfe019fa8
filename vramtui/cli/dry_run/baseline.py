"""`vramtui dry-run --baseline`: a result compared with the accepted peaks of a file."""

from collections.abc import Callable
from pathlib import Path

from vramtui.api.baseline import entry_of, markdown_table, over_baseline, read_baseline, tolerance_of, write_baseline
from vramtui.core.base.errors import UserError
from vramtui.dryrun.result import DryRun

Check = Callable[[DryRun], str | None]


def baseline_check(
    target: str, path: Path | None, fail_over: str, *, update: bool = False, markdown: Path | None = None
) -> Check | None:
    """What tells a result's growth, a line each, and writes it into the file if asked to; None without a file.

    Raises:
        UserError: the file or the share is wrong, or an option needs `--baseline`.
    """
    if path is None:
        given = {"--fail-over": fail_over, "--update-baseline": update, "--markdown": markdown}
        for option, value in given.items():
            if value:
                raise UserError(f"{option} goes with --baseline FILE, the file with the accepted peaks")
        return None
    tolerance = tolerance_of(fail_over or "0%")
    entries = read_baseline(path)

    def growth(result: DryRun) -> str | None:
        before, now = entries.get(target), entry_of(result, Path.cwd())
        if markdown is not None:
            try:
                with markdown.open("a", encoding="utf-8") as file:
                    file.write(markdown_table({target: (before, now)}))
            except OSError as error:
                raise UserError(f"{markdown} cannot be written: {error.strerror}") from None
        if update:
            write_baseline(path, entries | {target: now})
            return None
        if before is None:
            raise UserError(f"{path} has no entry for {target}; --update-baseline writes it")
        return over_baseline(before, now, of="allocated", tolerance=tolerance)

    return growth
