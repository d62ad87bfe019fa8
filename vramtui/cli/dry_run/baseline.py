"""`vramtui dry-run --baseline`: a result compared with the accepted peaks of a file."""

from pathlib import Path

import msgspec

from vramtui.api.baseline import (
    BaselineEntry,
    entry_of,
    markdown_table,
    over_baseline,
    read_baseline,
    tolerance_of,
    write_baseline,
)
from vramtui.core.base.errors import UserError
from vramtui.estimators.traced.process.results import TraceResult


class BaselineCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted peaks, read before the job runs.

    Attributes:
        target: the name of the file's entry, as it was written on the command line.
        path: the baseline file.
        entries: what it has.
        tolerance: how much more passes, as a fraction.
        update: write the result into the file instead of comparing.
        markdown: a file to which a table is added.
    """

    target: str
    path: Path
    entries: dict[str, BaselineEntry]
    tolerance: float
    update: bool
    markdown: Path | None

    def grown(self, result: TraceResult) -> str | None:
        """What grew by more than is let pass, a line each; None where nothing did.

        Raises:
            UserError: there is no such entry, or a file cannot be written.
        """
        before, now = self.entries.get(self.target), entry_of(result, Path.cwd())
        if self.markdown is not None:
            try:
                with self.markdown.open("a", encoding="utf-8") as file:
                    file.write(markdown_table({self.target: (before, now)}))
            except OSError as error:
                raise UserError(f"{self.markdown} cannot be written: {error.strerror}") from None
        if self.update:
            write_baseline(self.path, self.entries | {self.target: now})
            return None
        if before is None:
            raise UserError(f"{self.path} has no entry for {self.target}; --update-baseline writes it")
        return over_baseline(before, now, of="allocated", tolerance=self.tolerance)


def baseline_check(
    target: str, path: Path | None, fail_over: str, *, update: bool = False, markdown: Path | None = None
) -> BaselineCheck | None:
    """The check that the options ask for; None where they ask for none.

    Raises:
        UserError: the file is no baseline, the share is none, or an option needs `--baseline`.
    """
    if path is None:
        given = {"--fail-over": fail_over, "--update-baseline": update, "--markdown": markdown}
        for option, value in given.items():
            if value:
                raise UserError(f"{option} goes with --baseline FILE, the file with the accepted peaks")
        return None
    tolerance = tolerance_of(fail_over or "0%")
    entries = read_baseline(path)
    return BaselineCheck(
        target=target, path=path, entries=entries, tolerance=tolerance, update=update, markdown=markdown
    )
