"""YAML and JSON files that a training job is started with: bounded, plain files only, as dotted keys with their values.
Nothing in them is run.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import DEEPEST_KEY, MOST_KEYS, TRAINING
from vramtui.core.base.text import printable
from vramtui.models.readers.bounded import read_plain
from vramtui.presets.importers.command_lines import CommandLine
from vramtui.presets.importers.file_keys import FILE_KEYS, kind_of_file

MOST_FILES = 4
_SUFFIXES = (".yaml", ".yml", ".json")
_OPTIONS = ("config_file", "config", "deepspeed", "deepspeed_config", "ds_config", "fsdp_config")


class JobFile(msgspec.Struct, frozen=True):
    """What a file says.

    Attributes:
        name: of the file, safe to show.
        kind: whose format it has, a key of `file_keys.KEYS`.
        values: by dotted key, spelt as on a command line; text that other files are named by among them.
    """

    name: str
    kind: str
    values: Mapping[str, str]

    @property
    def others(self) -> tuple[str, ...]:
        """The files that it names."""
        return tuple(value for key in FILE_KEYS if (value := self.values.get(key, "")).endswith(_SUFFIXES))


def read_job_file(path: Path, name: str | None = None) -> JobFile:
    """The file at `path`, called `name` in sentences.

    Raises:
        UserError: it cannot be read, is no YAML or JSON with keys, or says nothing that a preset could take.
    """
    title = printable(name if name is not None else str(path))
    tables = _decoded(read_plain(path, TRAINING, title), title, is_json=path.suffix == ".json")
    values = dict(_spelt(tables))
    kind = kind_of_file(values)
    if kind is None:
        raise UserError(f"{title} says nothing that a preset could take: it has no key of a training program")
    return JobFile(title, kind, values)


def files_named(line: CommandLine) -> tuple[str, ...]:
    """The files that a command line names as its configuration, in their order."""
    names = [option.value for option in line.options if option.name in _OPTIONS]
    for before, word in zip(line.words, line.words[1:], strict=False):
        behind = not before.startswith("-") and not word.startswith("-") and "=" not in word
        if behind and (word.endswith((".yaml", ".yml")) or (word.endswith(".json") and before.endswith(".py"))):
            names.append(word)
    return tuple(dict.fromkeys(name for name in names if name.endswith(_SUFFIXES)))[:MOST_FILES]


def _decoded(content: bytes, title: str, *, is_json: bool) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(content) if is_json else _yaml(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise UserError(f"{title} is not UTF-8 text") from None
    except RecursionError:
        raise UserError(f"{title} is nested too deeply") from None
    except ValueError as error:
        reason = " ".join(printable(str(error)).split())[:120]
        raise UserError(f"{title} is no {'JSON' if is_json else 'YAML'}: {reason}") from None
    if not isinstance(decoded, dict):
        raise UserError(f"{title} has no keys: a table of them is needed")
    return decoded


def _yaml(text: str) -> object:
    """What YAML says.

    Raises:
        ValueError: it is none.
    """
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - carries no types; only this loads it
    except ModuleNotFoundError:
        raise ValueError("reading YAML needs PyYAML: pip install 'vramtui-core[yaml]', or vramtui itself") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # as above
        """Plain values only, not too many nor too deep; tables that are merged into others stay small."""

        values = depth = 0

        def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
            self.values, self.depth = self.values + 1, self.depth + 1
            if self.values > (TRAINING.count or 0):
                raise ValueError(f"more than {TRAINING.count:,} values")
            if self.depth > (TRAINING.depth or 0):
                raise ValueError(f"more than {TRAINING.depth} levels")
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            if len(node.value) > MOST_KEYS:
                raise ValueError("too many keys")

    try:
        return yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{place}{getattr(error, 'problem', None) or error}") from None


def _spelt(tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each value by its dotted key; lists of words with commas, other lists only as such."""
    waiting: list[tuple[str, object]] = [("", tables)]
    for _ in range(MOST_KEYS):
        if not waiting:
            return
        key, value = waiting.pop()
        if isinstance(value, Mapping):
            inner = [(f"{key}.{name}".lstrip("."), part) for name, part in value.items()]
            if key.count(".") < DEEPEST_KEY and len(inner) + len(waiting) <= MOST_KEYS:
                waiting.extend(reversed(inner))
        elif (word := _word(value)) is not None:
            yield key, word


def _word(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, float)):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**18 else None
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return ",".join(value)
    return "[…]" if value else None
