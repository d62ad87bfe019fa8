"""Well-known options of training scripts and servers, and the keys of a preset that each sets.

The table of `job_flags.toml` serves the options of all commands (`--batch-size 8`) and the short keys of `--set`.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.schema import workload as workloads
from vramtui.presets.importers.flags import (
    ATTENTIONS,
    CACHES,
    DTYPES,
    OPTIMIZERS,
    WORDS,
    names_of,
    spelled_option,
    whole,
)

KINDS = {"train": "training", "infer": "inference", "serve": "a server"}
QUANTIZATIONS = {
    **{name.replace("_", "-"): name for name in get_args(workloads.Quantization)},
    **{f"ud-{name.replace('_', '-')}": name for name in get_args(workloads.Quantization) if "q" in name},
    **WORDS["types"],
}
# TensorRT-LLM is accepted as an engine, so that the error names the ones that can be estimated.
ENGINES = {name: name for name in get_args(workloads.Engine)} | {
    "llamacpp": "llama.cpp", "tensorrt-llm": "tensorrt-llm"
}  # fmt: skip
SPELT_OPTIMIZERS = {
    **{name.replace("_", "-"): known for name, known in OPTIMIZERS.items()}, **WORDS["more optimizers"]
}  # fmt: skip
CHECKPOINTINGS = {name: name for name in get_args(workloads.Checkpointing)} | WORDS["checkpointings"]
# Switches of transformers' TrainingArguments: "mixed precision training" (src/transformers/training_args.py, 5.x).
AUTOCAST = ("bf16", "fp16")


class JobFlag(msgspec.Struct, frozen=True, kw_only=True):
    """One option.

    Attributes:
        name: as the option is written, without its dashes.
        help: for `--help`.
        short: its letter.
        metavar: its value; in square brackets if it is optional, empty for a switch.
        key: of a preset; empty if it only sets the kind of run, or if `settings_of` has a rule for it.
        serve_key: the key for a server, if it is another.
        kind: the kind of run that it sets.
        words: values as people write them, in lower case with dashes, and as a preset does.
        alone: the value of the option without one.
        more: other keys that it sets.
        spellings: other names of the option, besides those of scripts and servers.
    """

    name: str
    help: str
    short: str = ""
    metavar: str = ""
    key: str = ""
    serve_key: str = ""
    kind: str = ""
    words: Mapping[str, str] = {}
    alone: str = ""
    more: Mapping[str, str] = {}
    spellings: tuple[str, ...] = ()

    def value_of(self, text: str) -> str:
        """The value as a preset has it; an unknown word stays as it is."""
        return self.words.get(text.lower().replace("_", "-"), text) if text else self.alone

    def is_value(self, text: str) -> bool:
        """Return whether `text` after an option with an optional value is its value."""
        return text.isdecimal() or whole(text) is not None or text.lower().replace("_", "-") in self.words


_WORDS: dict[str, Mapping[str, str]] = {
    "engines": ENGINES, "types": DTYPES, "quantizations": QUANTIZATIONS, "optimizers": SPELT_OPTIMIZERS,
    "checkpointings": CHECKPOINTINGS, "ranks": dict.fromkeys(("lora", "true"), str(workloads.USUAL_RANK)),
    "attentions": {name.replace("_", "-"): known for name, known in ATTENTIONS.items()},
    "caches": {name.replace("_", "-"): known for name, known in CACHES.items()},
}  # fmt: skip


def _read() -> tuple[JobFlag, ...]:
    filled = {"engines": ", ".join(get_args(workloads.Engine)), "rank": str(workloads.USUAL_RANK)}
    flags = []
    for row in toml.loads(Path(__file__).with_name("job_flags.toml").read_text(encoding="utf-8"))["flag"]:
        row |= {name: row[name].format(**filled) for name in ("help", "alone") if name in row}
        flags.append(msgspec.convert(row | {"words": _WORDS.get(row.get("words", ""), {})}, JobFlag))
    return tuple(flags)


FLAGS = _read()
BY_NAME = {
    name.replace("_", "-"): flag
    for flag in FLAGS
    for name in (flag.name, flag.short, *flag.spellings, *(() if flag.more else names_of(flag.key, flag.serve_key)))
    if name
}
# Flags that exclude each other, and what they set.
EXCLUSIVE = (
    dict.fromkeys(("precision", *AUTOCAST), "the precision"),
    dict.fromkeys(("lora", "qlora"), "the adapters"),
    dict.fromkeys(("fsdp", "gpus"), "over how many GPUs weights are sharded"),
)
# Switches of libraries and guesses, and the flag with its value that each means.
SWITCHES: dict[str, tuple[str, str]] = {
    **{name: ("precision", name) for name in ("fp32", "tf32")},
    **{name: (name, "") for name in AUTOCAST},
    **{name: (meant.partition(" ")[0], meant.partition(" ")[2]) for name, meant in WORDS["switches"].items()},
    **{
        name.replace("_", "-"): ("quant", name)
        for name in get_args(workloads.Quantization)
        if name.startswith(("q", "iq", "tq"))
    },
}
# Words before a job's kind (`--mode train`, `--backend vllm`), and options of scripts that change nothing about memory.
HEADINGS, WEIGHTLESS = WORDS["headings"].keys(), WORDS["without memory"].keys()


def advice_on(option: str) -> str:
    """A sentence about an option of other programs; empty for any other."""
    texts = json.loads(Path(__file__).with_name("advice.json").read_text(encoding="utf-8"))
    return next((text for text, names in texts.items() if option in names), "")


# A preset's own keys are options too: of a run, its adapters and its parallelism.
_OWN_FIELDS = [
    (table, field)
    for table, structs in (
        ("parallel.", (workloads.Parallel,)),
        ("run.lora.", (workloads.Lora,)),
        ("run.", (workloads.ServeRun, workloads.InferRun, workloads.TrainRun)),
    )
    for struct in structs
    for field in msgspec.structs.fields(struct)
]
_OWN_KEYS = {field.encode_name: f"{table}{field.encode_name}" for table, field in _OWN_FIELDS}
_SWITCHES = frozenset(field.encode_name for _, field in _OWN_FIELDS if field.type is bool)


def own_setting(name: str, value: str | None) -> tuple[str, bool]:
    """Return `KEY=VALUE` of an option that is a preset's key or a script's name for one, and whether it used its value;
    empty for any other option, or if it lacks its value.
    """
    name = name.lower().replace("-", "_")
    offered = spelled_option(name, "true" if value is None else value)
    if offered is not None:
        return f"{offered[0]}={offered[1]}", value is not None
    key = WORDS["more keys"].get(name) or _OWN_KEYS.get(name)
    is_switch = key is not None and key.rpartition(".")[2] in _SWITCHES
    takes = value is not None and (not is_switch or value.lower() in {"true", "false"})
    if key is None or not (takes or is_switch):
        return "", False
    return f"{key}={value if takes and not is_switch else value.lower() if takes and value else 'true'}", takes


def flag_named(name: str) -> JobFlag | None:
    return BY_NAME.get(name.lstrip("-").lower().replace("_", "-"))


def flag_with_value(text: str) -> JobFlag | None:
    """Return the flag with a required value that knows `text` as one."""
    return next((flag for flag in FLAGS if flag.words and not flag.alone and flag.is_value(text)), None)


def asked_kind(flags: Mapping[str, JobFlag]) -> str | None:
    """Return the kind of run of flags, which are given by their names. Raises UserError if two of them set different
    kinds, precisions or ranks.
    """
    for names in EXCLUSIVE:
        first_flag, *others = [name for name in flags if name in names] or [""]
        if others:
            raise UserError(f"--{first_flag} and --{others[0]} both set {names[first_flag]}: use one of them")
    first: tuple[str, str] | None = None
    for name, flag in flags.items():
        if flag.kind and first is not None and first[1] != flag.kind:
            first_flag, other = KINDS[first[1]], KINDS[flag.kind]
            raise UserError(f"--{first[0]} is for {first_flag} and --{name} for {other}: use one of them")
        first = first or ((name, flag.kind) if flag.kind else None)
    return first[1] if first is not None else None


def settings_of(flag: JobFlag, text: str, tables: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys and values that a flag sets; raises UserError if the job cannot use that number of GPUs."""
    kind = (tables.get("run") or {}).get("kind")
    if flag.name == "gpus":
        # Training: data-parallel ranks with sharded weights, each of as many GPUs as the preset's other ways need.
        parallel = tables.get("parallel") or {}
        gpus = whole(text)
        if gpus is None:
            raise UserError(f"--gpus {text}: write how many GPUs, from 1")
        if kind != "train":
            yield "parallel.tensor", gpus
            return
        others = parallel.get("tensor", 1) * parallel.get("pipeline", 1) * parallel.get("context", 1)
        if int(gpus) % others:
            raise UserError(f"--gpus must be a multiple of {others} (tensor × pipeline × context), not {gpus}")
        yield "parallel.data", str(int(gpus) // others)
        if parallel.get("strategy", "ddp") == "ddp" and int(gpus) > others:
            yield "parallel.strategy", "fsdp"
        return
    if flag.name in AUTOCAST:
        yield "run.precision", f"{flag.name}-mixed" if kind == "train" else flag.name
    if flag.key:
        yield (flag.serve_key if kind == "serve" and flag.serve_key else flag.key), flag.value_of(text)
    yield from flag.more.items()
    if flag.name == "serve" and text.lower() == "ollama":
        yield "run.quantization", "q4_k_m"  # the usual type of Ollama's library
