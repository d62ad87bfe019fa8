"""A check: a question with a time limit, answered with a verdict, what was found and the next step."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from vramtui.core.base.text import printable

Verdict = Literal["ok", "warning", "failed", "unknown"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found.

    Attributes:
        check: the check's id.
        verdict: fine; something is not shown or not as good as it could be; the program cannot work; not known.
        message: what was found, one sentence without a full stop.
        hint: the next step, or empty.
    """

    check: str
    verdict: Verdict
    message: str
    hint: str = ""


class Check(msgspec.Struct, frozen=True):
    """A question: its id, and what answers it."""

    id: str
    ask: Callable[[], Finding]


def ask_all(checks: Sequence[Check], limit: float) -> list[Finding]:
    """Ask all at once; one that gives no answer within `limit` seconds is left to itself."""
    answers: dict[str, Finding] = {}

    def answer(check: Check) -> None:
        try:
            answers[check.id] = check.ask()
        except Exception as error:  # noqa: BLE001 - whatever breaks on a strange machine is one finding, not the end
            answers[check.id] = _broken(check, error)

    threads = [threading.Thread(target=answer, args=(check,), daemon=True) for check in checks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit)
    return [answers.get(check.id, _late(check, limit)) for check in checks]


def _broken(check: Check, error: Exception) -> Finding:
    if isinstance(error, OSError) and error.strerror:
        message = f"not known: {error.strerror.lower()}"
        if error.filename is not None:
            message += f" ({printable(os.fsdecode(error.filename))})"
        return Finding(check=check.id, verdict="unknown", message=message)
    reason = printable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return Finding(check=check.id, verdict="unknown", message="the check itself broke", hint=f"Please report: {reason}")


def _late(check: Check, limit: float) -> Finding:
    return Finding(
        check=check.id,
        verdict="unknown",
        message=f"no answer within {limit:g} s",
        hint="The call hangs; `dmesg` may say more.",
    )
