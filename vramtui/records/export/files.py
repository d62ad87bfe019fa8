"""A snapshot as files: one for each format, under one name; existing files are never replaced."""

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from vramtui.core.base.errors import UserError, nearest, os_reason
from vramtui.core.base.text import printable
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import FORMATS
from vramtui.presets.whole_files import fill_beside, give_name, write_new
from vramtui.records.export.html import html_page
from vramtui.records.export.markdown import markdown_report
from vramtui.records.export.ps_json import ps_document
from vramtui.records.export.sanitize import json_text, moment
from vramtui.records.export.tables import csv_table

_FULL = (errno.ENOSPC, errno.EDQUOT)


def save_snapshot(snapshot: Snapshot, folder: Path, formats: Sequence[str] = FORMATS, picture: str = "") -> list[Path]:
    """Write `snapshot` to new files in `folder`, which is made if needed. Return the files in `formats`' order.

    The files are called `vramtui-HOST-YYYYmmdd-HHMMSS.json` and so on, after the sample's own time; where a file of
    any format has that name already, all of them get `-2`, then `-3`. `picture` is the screen as SVG, for the page.

    Raises:
        UserError: a format is not known, or the folder cannot be written.
    """
    texts = {kind: file_text(kind, snapshot, picture) for kind in dict.fromkeys(formats)}
    return write_files(folder, file_stem(snapshot.sample.host.name, snapshot.sample.taken_at), texts, "snapshot")


def write_files(folder: Path, stem: str, texts: Mapping[str, str], what: str) -> list[Path]:
    """Write `texts`, by format, under one name that is free in every format; whole and all of them, or none. `what` is
    their name in an error.

    Raises:
        UserError: the folder cannot be written.
    """
    unfinished = {kind: folder / f".{stem[:100]}.{os.urandom(4).hex()}.{kind}" for kind in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind, text in texts.items():
            fill_beside(unfinished[kind], text.encode())
        for number in count(1):
            name = stem if number == 1 else f"{stem}-{number}"
            if any(os.path.lexists(folder / f"{name}.{kind}") for kind in FORMATS):
                continue
            paths, given = [folder / f"{name}.{kind}" for kind in texts], list[Path]()
            try:
                for scratch, path in zip(unfinished.values(), paths, strict=True):
                    give_name(scratch, path)
                    given.append(path)
            except BaseException as error:
                for path in given:
                    path.unlink(missing_ok=True)
                if not isinstance(error, FileExistsError):  # another program took the name meanwhile
                    raise
            else:
                return given
    except OSError as error:
        where = printable(str(folder))
        if error.errno in _FULL:
            raise UserError(f"the {what} was not written: the disk that holds {where} is full") from None
        reason = printable(error.strerror or str(error))
        reason = f"{reason[:1].lower()}{reason[1:]}"
        raise UserError(f"the {what} was not written to {where}: {reason}; choose another folder") from None
    finally:
        for scratch in unfinished.values():
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
    raise AssertionError("the names never end")


def write_file(path: Path, text: str) -> None:
    """Write a new file.

    Raises:
        UserError: it exists, or cannot be written.
    """
    try:
        write_new(path, text.encode())
    except OSError as error:
        raise UserError(f"{printable(str(path))} cannot be written: {os_reason(error)}") from None


def file_text(kind: str, snapshot: Snapshot, picture: str = "") -> str:
    """Return the snapshot in one of FORMATS; UserError if it is none of them."""
    return text_in(
        kind,
        {
            "json": lambda: json_text(ps_document(snapshot, detailed=True)),
            "csv": lambda: csv_table(snapshot),
            "md": lambda: markdown_report(snapshot),
            "html": lambda: html_page(snapshot, picture),
        },
    )


def text_in(kind: str, makers: Mapping[str, Callable[[], str]]) -> str:
    """Return what the maker of a format gives.

    Raises:
        UserError: the format is none of them.
    """
    if kind not in makers:
        raise UserError(f"{kind!r} is not a format{nearest(kind, FORMATS)}; there are: {', '.join(FORMATS)}")
    return makers[kind]()


def file_stem(host: str, at: float, kind: str = "") -> str:
    """A file's name before its ending: the host, what kind of file it is, and a moment (seconds since the epoch)."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", host).strip(".-")[:64]
    when = moment(at)
    named = f"vramtui-{plain or 'host'}{f'-{kind}' if kind else ''}"
    return f"{named}-{f'{when:%Y%m%d-%H%M%S}' if when else 'undated'}"
