"""Every preset there is: the user's own before the bundled ones."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import vramtui
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.observation.matcher import Candidate
from vramtui.core.schema.preset import Match, Preset, PresetFile
from vramtui.presets.named_files import exists, is_folder, is_plain_file, path_named

if TYPE_CHECKING:
    from vramtui.presets.model_stores.hub_ids import HubConfig

# How Hugging Face's ids and Ollama's names are written, where nothing is at that path.
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.toml)(?:[@:][\w.-]+)*|[A-Za-z0-9][\w.-]*:[\w.-]+")
_NET_NAME = re.compile(r"(?:timm/)?[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?")
ALIKE = 0.85  # as like as a name on the Hub has to be to be meant: other models' names are much alike
LONGEST_NAME = 400
_MATCH = re.compile(r"^\[match\][^\S\n]*$(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)


def config_dir() -> Path:
    """Where a person's own presets and settings are kept: `$VRAMTUI_CONFIG_DIR`, or the platform's place."""
    chosen = os.environ.get("VRAMTUI_CONFIG_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_config_path  # noqa: PLC0415 - only where nothing else was said

    return user_config_path("vramtui", appauthor=False)


def is_repository(name: str) -> bool:
    """Whether `name` is written as a model's id is: an owner, a slash and a name, or a name with a tag."""
    return len(name) <= LONGEST_NAME and _REPOSITORY.fullmatch(name) is not None


def bundled_folder() -> Path:
    """The presets that came with the program: inside an installed package, beside it in a work tree."""
    package = Path(vramtui.__file__).parent
    installed = package / "_bundled_presets"
    return installed if installed.is_dir() else package.parent / "presets"


@dataclass(frozen=True)
class _File:
    """A file as it was found; another `stamp` means that it has changed since."""

    path: Path
    bundled: bool
    stamp: tuple[int, int, int] | None


class PresetLibrary:
    """Finds presets by their key, the file's stem. Files are looked for once and read when they are asked for.

    Args:
        user_folder: the person's own presets; `config_dir()/presets` by default.
        bundled: the presets that come with the program.
    """

    def __init__(self, user_folder: Path | None = None, bundled: Path | None = None) -> None:
        self.user_folder = config_dir() / "presets" if user_folder is None else user_folder
        self._bundled = bundled_folder() if bundled is None else bundled
        self._files: dict[str, _File] | None = None
        self._read: dict[str, PresetFile | UserError] = {}
        self._doubles: list[str] = []

    def keys(self) -> tuple[str, ...]:
        """The keys of all files, sorted; none of them is read for this."""
        return tuple(self._found())

    def files(self) -> tuple[Path, ...]:
        """The files of all keys, in their order."""
        return tuple(file.path for file in self._found().values())

    def get(self, name_or_path: str) -> PresetFile:
        """The preset called so, or in the file at that path (anything with a `/`, or ending in `.toml`), which may also
        be a model's own: config.json, safetensors or GGUF; or else the model that a local store has under that name;
        or else the model that the Hub has under that name, where a bundled preset describes it.

        Raises:
            UserError: there is none (the sentence names the nearest), or its file is broken.
        """
        own = None if name_or_path in self._found() else _of_model_file(name_or_path)
        if own is not None:
            return own
        known = None if name_or_path in self._found() else self.known(name_or_path)
        if known is not None:
            return known
        if "/" in name_or_path or os.sep in name_or_path or name_or_path.endswith(".toml"):
            return self._at_path(path_named(name_or_path))
        if name_or_path not in self._found():
            raise UserError(self._unknown(name_or_path))
        read = self._load(name_or_path)
        if isinstance(read, UserError):
            raise read
        return read

    def known(self, name: str) -> PresetFile | None:
        """What `name` on the Hub amounts to by a bundled preset of this very model, or by its config where that is
        known, or a net of torchvision's or timm's of that name; None where none describes it.
        """
        if len(name) > LONGEST_NAME or exists(name):
            return None
        alone = "/" not in name or name.startswith("timm/")
        net = _vision_net(name) if alone else None
        if net is not None:
            return net
        from vramtui.presets.model_stores.hub_ids import known_on_hub, known_without_owner  # noqa: PLC0415 - as above

        return self._of_hub(*(known_without_owner(name) if alone else known_on_hub(name)))

    def by_folder(self, path: str) -> PresetFile | None:
        """The Hub's model that a folder is called after, for one whose files cannot be read; None where none is."""
        from vramtui.presets.model_stores.hub_ids import known_by_folder  # noqa: PLC0415 - as in `_preset`

        return self._of_hub(*known_by_folder(path))

    def _of_hub(self, name: str, found: "str | HubConfig | None") -> PresetFile | None:
        """The model called `name`, by the bundled preset of that key or by its config."""
        if found is None:
            return None
        from vramtui.presets.model_files.as_preset import preset_of_known, preset_of_values  # noqa: PLC0415 - as above

        address = f"https://huggingface.co/{name}"
        if isinstance(found, str):
            path = next(path for path in preset_files(self._bundled) if path.stem == found)
            described = PresetFile(key=found, path=str(path), bundled=True, preset=_preset(path))
            return PresetFile(key=name, path=address, bundled=False, preset=preset_of_known(name, described))
        return PresetFile(key=name, path=address, bundled=False, preset=preset_of_values(name, found.config))

    def from_hub(self, name: str) -> PresetFile:
        """The preset called so, or the model of that name on this machine; or else its config and headers from the
        Hugging Face Hub, over the network.

        Raises:
            UserError: as `get`, or the network fails.
        """
        from vramtui.presets.model_stores.local_models import find_model  # noqa: PLC0415 - as in `_of_model_file`

        if name in self._found() or not is_repository(name) or find_model(name) is not None:
            return self.get(name)
        from vramtui.presets.model_stores.hub import preset_from_hub  # noqa: PLC0415 - only where it is asked for

        address, preset = preset_from_hub(name)
        return PresetFile(key=name, path=address, bundled=False, preset=preset)

    def to_trace(self, name_or_path: str) -> PresetFile:
        """The preset called so; of a model's config the model that transformers builds from it, whose sizes need not be
        known here.

        Raises:
            UserError: as `get`.
        """
        if name_or_path not in self._found():
            from vramtui.presets.model_stores.local_models import find_model  # noqa: PLC0415 - as in `_of_model_file`

            found = find_model(name_or_path)
            path = found.path if found is not None else None
            if path is not None and (path.is_dir() or path.name.endswith(".index.json")):
                path = (path if path.is_dir() else path.parent) / "config.json"
            if found is not None and path is not None and path.suffix == ".json" and path.is_file():
                from vramtui.presets.model_files.as_preset import preset_to_trace, title_of  # noqa: PLC0415 - as above

                preset, key = preset_to_trace(path, found.name), found.name or title_of(path)
                return PresetFile(key=key, path=str(path.absolute()), bundled=False, preset=preset)
        return self.get(name_or_path)

    def candidates(self) -> tuple[Candidate, ...]:
        """The presets that can know their process by themselves. Of the bundled ones, which are known to be good,
        only `[match]` is read.
        """
        found: list[Candidate] = []
        for key, file in self._found().items():
            match = _match_of(file.path) if file.bundled else self._match_of_own(key)
            if match is not None:
                found.append(Candidate(key, file.bundled, match))
        return tuple(found)

    def find(self, key: str) -> PresetFile | None:
        """The preset with that key; None where there is none, or its file is broken."""
        read = self._load(key) if key in self._found() else None
        return None if isinstance(read, UserError) else read

    def _match_of_own(self, key: str) -> Match | None:
        found = self.find(key)
        return found.preset.match if found is not None else None

    def all(self) -> tuple[PresetFile, ...]:
        """Every preset that could be read, by key; a broken one hides no other, it is told of in `problems`."""
        return tuple(read for read in map(self._load, self._found()) if isinstance(read, PresetFile))

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that is no preset, or whose key another file has."""
        broken = (str(read) for read in map(self._load, self._found()) if isinstance(read, UserError))
        return (*broken, *self.doubles)

    @property
    def doubles(self) -> tuple[str, ...]:
        """A sentence for each file whose name another file of the same folder has."""
        self._found()
        return tuple(self._doubles)

    def refresh(self) -> bool:
        """Look at the folders again; what changed is read anew when it is next asked for. True when anything did."""
        if self._files is None:
            return False
        before = self._files
        self._files = None
        after = self._found()
        self._read = {key: read for key, read in self._read.items() if before[key] == after.get(key)}
        return before != after

    def _found(self) -> dict[str, "_File"]:
        if self._files is None:
            found: dict[str, _File] = {}
            self._doubles = []
            for folder, bundled in ((self.user_folder, False), (self._bundled, True)):
                for path in preset_files(folder):
                    first = found.setdefault(path.stem, _File(path, bundled, _stamp(path)))
                    if first.path != path and first.bundled == bundled:
                        from vramtui.presets.reader import shown  # noqa: PLC0415 - as in `_preset`

                        self._doubles.append(f"{shown(path)}: {shown(first.path)} has the same name")
            self._files = dict(sorted(found.items()))
        return self._files

    def _load(self, key: str) -> PresetFile | UserError:
        if key not in self._read:
            file = self._found()[key]
            try:
                preset = _preset(file.path)
                self._read[key] = PresetFile(key=key, path=str(file.path), bundled=file.bundled, preset=preset)
            except UserError as error:
                self._read[key] = error
        return self._read[key]

    def _unknown(self, name: str) -> str:
        """A sentence for a name that nothing here has, with what to do next."""
        from vramtui.presets.model_stores.hub_ids import known_names  # noqa: PLC0415 - as in `_preset`

        if is_repository(name):
            from vramtui.presets.importers.process_offers import nearest_preset  # noqa: PLC0415 - as above
            from vramtui.presets.model_stores.local_models import not_found  # noqa: PLC0415 - as in `_of_model_file`

            alike = nearest_preset(name, self, {"run.kind": "infer"})
            return not_found(name, alike.key if alike is not None else None, nearest(name, known_names(), cutoff=ALIKE))
        path = path_named(name)
        if path.suffix == ".py":
            there = "" if is_plain_file(path) else ", and no such file is here"
            return f"{name} is a script, not a preset{there}; `vramtui trace {name}` runs it without a GPU"
        if is_folder(path):
            return f"the folder {name} holds no config.json, safetensors or GGUF file"
        if is_plain_file(path):
            return f"{name} is no preset (.toml), no config.json, no safetensors or GGUF file"
        guess = nearest(name, (*self._found(), *_net_names(name))) or nearest(name, known_names(), cutoff=ALIKE)
        return f"no preset is called {name!r}{guess}; `vramtui presets list` names them all"

    def _at_path(self, path: Path) -> PresetFile:
        try:
            preset = _preset(path)
        except UserError as error:
            if exists(path):
                raise
            if is_repository(str(path)):
                raise UserError(self._unknown(str(path))) from None
            guess = nearest(path.stem, self._found())
            raise UserError(f"{error}{guess}") from None
        whole = path.resolve()
        return PresetFile(
            key=path.stem, path=str(whole), bundled=whole.is_relative_to(self._bundled.resolve()), preset=preset
        )


def _preset(path: Path) -> Preset:
    from vramtui.presets.reader import load_preset  # noqa: PLC0415 - no preset is read before the first paint

    return load_preset(path)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def preset_files(folder: Path) -> tuple[Path, ...]:
    """The TOML files in and below `folder`, sorted; hidden ones are passed over, links to folders not followed."""
    return tuple(sorted(_walk(folder)))


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = _visible(folders)
        yield from (Path(place, name) for name in _visible(names) if name.endswith(".toml"))


def _visible(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith(".")]


def _match_of(path: Path) -> Match | None:
    """The `[match]` of a file that is known to be a preset."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError:
        return None
    table = _MATCH.search(text)
    if table is None:
        return None
    from vramtui.presets.toml import reader as toml  # noqa: PLC0415 - as in `_preset`

    return msgspec.convert(toml.loads(table[1]), Match)


def _vision_net(name: str) -> PresetFile | None:
    """The net for images that torchvision or timm calls so, answering a batch in fp32; None where none is known."""
    if not _NET_NAME.fullmatch(name):
        return None
    from vramtui.presets.model_files.blueprints.vision import vision_table  # noqa: PLC0415 - as in `_preset`

    table = vision_table(name)
    if table is None:
        return None
    from vramtui.presets.model_files.as_preset import checked_preset  # noqa: PLC0415 - as above

    notes = "A net of torchvision's or timm's, by its name; no file of it was read."
    run = {"kind": "infer", "precision": "fp32"}
    preset = checked_preset(name, {"name": name, "notes": notes, "model": table, "run": run})
    return PresetFile(key=name, path=name, bundled=False, preset=preset)


def _net_names(name: str) -> Iterable[str]:
    """Every net for images that may have been meant: such names have `_` where presets have `-`."""
    if "_" not in name or not _NET_NAME.fullmatch(name):
        return ()
    from vramtui.presets.model_files.blueprints.vision import net_names  # noqa: PLC0415 - as in `_preset`

    return net_names()


def _of_model_file(name: str) -> PresetFile | None:
    """The preset that a model's own file stands for; None where `name` is no such file."""
    from vramtui.presets.model_stores.local_models import find_model  # noqa: PLC0415 - 7 ms, seldom needed

    found = find_model(name)
    if found is None:
        return None
    from vramtui.presets.model_files.as_preset import preset_of, title_of  # noqa: PLC0415 - as above

    # Not resolved: a cache's files are links to blobs, whose names say nothing.
    path = str(found.path.absolute())
    key = found.name or title_of(found.path)
    return PresetFile(key=key, path=path, bundled=False, preset=preset_of(found.path, found.name))
