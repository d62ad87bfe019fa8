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
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import USUAL_RANK, InferRun, ServeRun, TrainRun
from vramtui.presets.importers.flags import spelled_option, whole
from vramtui.presets.job_flags import KINDS, JobFlag, asked_kind, flag_named, flag_with_value, settings_of
from vramtui.presets.model_presets import PROMPT
from vramtui.presets.schema import LONGEST_GUESSED, Fault, dotted, find_faults, schema_at, struct_for

adapted_modules = late("vramtui.models.specs.decoder:adapted_modules")

NOTHING = "none"
# A key without its table is looked for in these, and then in their tables.
TABLES = ("run", "parallel", "model")
KIND = ("run", "kind")
LORA = ("run", "lora")
PRESET_KEYS = tuple(field.encode_name for field in msgspec.structs.fields(Preset))


class Override(msgspec.Struct, frozen=True):
    """One setting: a key and its value, as they were written."""

    key: tuple[str, ...]
    text: str
    written: str

    @property
    def flag(self) -> JobFlag | None:
        """The flag that a single word names, unless it is a key's last part and comes from `--set`."""
        return flag_named(self.key[0]) if len(self.key) == 1 else None

    @property
    def is_option(self) -> bool:
        """Return whether it was written as an option: `--batch-size=8`."""
        return self.written.startswith("--")

    @property
    def label(self) -> str:
        """The beginning of a sentence about it."""
        return printable(self.written.rstrip("=") if self.is_option else f"--set {self.written}")


def apply_overrides(preset: Preset, settings: Iterable[str]) -> Preset:
    """Return `preset` with each `KEY=VALUE` set. KEY is dotted as in `run.batch_size`, and VALUE is written as in TOML
    (quotes around text and brackets around a list are optional, 32k is 32,768; `none` removes an optional value). A
    key does not need its table; a flag is `--batch-size=8`, and its name is a key as well: `quant=4bit`.

    A changed run loses the figures measured of the old one, and a changed shape the card's parameter count, unless they
    are set too. A changed `run.kind` goes first; it drops the keys that the new kind does not have, and mixed precision
    if the new kind does not train. Adapters without a rank or layers get the usual ones. Raises UserError if a setting
    is not KEY=VALUE, or its key or value is wrong.
    """
    given = []
    for written in settings:
        name, equals, value = written.partition("=")
        key = tuple(part.strip() for part in name.split("."))
        if not equals or not all(key):
            raise UserError(f"--set {printable(written)}: write it as KEY=VALUE, for example run.batch_size=8")
        given.append(Override(key, value.strip(), written))
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
                known = {".".join(full[start:]): full for full in _keys(tables) for start in range(len(full))}
                known |= {name: (name,) for name in PRESET_KEYS}
                near = get_close_matches(".".join(key)[:LONGEST_GUESSED], known, n=1)
                meant = f" (did you mean {dotted(known[near[0]])}?)" if near else ""
                raise UserError(f"{setting.label}: {dotted(key)} is not a key of a preset{meant}")
            _set(tables, key, text, setting)
            keys.append(key)
            if key == KIND:
                _drop_stale(tables, keys)
    _drop_stale(tables, keys)
    run = tables.get("run")
    lora = run.get("lora") if isinstance(run, dict) else None
    if isinstance(lora, dict):
        lora.setdefault("rank", USUAL_RANK)
        if adapted_modules(preset.model):
            lora.setdefault("target_modules", list(adapted_modules(preset.model)))
    try:
        return msgspec.convert(tables, Preset)
    except msgspec.ValidationError as error:
        faults = find_faults(tables) or [Fault((), str(error))]
    where, blamed = faults[0].key, " ".join(setting.label for setting in given)
    for setting in given if len(given) > 1 else ():
        key = setting.key if setting.flag is None else tuple(setting.flag.key.split("."))
        if key in {where[: len(key)], where[1 : 1 + len(key)]}:
            blamed = setting.label
            break
    # If only another kind of run has the key, name that kind.
    fault, sentence = faults[0], faults[0].sentence
    if fault.unknown and fault.key[:1] == ("run",) and len(fault.key) > 1:
        runs = {"train": TrainRun, "infer": InferRun, "serve": ServeRun}
        having = next((name for name, run in runs.items() if fault.key[1] in run.__struct_fields__), None)
        if having is not None and having != tables["run"].get("kind"):
            plain = fault.sentence.partition(" (did you mean")[0]
            sentence = f"{plain} but of {KINDS[having]}: add --{having}, or kind={having}"
    match fault.key:
        case (str() as table, part) if isinstance(wrong := (tables.get(table) or {}).get(part), str):
            flag = flag_with_value(wrong)
            if flag is not None and flag.key != dotted(fault.key):
                plain, _, choices = sentence.partition("; ")
                sentence = f"{plain.partition(' (did you mean')[0]} (did you mean --{flag.name} {wrong}?); {choices}"
    raise UserError(f"{blamed}: {sentence}")


def _order(setting: Override) -> int:
    """The kind of run, then flags that imply others' values, and last the number of GPUs, which other keys divide."""
    if setting.key in {KIND, KIND[1:]}:
        return 0
    flag = setting.flag
    return 2 if flag is None else 3 if flag.name == "gpus" else 1 if flag.more or flag.name == "serve" else 2


def _keys_of(setting: Override, tables: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the full keys that a setting sets, and their values. `batch_size`, which a preset itself does not have, is
    a flag's name, or the first table's that has it.
    """
    key, text, flag = setting.key, setting.text, setting.flag
    if key == KIND[1:]:
        yield KIND, text
    elif schema_at(key, tables) is not None:
        # `run.lora` is a table; a number means its rank.
        yield ((*key, "rank"), text) if key == LORA and whole(text) else (key, text)
    elif flag is not None:
        yield from ((tuple(full.split(".")), value) for full, value in settings_of(flag, text, tables))
    else:
        known = next((full for full in _keys(tables) if full[-len(key) :] == key), None)
        option = spelled_option(key[0], text) if known is None and len(key) == 1 else None
        yield (tuple(option[0].split(".")), option[1]) if option is not None else (known or key, text)


def _keys(tables: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield each key of the three tables, and then those of the tables in them."""
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


def _set(tables: dict[str, Any], key: tuple[str, ...], text: str, setting: Override) -> None:
    table = tables
    for part in key[:-1]:
        if table.get(part) is None:
            table[part] = {}
        table = table[part]
        if not isinstance(table, dict):
            raise UserError(f"{setting.label}: {part} is not a table, it has no keys")
    # The TOML value that the text writes, the text itself, a number such as 32k, or the parts of a list.
    try:
        read = toml.loads(f"value = {text}")
    except (ValueError, RecursionError):
        read = {}
    choices: list[Any] = [read["value"], text] if set(read) == {"value"} else [text]
    if (number := whole(text)) is not None:
        choices.append(int(number))
    choices.append([part.strip(" '\"") for part in text.strip("[]").split(",")])
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
        field = schema_at(("run",), tables)
        kinds = field.type.types if field is not None and isinstance(field.type, inspect.UnionType) else ()
        known: set[str] = set()  # the keys of the run's kind; empty if it is unknown
        for kind in kinds:
            if isinstance(kind, inspect.StructType) and kind.tag == run.get("kind"):
                known = {part.encode_name for part in kind.fields} | {str(kind.tag_field)}
        if run.get("kind") == "train" and "sequence_length" not in mine:
            # Train on all positions, up to the usual prompt, if a prompt was shortened for its answer.
            longest = model.get("max_position_embeddings") if isinstance(model, dict) else None
            prompt, answer = run.get("sequence_length"), run.get("new_tokens")
            if isinstance(prompt, int) and isinstance(answer, int) and prompt + answer == longest:
                run["sequence_length"] = min(longest, PROMPT)
        for name in [name for name in run if known and name not in known and name not in mine]:
            del run[name]
        way, _, trained = str(run.get("precision")).partition("-")
        if trained and run.get("kind") != "train" and "precision" not in mine:
            run["precision"] = way
