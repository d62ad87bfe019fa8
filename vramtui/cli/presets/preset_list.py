"""`vramtui presets list`: every preset by what was found in its file, of one that has not changed since it was read.

Reading 140 files takes a third of the command, and of ten thousand nearly all of it.
"""

import contextlib
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vramtui import __version__
from vramtui.cli.common.console import print_json, print_table
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.common.paths import cache_dir
from vramtui.cli.groups import WordedCommand
from vramtui.core import schema
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import LISTED_PRESETS
from vramtui.core.base.text import printable
from vramtui.models.named_files import Stamp, stamp_of
from vramtui.models.readers.bounded import read_plain
from vramtui.presets.library import PresetLibrary
from vramtui.records.documents.observed import ListedPreset

presets = typer.Typer(no_args_is_help=True, help="List, show, check and write presets.")
ROOM_FOR_ALL = 110
FILE = "presets.json"  # in the folder of caches
OTHER_FILE = re.compile(rb"\bconfig\s*=\s*[\"']")  # by which a preset names a file that it hangs on


class KnownPresets(msgspec.Struct):
    """The contents of preset files by path, each with the stamp that the file had then.

    Attributes:
        release: of the program that read them; another may read them otherwise.
        schema: the stamps of the sources that say what a preset may be, which change in a checkout of one release.
        presets: by path.
    """

    release: str = ""
    schema: list[Stamp | None] = []
    presets: dict[str, tuple[Stamp, ListedPreset]] = {}


@presets.command("list", cls=WordedCommand)
def list_presets(
    word: Annotated[
        str | None, typer.Argument(metavar="[WORD]", help="Only presets with this word in their name or title.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Every preset, your own before the bundled ones."""
    with exit_on_user_error():
        listed, problems = known_presets(PresetLibrary(), cache_dir() / FILE)
        matching = [one for one in listed if word is None or word.lower() in f"{one.name} {one.title}".lower()]
        if word is not None and not matching:
            raise UserError(f"no preset has {word!r} in its name; `vramtui presets list` names them all")
        if json:
            print_json({"schema": 1, "presets": matching})
        else:
            columns = columns_in(_width())
            print_table(columns, [[_row(preset)[column] for column in columns] for preset in matching])
        for problem in problems:
            sys.stderr.write(f"vramtui: {problem}\n")


def known_presets(library: PresetLibrary, cache: Path) -> tuple[list[ListedPreset], list[str]]:
    """Every preset by key, and a sentence for each file that is none. What is read now is kept for the next time.

    Args:
        library: of the presets.
        cache: the file in which they are kept.
    """
    known = _read_cache(cache)
    listed: list[ListedPreset] = []
    problems: list[str] = []
    entries: dict[str, tuple[Stamp, ListedPreset]] = {}
    for key, path in zip(library.keys(), library.files(), strict=True):
        stamp, at = stamp_of(path), str(path)
        before = known.presets.get(at)
        if before is not None and before[0] == stamp:
            entries[at] = before
            listed.append(before[1])
            continue
        try:
            entry = _read_entry(library, key)
        except UserError as error:
            problems.append(str(error))
            continue
        listed.append(entry)
        if stamp is not None and not _names_a_file(path):
            entries[at] = (stamp, entry)
    if entries != known.presets:
        _write_cache(cache, entries)
    return listed, [*problems, *library.doubles]


def _read_entry(library: PresetLibrary, key: str) -> ListedPreset:
    preset_file = library.get(key)
    return ListedPreset(
        name=key,
        title=preset_file.preset.name,
        path=preset_file.path,
        bundled=preset_file.bundled,
        model_kind=_kind(preset_file.preset.model),
        run_kind=_kind(preset_file.preset.run),
    )


def _names_a_file(path: Path) -> bool:
    """Return whether a preset may change while its file does not."""
    try:
        return OTHER_FILE.search(path.read_bytes()) is not None
    except OSError:
        return True


def _read_cache(cache: Path) -> KnownPresets:
    try:
        known = msgspec.json.decode(read_plain(cache, LISTED_PRESETS), type=KnownPresets)
    except (UserError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return KnownPresets()
    return known if (known.release, known.schema) == (__version__, _schema_stamps()) else KnownPresets()


def _schema_stamps() -> list[Stamp | None]:
    return [stamp_of(path) for path in sorted(Path(schema.__file__).parent.glob("*.py"))]


def _write_cache(cache: Path, presets_by_path: dict[str, tuple[Stamp, ListedPreset]]) -> None:
    from vramtui.presets.whole_files import write_whole

    with contextlib.suppress(UserError, UnicodeEncodeError):  # a folder that cannot be written, a name that is not text
        write_whole(cache, msgspec.json.encode(KnownPresets(__version__, _schema_stamps(), presets_by_path)), FILE)


def columns_in(width: int) -> tuple[str, ...]:
    """The list's columns in a terminal of `width` columns; a narrow one needs its room for the titles."""
    return ("NAME", "MODEL", "RUN", "FROM", "TITLE") if width >= ROOM_FOR_ALL else ("NAME", "RUN", "TITLE")


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else ROOM_FOR_ALL


def _row(preset: ListedPreset) -> dict[str, str]:
    return {
        "NAME": printable(preset.name),
        "MODEL": preset.model_kind,
        "RUN": preset.run_kind,
        "FROM": "bundled" if preset.bundled else "yours",
        "TITLE": printable(preset.title),
    }


def _kind(part: object) -> str:
    """The tag that stands for a Struct's type in a preset."""
    return str(type(part).__struct_config__.tag)  # type: ignore[attr-defined]  # every Struct has it
