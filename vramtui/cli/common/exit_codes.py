"""Exit codes, and how an error that is meant for a person leaves the program."""

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vramtui.core.base.errors import SourceFailed, UserError, os_reason
from vramtui.core.base.text import printable

if TYPE_CHECKING:
    from vramtui.core.estimate.fits import Fit

# A word, or a command in backquotes with what stands right behind it.
_WORD = r"`[^`]*`\S*|\S+"
UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
# What is wrong with a path, and no fault of the program's.
UNUSABLE = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EROFS}
NARROWEST = 20  # columns
LONGEST_NAME = 80  # characters of a path in an error
TOO_MANY_FILES = {errno.EMFILE, errno.ENFILE}
NO_MORE_FILES = "too many open files: this shell lets a program open {} at once; raise that with `ulimit -n 1024`"
NO = 1
BAD_INPUT = 2
NO_SOURCE = 3
NOT_KNOWN = 4
INTERRUPTED = 128 + 2  # SIGINT
ROOM = 16  # files that a dashboard or a server opens at once: ten for itself, and what it reads meanwhile
RECORDER_ROOM = 10  # the same of what watches the GPUs without a screen


class ErrorForm:
    """How an error is said: as a sentence, or under --json as a document in one line (schema `error`)."""

    is_json = False


def fail(code: int, sentence: str) -> NoReturn:
    """Say one sentence on standard error and end with `code`."""
    if ErrorForm.is_json:
        import msgspec

        text = "\n".join(map(printable, sentence.split("\n")))
        sys.stderr.write(msgspec.json.encode({"schema": 1, "error": text, "exit": code}).decode() + "\n")
    else:
        say(sentence)
    raise SystemExit(code)


def say(sentence: str) -> None:
    """Print a sentence, which may quote what others wrote, on standard error."""
    sys.stderr.write(for_terminal("\n".join(map(printable, f"vramtui: {sentence}".split("\n")))) + "\n")
    sys.stderr.flush()


def show_progress(text: str = "") -> None:
    """Write over the current line of standard error if that is a terminal; without a text, clear it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def for_terminal(text: str) -> str:
    """`text` for standard error: in a terminal its lines are broken between words, and never inside a command in
    backquotes, which somebody may copy; as it is for a program that reads it.
    """
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return text
    # A terminal that says no width, as a serial line's, breaks lines itself; so does one too narrow for words.
    if width < NARROWEST:
        return text
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(indent if len(line) > width else line)
        for word in re.findall(_WORD, line) if len(line) > width else ():
            if lines[-1].strip() and len(lines[-1]) + len(word) + 1 > width:
                lines.append(f"{indent}  {word}")
            else:
                lines[-1] += f" {word}" if lines[-1].strip() else word
    return "\n".join(lines)


def exit_by(fits: "Iterable[Fit]") -> None:
    """End with code 1 where one of them does not fit, with 4 where that is unknown; show a tight one on stderr."""
    verdicts = tuple(fits)
    if any(fit.verdict == "unknown" for fit in verdicts):
        raise SystemExit(NOT_KNOWN)
    if not all(fit.is_enough for fit in verdicts):
        raise SystemExit(NO)
    for fit in verdicts:
        if fit.verdict == "tight" and not sys.stdout.isatty():  # where the answer goes to a file or a pipe
            say(f"tight: {fit.sentence}")


def require_open_files(least: int = ROOM) -> None:
    """See that as many more files can be opened: Textual waits for ever, or ends in a traceback, where they cannot."""
    opened: list[int] = []
    try:
        while len(opened) < least:
            opened.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno not in TOO_MANY_FILES:
            raise
        raise UserError(NO_MORE_FILES.format(os.sysconf("SC_OPEN_MAX"))) from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def on_end_signals(end: Callable[[], None]) -> None:
    """Call `end` for Ctrl-C, a request to end, and a terminal that is closed, instead of what they do by default."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: end())


@contextmanager
def go_on_unread() -> Iterator[None]:
    """Around an answer whose verdict is the exit code, which a reader that ends early (`| head`) does not change."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _print_no_more()


def _print_no_more() -> None:
    # Python would complain again when it flushes at exit.
    sys.stdout = Path("/dev/null").open("w", encoding="utf-8")  # noqa: SIM115 - it must outlive this function


@contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Turn the errors that carry a sentence into that sentence and an exit code; a closed pipe ends in silence."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # else a full disk would end in a traceback at exit
    except UserError as error:
        fail(error.exit_code, str(error))
    except SourceFailed as error:
        fail(NO_SOURCE, error.sentence)
    except BrokenPipeError:
        _print_no_more()  # the reader has had enough (`| head`)
        raise SystemExit(0) from None
    except OSError as error:
        if error.errno in TOO_MANY_FILES:
            fail(BAD_INPUT, NO_MORE_FILES.format(os.sysconf("SC_OPEN_MAX")))
        if error.errno in UNUSABLE and error.filename is not None:
            fail(BAD_INPUT, f"{str(error.filename)[:LONGEST_NAME]}: {os_reason(error)}")
        if error.errno not in UNWRITABLE:
            raise
        _print_no_more()
        fail(BAD_INPUT, f"the output cannot be written: {error.strerror}")
    except KeyboardInterrupt as stopped:
        if stopped.args:  # what was stopped says where it was
            fail(INTERRUPTED, str(stopped))
        raise SystemExit(INTERRUPTED) from None
