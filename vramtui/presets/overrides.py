"""`--set KEY=VALUE`: a preset with some of its values changed."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.schema.decoder_models import Model
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import USUAL_RANK, InferRun, ServeRun, TrainRun
from vramtui.presets.importers.flags import spelled_option, whole
from vramtui.presets.job_flags import KINDS, JobFlag, asked_kind, flag_named, flag_with_value, settings_of
from vramtui.presets.model_presets import PROMPT
from vramtui.presets.schema import LONGEST_GUESSED, Fault, dotted, find_faults, schema_at, struct_for

adapted_modules = late("vramtui.models.specs.adapters:adapted_modules")

NOTHING = "none"
# In which a key without its table is looked for, and then in the tables of these.
TABLES = ("run", "parallel", "model")
KIND = ("run", "kind")
LORA = ("run", "lora")
PRESET_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(Preset))


class Override(msgspec.Struct, frozen=True):
    """One thing that somebody sets: a key and its value, as they were written."""

    key: tuple[str, ...]
    text: str
    written: str

    @property
    def flag(self) -> JobFlag | None:
        """The flag that a single word stands for, unless it is a key's last part and comes from `--set`."""
        return flag_named(self.key[0]) if len(self.key) == 1 else None

    @property
    def is_option(self) -> bool:
        """Whether it was written as an option of its own: `--batch-size=8`."""
        return self.written.startswith("--")

    @property
    def label(self) -> str:
        """The override as a sentence about it begins."""
        return printable(self.written.rstrip("=") if self.is_option else f"--set {self.written}")


def apply_overrides(preset: Preset, settings: Iterable[str]) -> Preset:
    """`preset` with each `KEY=VALUE` set, where KEY is dotted as in `run.batch_size` and VALUE is written as in TOML
    (quotes around text and brackets around a list may be left out, 32k is 32,768; `none` takes an optional value away).
    The table may be left out of a key; a flag is `--batch-size=8`, and its name is a key as well: `quant=4bit`.

    A changed run no longer has the figures measured of the old one, and a changed shape no longer the card's
    parameter count, so these are dropped unless they are set too. A changed `run.kind` goes first; it drops the keys
    that the new kind does not have, and mixed precision where the new kind only answers. Adapters whose rank or layers
    nobody says get the usual ones.

    Raises:
        UserError: a setting is not KEY=VALUE, or its key or value is wrong.
    """
    given = [_split(setting) for setting in settings]
    if not given:
        return preset
    tables: dict[str, Any] = msgspec.to_builtins(preset)
    options = {one.flag.name: one.flag for one in given if one.is_option and one.flag is not None}
    kind = asked_kind(options)
    keys: list[tuple[str, ...]] = []
    if kind is not None and kind != (tables.get("run") or {}).get("kind"):
        given.insert(0, Override(KIND, kind, f"--{kind}"))
    for setting in sorted(given, key=_order):
        for key, text in _keys_of(setting, tables):
            if schema_at(key[:1], tables) is None:
                raise UserError(f"{setting.label}: {_unknown(key, tables)}")
            _set(tables, key, text, setting)
            keys.append(key)
            if key == KIND:
                _drop_stale(tables, keys)
    _drop_stale(tables, keys)
    _complete_adapters(tables, preset.model)
    try:
        return msgspec.convert(tables, Preset)
    except msgspec.ValidationError as error:
        faults = find_faults(tables) or [Fault((), str(error))]
    raise UserError(f"{_blamed(faults[0], given)}: {_sentence(faults[0], tables)}")


def _split(setting: str) -> Override:
    name, equals, text = setting.partition("=")
    key = tuple(part.strip() for part in name.split("."))
    if not equals or not all(key):
        raise UserError(f"--set {printable(setting)}: write it as KEY=VALUE, for example run.batch_size=8")
    return Override(key, text.strip(), setting)


def _order(setting: Override) -> int:
    """The kind of run before its keys, and last what is shared over all GPUs, of which others take theirs first."""
    if setting.key in {KIND, KIND[1:]}:
        return 0
    return 2 if setting.flag is not None and setting.flag.name == "gpus" else 1


def _keys_of(setting: Override, tables: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The keys in full that a setting sets, and their values: of `batch_size` where the preset itself has no such key
    the first table that has it, unless it is a flag's name.
    """
    key, text, flag = setting.key, setting.text, setting.flag
    if key == KIND[1:]:
        yield KIND, text
    elif schema_at(key, tables) is not None:
        # `run.lora` is a table; somebody who gives it a number means its rank.
        yield ((*key, "rank"), text) if key == LORA and whole(text) else (key, text)
    elif flag is not None:
        yield from ((tuple(full.split(".")), value) for full, value in settings_of(flag, text, tables))
    else:
        known = next((full for full in _keys(tables) if full[-len(key) :] == key), None)
        option = spelled_option(key[0], text) if known is None and len(key) == 1 else None
        yield (tuple(option[0].split(".")), option[1]) if option is not None else (known or key, text)


def _complete_adapters(tables: dict[str, Any], model: Model) -> None:
    """The usual rank and layers of adapters of which something is said."""
    run = tables.get("run")
    lora = run.get("lora") if isinstance(run, dict) else None
    if isinstance(lora, dict):
        lora.setdefault("rank", USUAL_RANK)
        if adapted_modules(model):
            lora.setdefault("target_modules", list(adapted_modules(model)))


def _sentence(fault: Fault, tables: Mapping[str, Any]) -> str:
    """What is wrong, with the kind of run that has such a key where this one has not."""
    if fault.unknown and fault.key[:1] == ("run",) and len(fault.key) > 1:
        runs = {"train": TrainRun, "infer": InferRun, "serve": ServeRun}
        kind = tables["run"].get("kind")
        having = next((name for name, run in runs.items() if fault.key[1] in run.__struct_fields__), None)
        if having is not None and having != kind:
            plain = fault.sentence.partition(" (did you mean")[0]
            return f"{plain} but of {KINDS[having]}: add --{having}, or kind={having}"
    match fault.key:
        case (str() as table, name) if isinstance(value := (tables.get(table) or {}).get(name), str):
            flag = flag_with_value(value)
            if flag is not None and flag.key != dotted(fault.key):
                meant = f" (did you mean --{flag.name} {value}?); it is one of"
                return fault.sentence.replace("; it is one of", meant, 1)
    return fault.sentence


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
    """A sentence that there is no such key, and which one may be meant."""
    known = {".".join(full[start:]): full for full in _keys(tables) for start in range(len(full))}
    known |= {name: (name,) for name in PRESET_KEYS}
    near = get_close_matches(".".join(key)[:LONGEST_GUESSED], known, n=1)
    meant = f" (did you mean {dotted(known[near[0]])}?)" if near else ""
    return f"{dotted(key)} is not a key of a preset{meant}"


def _set(tables: dict[str, Any], key: tuple[str, ...], text: str, setting: Override) -> None:
    table = tables
    for part in key[:-1]:
        if table.get(part) is None:
            table[part] = {}
        table = table[part]
        if not isinstance(table, dict):
            raise UserError(f"{setting.label}: {part} is no table, it has no keys")
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
    """What `text` may mean: the TOML value it writes, itself, a number such as 32k, or a list's parts."""
    try:
        read = toml.loads(f"value = {text}")
    except (ValueError, RecursionError):
        read = {}
    choices = [read["value"], text] if set(read) == {"value"} else [text]
    number = whole(text)
    if number is not None:
        choices.append(int(number))
    return [*choices, [part.strip(" '\"") for part in text.strip("[]").split(",")]]


def _drop_stale(tables: dict[str, Any], keys: list[tuple[str, ...]]) -> None:
    heads = {key[0] for key in keys}
    if heads & {"model", "run", "parallel"} and "measured" not in heads:
        tables["measured"] = None
    model = tables.get("model")
    if isinstance(model, dict) and "model" in heads and ("model", "parameters") not in keys:
        model.pop("parameters", None)
    run = tables.get("run")
    if isinstance(run, dict) and ("run", "kind") in keys:
        mine = {key[1] for key in keys if key[0] == "run" and len(key) > 1}
        known = _known_to_run(tables)
        if run.get("kind") == "train" and "sequence_length" not in mine:
            _take_room_of_answer(run, model)
        for name in [name for name in run if known and name not in known and name not in mine]:
            del run[name]
        way, _, trained = str(run.get("precision")).partition("-")
        if trained and run.get("kind") != "train" and "precision" not in mine:
            run["precision"] = way


def _take_room_of_answer(run: dict[str, Any], model: object) -> None:
    """Train on all positions of a model whose prompt is shorter for its answer, up to the usual prompt."""
    longest = model.get("max_position_embeddings") if isinstance(model, dict) else None
    prompt, answer = run.get("sequence_length"), run.get("new_tokens")
    if isinstance(prompt, int) and isinstance(answer, int) and prompt + answer == longest:
        run["sequence_length"] = min(longest, PROMPT)


def _known_to_run(tables: Mapping[str, Any]) -> set[str]:
    """The keys of the run's kind; empty when there is no such kind."""
    field = schema_at(("run",), tables)
    types = field.type.types if field is not None and isinstance(field.type, inspect.UnionType) else ()
    for kind in types:
        if isinstance(kind, inspect.StructType) and kind.tag == tables["run"].get("kind"):
            return {part.encode_name for part in kind.fields} | {str(kind.tag_field)}
    return set()


def _blamed(fault: Fault, given: list[Override]) -> str:
    """The setting whose key the fault is about."""
    if len(given) == 1:
        return given[0].label
    for setting in given:
        key = setting.key
        if setting.flag is not None:
            key = tuple(setting.flag.key.split("."))
        if key in {fault.key[: len(key)], fault.key[1 : 1 + len(key)]}:
            return setting.label
    return " ".join(setting.label for setting in given)
