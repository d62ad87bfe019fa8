"""A file written whole or not at all, whatever fails on the way, and a sentence for what stands in it then; a changed
preset among them, never onto a bundled one.
"""

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
    """The new text stands in the file, but it may not survive a power cut."""


def write_whole(path: Path, content: bytes, name: str) -> None:
    """Put `content` where `path` is: into a file beside it, which takes its place once everything is on the disk. The
    folder is made where there is none; permissions stay, and a new file gets the usual ones.

    Args:
        path: no link.
        content: all of it.
        name: what the file is called in sentences.

    Raises:
        UserError: it cannot be written; the sentence says what stands in the file.
        NotDurableError: it was written, and the folder cannot be synced.
    """
    unfinished = path.parent / f".{path.name[:100]}.{os.urandom(4).hex()}.tmp"
    try:
        os.makedirs(path.parent, exist_ok=True)  # noqa: PTH103 - one module to fail in, for the tests
        fill_beside(unfinished, content, path)
        _again(lambda: os.replace(unfinished, path))  # noqa: PTH105 - as above
    except OSError as error:
        left = _remove(unfinished)
        raise UserError(f"{name} cannot be written: {error.strerror}; {_what_stands(path, content)}{left}") from None
    except BaseException:
        _remove(unfinished)
        raise
    _sync_folder(path.parent, name)


def write_new(path: Path, content: bytes) -> None:
    """Make the file at `path`, whole or not at all.

    Raises:
        FileExistsError: there is something of that name.
        OSError: it cannot be written.
    """
    unfinished = path.parent / f".{path.name[:100]}.{os.urandom(4).hex()}.tmp"
    try:
        fill_beside(unfinished, content)
        give_name(unfinished, path)
    finally:
        _remove(unfinished)


def give_name(unfinished: Path, path: Path) -> None:
    """Give a file that is whole the name `path` besides its own; never over another.

    Raises:
        FileExistsError: there is something of that name.
        OSError: it cannot be done.
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
    """Write the new file, with the permissions and owner of the one at `path` where it is to stand in for it,
    and wait for the disk.

    Raises:
        OSError: it cannot be written.
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
            left = memoryview(content)[written:]
            written += _again(partial(os.write, handle, left))
        if former is not None:
            with suppress(PermissionError):  # another's file in a folder of one's own becomes one's own
                os.fchown(handle, former.st_uid, former.st_gid)
            os.fchmod(handle, former.st_mode & 0o7777)
        _again(lambda: os.fsync(handle))
    finally:
        os.close(handle)


def _sync_folder(folder: Path, name: str) -> None:
    """Wait until the disk has the new name too."""
    try:
        handle = _again(lambda: os.open(folder, os.O_RDONLY | os.O_CLOEXEC))
        try:
            _again(lambda: os.fsync(handle))
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            message = f"{name} has the new text, but the disk did not confirm it: {error.strerror}"
            raise NotDurableError(f"{message}; after a power cut the old one may be back") from None


def _again(call: Callable[[], _Answer]) -> _Answer:
    """Call, and call again where a signal came between."""
    for _ in range(_TRIES):
        with suppress(InterruptedError):
            return call()
    return call()


def _remove(unfinished: Path) -> str:
    """Take the file beside away; what to say where that cannot be done."""
    try:
        os.unlink(unfinished)  # noqa: PTH108 - as above
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return f"; {unfinished.name} was left behind"
    return ""


def _what_stands(path: Path, content: bytes) -> str:
    """Which text the file has after a failure: some file systems fail after the fact."""
    try:
        stands = path.read_bytes()
    except FileNotFoundError:
        return "there is no such file still"
    except OSError:
        return "nothing was changed"
    return "the new text stands in it nevertheless" if stands == content else "its old text stands"


def write_preset_text(path: Path, text: str) -> None:
    """Put `text` where `path` is, whole or not at all; a link stays one, and what it leads to is written.

    Raises:
        NotDurableError: the text is in the file, but may not survive a power cut.
        UserError: the text is no preset, the file came with the program, or it cannot be written; the sentence says
            what stands in the file.
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
