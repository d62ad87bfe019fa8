"""Tables of cases: one test goes through all of them, and all that fail are reported together."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vramtui.core.base import toml


def rows(test: str, name: str) -> list[Any]:
    """The table `name` of the TOML file beside the file of a test; a row that is a list is a tuple here."""
    document: dict[str, list[Any]] = toml.loads(Path(test).with_suffix(".toml").read_text(encoding="utf-8"))
    return [tuple(row) if isinstance(row, list) else row for row in document[name]]


def for_each(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Call the test with each case, or with its values if it is a tuple, and fail with all that failed."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def looped() -> None:
            failed = []
            for case in cases:
                try:
                    test(*(case if isinstance(case, tuple) else (case,)))
                except Exception as error:  # noqa: BLE001, PERF203 - the others are looked at too
                    failed.append(f"{str(getattr(case, 'key', case))[:200]}: {error!r}")
            assert not failed, f"{len(failed)} failed:\n" + "\n".join(failed)

        looped.__name__, looped.__doc__, looped.__module__ = test.__name__, test.__doc__, test.__module__
        return looped

    return decorate
