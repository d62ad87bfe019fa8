"""Writes files whole or not at all, and says what a file holds after a failure; bundled presets are never changed."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from vramtui.core.base.errors import UserError
from vramtui.presets import bundled_folder, config_dir
from vramtui.presets.reader import BYTE_ORDER_MARK, display_path, parse_preset

_Answer = TypeVar("_Answer")
_TRIES = 100
_CANNOT_SYNC_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}
_CANNOT_LINK = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


class NotDurableError(UserError):
    """The new text is in the file, but it may not survive a power cut."""


def write_whole(path: Path, content: bytes, name: str) -> None:
    """Write `content` to a new file in the same folder, which replaces `path` (not a link) once all is on the disk. A
    missing folder is made; permissions stay, and a new file gets the usual ones. Sentences call the file `name`. Raises
    UserError if it cannot be written; the sentence says what the file holds, and NotDurableError if it was written, but
    the folder cannot be synced.
    """
    unfinished = path.parent / f".{path.name[:100]}.{os.urandom(4).hex()}.tmp"
    try:
        os.makedirs(path.parent, exist_ok=True)  # noqa: PTH103 - one module to fail in, for the tests
        fill_beside(unfinished, content, path)
        _again(lambda: os.replace(unfinished, path))  # noqa: PTH105 - as above
    except OSError as error:
        left = _remove(unfinished)
        try:  # some file systems fail after the fact
            holds = "the new text is in it nevertheless" if path.read_bytes() == content else "it has its old text"
        except FileNotFoundError:
            holds = "the file still does not exist"
        except OSError:
            holds = "nothing was changed"
        raise UserError(f"{name} cannot be written: {error.strerror}; {holds}{left}") from None
    except BaseException:
        _remove(unfinished)
        raise
    try:  # wait until the disk has the new name too
        handle = _again(lambda: os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC))
        try:
            _again(lambda: os.fsync(handle))
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            message = f"{name} has the new text, but the disk did not confirm it: {error.strerror}"
            raise NotDurableError(f"{message}; after a power cut the old one may be back") from None


def write_new(path: Path, content: bytes) -> None:
    """Make a file, whole or not at all; raises FileExistsError if the name is taken, else OSError."""
    unfinished = path.parent / f".{path.name[:100]}.{os.urandom(4).hex()}.tmp"
    try:
        fill_beside(unfinished, content)
        give_name(unfinished, path)
    finally:
        _remove(unfinished)


def give_name(unfinished: Path, path: Path) -> None:
    """Give a whole file a second name, `path`; never over another file. Raises FileExistsError if the name is taken,
    and OSError if it cannot be done.
    """
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        # FAT and some network file systems: here a kill between two calls leaves an empty file.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        try:
            write_whole(path, unfinished.read_bytes(), path.name)
        except BaseException:
            _remove(path)
            raise


def fill_beside(unfinished: Path, content: bytes, path: Path | None = None) -> None:
    """Write the new file, with the permissions and owner of the one at `path` that it will replace, and wait for the
    disk. Raises OSError if it cannot be written.
    """
    try:
        former = None if path is None else os.stat(path)  # noqa: PTH116 - as above
    except FileNotFoundError:
        former = None
    mode = 0o666 if former is None else 0o600
    handle = _again(lambda: os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    try:
        written = 0
        while written < len(content):
            written += _again(partial(os.write, handle, memoryview(content)[written:]))
        if former is not None:
            with suppress(PermissionError):  # another user's file in one's own folder becomes one's own
                os.fchown(handle, former.st_uid, former.st_gid)
            os.fchmod(handle, former.st_mode & 0o7777)
        _again(lambda: os.fsync(handle))
    finally:
        os.close(handle)


def _again(call: Callable[[], _Answer]) -> _Answer:
    """Call, and call again if a signal interrupts it."""
    for _ in range(_TRIES):
        with suppress(InterruptedError):
            return call()
    return call()


def _remove(unfinished: Path) -> str:
    """Remove the unfinished file; return what to say if it stays."""
    try:
        os.unlink(unfinished)  # noqa: PTH108 - as above
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return f"; {unfinished.name} was left behind"
    return ""


def write_preset_text(path: Path, text: str) -> None:
    """Write a preset to `path`, whole or not at all; a link stays, and its target is written. Raises NotDurableError if
    the text is in the file, but may not survive a power cut, and UserError if the text is not a preset, the file is
    bundled, or it cannot be written; the sentence says what the file holds.
    """
    parse_preset(text.removeprefix(BYTE_ORDER_MARK), path)
    try:
        whole = path.resolve()
    except (OSError, RuntimeError):
        raise UserError(f"{display_path(path)} cannot be written: it is a link that leads to itself") from None
    if whole.is_relative_to(bundled_folder().resolve()):
        raise UserError(
            f"{display_path(path)} came with the program; save it as {config_dir() / 'presets' / path.name}"
        )
    write_whole(whole, text.encode(), display_path(path))
