"""All presets: the user's own before the bundled ones."""

import os
import re
from codecs import BOM_UTF8
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.file_limits import PRESET
from vramtui.core.base.late import late
from vramtui.core.schema.preset import Match, PresetFile
from vramtui.models.named_files import Stamp, stamp_of
from vramtui.presets import bundled_folder, config_dir

if TYPE_CHECKING:
    from vramtui.core.observation.matcher import Candidate

load_preset = late("vramtui.presets.reader:load_preset")  # no preset is read before the first paint
_MATCH = r"(?ms)^\[match\][^\S\n]*$(.*?)(?=^\[|\Z)"
_LINES_OF_TEXT = ('"""', "'''")  # text of several lines may contain a heading
INDEX = "match.json"  # of the bundled folder: each file's size and `[match]`, which need not be read then


class _File(NamedTuple):
    """A file as it was found; its `stamp` changes with it."""

    path: str
    bundled: bool
    stamp: Stamp | None


class PresetLibrary:
    """Finds presets by their key, the file's stem. Folders are listed once, and files are read when they are needed."""

    def __init__(self, user_folder: Path | None = None, bundled: Path | None = None) -> None:
        self.user_folder = config_dir() / "presets" if user_folder is None else user_folder
        self._bundled = bundled_folder() if bundled is None else bundled
        self._files: dict[str, _File] | None = None
        self._read: dict[str, PresetFile | UserError] = {}
        self._doubles: list[str] = []

    def keys(self) -> tuple[str, ...]:
        """The keys of all files, sorted; no file is read for them."""
        return tuple(self._current_files())

    def __contains__(self, key: object) -> bool:
        return key in self._current_files()

    def files(self) -> tuple[Path, ...]:
        """The files of all keys, in their order."""
        return tuple(Path(file.path) for file in self._current_files().values())

    def get(self, key: str) -> PresetFile:
        """Return the preset with that key; raises UserError if there is none, or its file is broken."""
        if key not in self._current_files():
            raise UserError(f"no preset is called {key!r}{nearest(key, self._current_files())}")
        read = self._load(key)
        if isinstance(read, UserError):
            raise read
        return read

    def bundled(self, key: str) -> PresetFile:
        """Return the bundled preset with that key, even if the user has one of the same name. Raises UserError if there
        is none, or its file is broken.
        """
        path = next((path for path in preset_files(self._bundled) if path.stem == key), None)
        if path is None:
            raise UserError(f"no bundled preset is called {key!r}")
        return PresetFile(key=key, path=str(path), bundled=True, preset=load_preset(path))

    def is_bundled(self, path: Path) -> bool:
        return path.is_relative_to(self._bundled.resolve())

    def candidates(self) -> tuple["Candidate", ...]:
        """The presets that recognise their process. Only `[match]` is read: if the rest of a file is broken, `find`
        returns None when a process matches it.
        """
        from vramtui.core.observation.matcher import Candidate  # noqa: PLC0415 - only needed to watch processes

        candidates: list[Candidate] = []
        index, inside = dict[str, tuple[int, Match | None]](), len(os.fspath(self._bundled)) + 1
        with suppress(OSError, msgspec.DecodeError):
            index = msgspec.json.decode((self._bundled / INDEX).read_bytes(), type=dict[str, tuple[int, Match | None]])
        for key, file in self._current_files().items():
            entry = index.get(file.path[inside:]) if file.bundled else None
            is_current = entry is not None and file.stamp is not None and entry[0] == file.stamp[1]
            match = entry[1] if entry is not None and is_current else self._match_in(key, Path(file.path))
            if match is not None:
                candidates.append(Candidate(key, file.bundled, match))
        return tuple(candidates)

    def _match_in(self, key: str, path: Path) -> Match | None:
        from vramtui.models.readers.bounded import read_plain  # noqa: PLC0415 - no preset is read before the first paint

        with suppress(UserError, ValueError):  # only the table `[match]` of the file is read, if it has one
            text = read_plain(path, PRESET, path.name).removeprefix(BOM_UTF8).decode()
            table = re.search(_MATCH, text)
            if table is None and "match" not in text:
                return None
            if table is not None and not any(ends in text for ends in _LINES_OF_TEXT):
                from vramtui.core.base import toml  # noqa: PLC0415 - the bundled ones are in the index

                return msgspec.convert(toml.loads(table[1]), Match)
        preset_file = self.find(key)  # the whole file has to be read
        return None if preset_file is None else preset_file.preset.match

    def find(self, key: str) -> PresetFile | None:
        """Return the preset with that key; None if there is none, or its file is broken."""
        read = self._load(key) if key in self._current_files() else None
        return None if isinstance(read, UserError) else read

    def all(self) -> tuple[PresetFile, ...]:
        """All presets that could be read, by key; the others are in `problems`."""
        return tuple(read for read in map(self._load, self._current_files()) if isinstance(read, PresetFile))

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each of the user's own files that is not a preset, or whose key another file has."""
        own = [key for key, file in self._current_files().items() if not file.bundled]
        return (*(str(read) for read in map(self._load, own) if isinstance(read, UserError)), *self.doubles)

    @property
    def doubles(self) -> tuple[str, ...]:
        """A sentence for each file whose name another file of the same folder has."""
        self._current_files()
        return tuple(self._doubles)

    def refresh(self) -> bool:
        """List the folders again, and forget changed files; return whether anything changed."""
        if self._files is None:
            return False
        before = self._files
        self._files = None
        after = self._current_files()
        self._read = {key: read for key, read in self._read.items() if before[key] == after.get(key)}
        return before != after

    def _current_files(self) -> dict[str, "_File"]:
        if self._files is None:
            files: dict[str, _File] = {}
            self._doubles = []
            for folder, bundled in ((self.user_folder, False), (self._bundled, True)):
                for name in _names_of_files(folder):
                    key = name.rpartition("/")[2].removesuffix(".toml")
                    first = files.setdefault(key, _File(name, bundled, stamp_of(name)))
                    if first.path != name and first.bundled == bundled:
                        from vramtui.presets.reader import display_path  # noqa: PLC0415 - two files of one name are rare

                        names = [display_path(Path(one)) for one in (name, first.path)]
                        self._doubles.append(f"{names[0]}: {names[1]} has the same name")
            self._files = dict(sorted(files.items()))
        return self._files

    def _load(self, key: str) -> PresetFile | UserError:
        if key not in self._read:
            file = self._current_files()[key]
            try:
                path = Path(file.path)
                preset = load_preset(path)
                self._read[key] = PresetFile(key=key, path=str(path), bundled=file.bundled, preset=preset)
            except UserError as error:
                self._read[key] = error
        return self._read[key]


def preset_files(folder: Path) -> tuple[Path, ...]:
    """The TOML files in and below `folder`, sorted; without hidden ones, and links to folders are not followed."""
    return tuple(map(Path, _names_of_files(folder)))


def _names_of_files(folder: Path) -> list[str]:
    files: list[str] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += (f"{place}/{name}" for name in names if name.endswith(".toml") and not name.startswith("."))
    return sorted(files)
