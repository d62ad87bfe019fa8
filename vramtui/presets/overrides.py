"""`--set KEY=VALUE`: a preset with some of its values changed."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset
from vramtui.presets.reader import match_faults
from vramtui.presets.schema import LONGEST_GUESSED, Fault, dotted, find_faults, schema_at, struct_for

NOTHING = "none"
# In which a key without its table is looked for, and then in the tables of these.
TABLES = ("run", "parallel", "model")
KIND = ("run", "kind")
PRESET_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(Preset))


def apply_overrides(preset: Preset, settings: Iterable[str]) -> Preset:
    """`preset` with each `KEY=VALUE` set, where KEY is dotted as in `run.batch_size` and VALUE is written as in TOML
    (quotes around text may be left out; `none` takes an optional value away). The table may be left out of a key, and a
    name that the options of programs have is taken for its key: `batch`, `seq_len`.

    A changed run no longer has the figures measured of the old one, and a changed shape no longer the card's
    parameter count, so these are dropped unless they are set too. A changed `run.kind` goes first; it drops the keys
    that the new kind does not have, and mixed precision where the new kind only answers.

    Raises:
        UserError: a setting is not KEY=VALUE, or its key or value is wrong.
    """
    settings = list(settings)
    if not settings:
        return preset
    tables: dict[str, Any] = msgspec.to_builtins(preset)
    keys = []
    for setting in sorted(settings, key=lambda setting: _split(setting)[0] not in {KIND, KIND[1:]}):
        key, text = _full_key(*_split(setting), tables)
        if schema_at(key[:1], tables) is None:
            raise UserError(f"--set {printable(setting)}: {_unknown(key, tables)}")
        _set(tables, key, text, setting)
        keys.append(key)
        if key == KIND:
            _drop_stale(tables, keys)
    _drop_stale(tables, keys)
    try:
        changed = msgspec.convert(tables, Preset)
    except msgspec.ValidationError as error:
        faults = find_faults(tables) or [Fault((), str(error))]
    else:
        faults = match_faults(changed)
        if not faults:
            return changed
    blamed = settings[0] if len(settings) == 1 else _blamed(faults[0], settings)
    raise UserError(f"--set {printable(blamed)}: {faults[0].sentence}")


def _split(setting: str) -> tuple[tuple[str, ...], str]:
    name, equals, text = setting.partition("=")
    key = tuple(part.strip() for part in name.split("."))
    if not equals or not all(key):
        raise UserError(f"--set {printable(setting)}: write it as KEY=VALUE, for example run.batch_size=8")
    return key, text.strip()


def _full_key(key: tuple[str, ...], text: str, tables: dict[str, Any]) -> tuple[tuple[str, ...], str]:
    """`batch_size` as `run.batch_size`: where the preset itself has no such key, the first table that has it, or the
    key that an option of that name stands for.
    """
    if schema_at(key, tables) is not None:
        return key, text
    if key == KIND[1:]:
        return KIND, text
    found = next((full for full in _keys(tables) if full[-len(key) :] == key), None)
    if found is None and len(key) == 1:
        from vramtui.presets.importers.command_values import spelled_option  # noqa: PLC0415 - for a name of no key alone

        option = spelled_option(key[0], text)
        if option is not None:
            return tuple(option[0].split(".")), option[1]
    return found or key, text


def _keys(tables: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Every key of the three tables, and then those of the tables in them."""
    inner = []
    for head in TABLES:
        field = schema_at((head,), tables)
        struct = struct_for(tables.get(head) or {}, field.type) if field is not None else None
        for part in struct.fields if struct is not None else ():
            key = (head, part.encode_name)
            yield key
            below = struct_for((tables.get(head) or {}).get(key[1]) or {}, part.type)
            inner += [(*key, deeper.encode_name) for deeper in (below.fields if below is not None else ())]
    yield from inner


def _unknown(key: tuple[str, ...], tables: Mapping[str, Any]) -> str:
    """That there is no such key, and which one may be meant."""
    known = {".".join(full[start:]): full for full in _keys(tables) for start in range(len(full))}
    known |= {name: (name,) for name in PRESET_KEYS}
    near = get_close_matches(".".join(key)[:LONGEST_GUESSED], known, n=1)
    meant = f" (did you mean {dotted(known[near[0]])}?)" if near else ""
    return f"{dotted(key)} is not a key of a preset{meant}"


def _set(tables: dict[str, Any], key: tuple[str, ...], text: str, setting: str) -> None:
    table = tables
    for part in key[:-1]:
        if table.get(part) is None:
            table[part] = {}
        table = table[part]
        if not isinstance(table, dict):
            raise UserError(f"--set {printable(setting)}: {part} is no table, it has no keys")
    choices = _choices(text)
    table[key[-1]] = choices[0]
    if key[-1] == "kind":
        return
    field = schema_at(key, tables)
    for choice in choices:
        table[key[-1]] = choice
        if not any(fault.key[: len(key)] == key for fault in find_faults(tables)):
            return
    table[key[-1]] = choices[0]
    if text == NOTHING and field is not None and field.default is None:
        table[key[-1]] = None


def _choices(text: str) -> list[Any]:
    """What `text` may mean: the TOML value it writes, or itself."""
    try:
        read = toml.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return [text]
    return [read["value"], text] if set(read) == {"value"} else [text]


def _drop_stale(tables: dict[str, Any], keys: list[tuple[str, ...]]) -> None:
    heads = {key[0] for key in keys}
    if heads & {"model", "run", "parallel", "rule"} and "measured" not in heads:
        tables["measured"] = None
    model = tables.get("model")
    if isinstance(model, dict) and "model" in heads and ("model", "parameters") not in keys:
        model.pop("parameters", None)
    run = tables.get("run")
    if isinstance(run, dict) and ("run", "kind") in keys:
        mine = {key[1] for key in keys if key[0] == "run" and len(key) > 1}
        known = _known_to_run(tables)
        for name in [name for name in run if known and name not in known and name not in mine]:
            del run[name]
        way, _, trained = str(run.get("precision")).partition("-")
        if trained and run.get("kind") != "train" and "precision" not in mine:
            run["precision"] = way


def _known_to_run(tables: Mapping[str, Any]) -> set[str]:
    """The keys of the run's kind; empty when there is no such kind."""
    field = schema_at(("run",), tables)
    types = field.type.types if field is not None and isinstance(field.type, inspect.UnionType) else ()
    for kind in types:
        if isinstance(kind, inspect.StructType) and kind.tag == tables["run"].get("kind"):
            return {part.encode_name for part in kind.fields} | {str(kind.tag_field)}
    return set()


def _blamed(fault: Fault, settings: list[str]) -> str:
    """The setting whose key the fault is about."""
    for setting in settings:
        key, _ = _split(setting)
        if key in {fault.key[: len(key)], fault.key[1 : 1 + len(key)]}:
            return setting
    return " ".join(settings)
