"""Options and file keys of programs, the key of a preset that each sets, and how its values are spelt: `options.txt`.

A family is a program or library with options or a file format of its own; the names are those of its documentation.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, get_args

from vramtui.core.schema.workload import Engine, Quantization

Spelling: TypeAlias = Callable[[str], str | None]
Keys: TypeAlias = dict[str, tuple[tuple[str, Spelling], ...]]

_NO = {"false", "0", "no", "off", "none", ""}
MOST_WHOLE, MOST_RANKS = 1 << 24, 1 << 20  # the least upper limits of keys that take whole numbers (core/schema)
UNITS = {"k": 1 << 10, "m": 1 << 20}


def whole(value: str) -> str | None:
    """Read a whole number from 1 to MOST_WHOLE; `8k` is 8,192 as in vLLM, 1M is 1,048,576, and 32,768 has a comma."""
    text = re.sub(r"(?<=\d)[_,](?=\d{3}(?:\D|$))|_", "", value.lower())
    if text[-1:] in UNITS and text[:-1].isdecimal() and len(text) <= len(str(MOST_WHOLE)):
        text = str(int(text[:-1]) * UNITS[text[-1]])
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_WHOLE)):
        return None
    return str(int(text)) if 0 < int(text) <= MOST_WHOLE else None


def ranks(value: str) -> str | None:
    """Read a number of ranks, up to MOST_RANKS."""
    count = whole(value)
    return count if count and int(count) <= MOST_RANKS else None


def _between(least: float, most: float, *, excluded: float | None = None) -> Spelling:
    """Spell a number of a range, without `excluded` (as a limit 0 means off)."""

    def spell(value: str) -> str | None:
        try:
            read = float(value)
        except ValueError:
            return None
        return repr(read) if least <= read <= most and read != excluded else None

    return spell


def switched(value: str) -> bool:
    """Return whether a switch is on: `--bf16`, `--bf16 True`, or followed by the next word."""
    return value == "" or value.lower() not in _NO


ALL_LINEAR = '["all-linear"]'
# The linear layers of the usual decoders by their whole names, which peft matches with a regular expression
# (peft/tuners/tuners_utils.py, check_target_module_exists, 0.21: `re.fullmatch`), and the names before them.
_LINEAR = (*(f"self_attn.{letter}_proj" for letter in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down")))
_STEMS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "layers")
_SOME_LAYERS = (0, 1, 12)
_REGEX = re.compile(r"[\\(|\[^$*]")
# An expression may not repeat a group, nor repeat much, as matching could then take for ever.
_REPEATED_GROUP, _REPEATS = re.compile(r"\)\s*[*+{]"), re.compile(r"[*+{]")
_LONGEST_REGEX, _MOST_REPEATS = 400, 5
EVERY_LAYER, MOST_BLOCKS = "999", 128


def _compiled(expression: str) -> "re.Pattern[str] | None":
    many = len(expression) > _LONGEST_REGEX or len(_REPEATS.findall(expression)) > _MOST_REPEATS
    if many or _REPEATED_GROUP.search(expression):
        return None
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError):
        return None


def _matched(expression: str) -> str | None:
    """List the layers that a regular expression matches; None if there are none, or if it is not safe to try."""
    wanted = _compiled(expression)
    if wanted is None:
        return None
    names = [
        layer.rpartition(".")[2]
        for layer in _LINEAR
        if any(wanted.fullmatch(f"{stem}.{number}.{layer}") for stem in _STEMS for number in _SOME_LAYERS)
    ]
    return "[" + ", ".join(f'"{name}"' for name in names) + "]" if names else None


def modules(value: str) -> str | None:
    """List names of layers, separated by commas; `all` and `all-linear` are every linear layer. The layer is the last
    word of a path like `self_attn.q_proj`, which peft compares with the end of each layer's own. A regular expression
    is the layers that it matches.
    """
    if _REGEX.search(value.strip("[]")):
        return _matched(value)
    names = [name.strip("[] '\"").rpartition(".")[2] for name in value.split(",")]
    if {"all", "all-linear", "all_linear"} & {*names}:
        return ALL_LINEAR
    known = [name for name in names if name.replace("_", "").isalnum()]
    return "[" + ", ".join(f'"{name}"' for name in known) + "]" if known else None


def llama_cpp_layers(value: str) -> str | None:
    """Read `-ngl` and `-ncmoe`: a number, or all of them."""
    return EVERY_LAYER if value in {"all", "-1", "-2"} else whole(value) if value.strip("0") else value[:1] or None


def experts(value: str) -> str | None:
    """Count the blocks whose experts `-ot PATTERN=CPU` leaves in host memory; None if it moves anything else."""
    pattern, _, place = value.rpartition("=")
    moved = _compiled(pattern)
    if place != "CPU" or moved is None:
        return None
    names = ("attn_q", "ffn_norm", "ffn_up", "ffn_up_exps", "ffn_down_exps", "ffn_gate_exps")
    moves = [[bool(moved.search(f"blk.{block}.{name}.weight")) for name in names] for block in range(MOST_BLOCKS)]
    blocks = [block for block in moves if any(block)]
    if not blocks or any(block != [False] * 3 + [True] * 3 for block in blocks):
        return None
    return EVERY_LAYER if len(blocks) == MOST_BLOCKS else str(len(blocks))


SPELLINGS: dict[str, Spelling] = {
    "whole": whole, "ranks": ranks, "number": _between(0, 1e12), "positive": _between(0, 1e12, excluded=0),
    "share": _between(0, 1, excluded=1), "portion": _between(0, 1, excluded=0), "modules": modules, "str": str,
    "llama_cpp_layers": llama_cpp_layers, "experts": experts,
}  # fmt: skip


def _spelling(written: str, words: Mapping[str, Mapping[str, str]]) -> Spelling:
    how, _, given = written.partition(" ")
    first, _, second = given.partition(" ")
    match how:
        case "on":
            return lambda value: given if switched(value) else None
        case "is":
            return lambda _value: given
        case "in":
            known = words[first]
            if second:
                known = {name: word + second * (word in {"bf16", "fp16"}) for name, word in known.items()}
            return lambda value: known.get(value.lower())
        case "of" | "exactly":
            pairs = dict(pair.split("=") for pair in given.split())
            return pairs.get if how == "exactly" else lambda value: pairs.get(value.lower())
        case "has":
            return lambda value: (second or match[1]) if (match := re.search(first, value)) else None
    return SPELLINGS[how]


def _read() -> tuple[dict[str, Keys], dict[str, dict[str, str]], dict[str, frozenset[str]], "re.Pattern[str]"]:
    """Read `options.txt`: its tables of options, of words, of what is not modelled, and of what changes no memory."""
    tables: dict[str, Keys] = {}
    words: dict[str, dict[str, str]] = {}
    not_modelled: dict[str, frozenset[str]] = {}
    section, inherited, weightless = "", Keys(), list[str]()
    for line in Path(__file__).with_name("options.txt").read_text(encoding="utf-8").splitlines():
        names, _, value = (part.strip() for part in line.partition("="))
        if line.startswith("["):
            section, _, base = line.strip("[]").partition(" : ")
            if section.startswith("words "):
                words[section[6:]] = dict(words.get(base[6:], {}))
            else:
                inherited = tables.get(base, {})
                tables[section] = dict(inherited)
        elif section.startswith("words ") and value:
            words[section[6:]] |= dict.fromkeys(value.split(), names)
        elif section == "weightless" and not line.startswith("#"):
            weightless += line.split()
        elif section.startswith("names ") and not line.startswith("#"):
            tables[section] |= dict.fromkeys(line.split(), ())
        elif section == "not modelled" and names and not line.startswith("#"):
            not_modelled |= dict.fromkeys(names.split(), frozenset(value.split()))
        elif value and not line.startswith("#"):
            key, _, written = value.partition(" ")
            for name in names.split():
                before = tables[section].get(name, ())
                own = () if before is inherited.get(name) else before
                tables[section][name] = (*own, (key, _spelling(written, words)))
    return tables, words, not_modelled, re.compile("|".join(weightless), re.IGNORECASE)


# Keys that change the memory and are not modelled, with their words; an empty set is any word.
_TABLES, WORDS, NOT_MODELLED, WEIGHTLESS = _read()
DTYPES, OPTIMIZERS, ATTENTIONS, CACHES = (WORDS[name] for name in ("dtypes", "optimizers", "attentions", "caches"))
KEYS = {section[5:]: table for section, table in _TABLES.items() if section.startswith("file ")}
# Options of servers that set no key.
OTHERS = {name[6:]: tuple(_TABLES.pop(name)) for name in [*_TABLES] if name.startswith("names ")}
_OPTIONS = {name: {option: keys[0] for option, keys in table.items()} for name, table in _TABLES.items()}
_ADAPTERS, SHARED = _OPTIONS.pop("adapters"), _OPTIONS.pop("shared")
OWN = {name: key for name, (key, _) in _OPTIONS.pop("own").items()}
FLAGS = {name: table for name, table in _OPTIONS.items() if not name.startswith(("file ", "not ", "weightless"))}
# The families that are servers, and their engine in a preset.
SERVERS: dict[str, Engine] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tgi": "vllm",  # it takes a share of the card for weights and pages of keys and values, as vLLM does
    "llama.cpp": "llama.cpp",
}
MODEL_FLAGS = (
    "model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_path", "base_model", "model_id",
    "model", "m", "hf_repo", "hf", "checkpointer.checkpoint_dir", "init_from", "config", "arch",
)  # fmt: skip
# Options of launchers that count a job's processes.
LAUNCHED = ("nproc_per_node", "num_processes", "num_gpus")
GGUF_QUANTIZATIONS = get_args(Quantization)


def spelled_option(name: str, value: str) -> tuple[str, str] | None:
    """Return the key and value that an option of many programs sets; None for any other option."""
    if name in OWN:
        return OWN[name], value
    option = SHARED.get(name)
    spelt = option[1](value) if option is not None else None
    return (option[0], spelt) if option is not None and spelt is not None else None


def names_of(*keys: str) -> list[str]:
    """The names of scripts' and servers' options that set one of these keys, without those of adapters, whose values
    are spelt differently.
    """
    tables = (SHARED, *(FLAGS[server] for server in SERVERS))
    options = ((name, key) for table in tables for name, (key, _) in table.items() if name not in _ADAPTERS)
    return [name for name, key in (*options, *OWN.items()) if key in keys]


def is_checkpointing_off(name: str, value: str) -> bool:
    """Return whether an option or a file's key switches activation checkpointing off."""
    if name == "disable_gradient_checkpointing":  # LLaMA-Factory's
        return switched(value)
    return SHARED.get(name, ("",))[0] == "run.checkpointing" and not switched(value)


TITLES = {
    "deepspeed": "DeepSpeed", "accelerate": "accelerate", "axolotl": "axolotl", "llamafactory": "LLaMA-Factory",
    "torchtune": "torchtune", "trainer": "Trainer",
}  # fmt: skip
MODEL_KEYS = (
    "model_name_or_path", "base_model", "pretrained_model_name_or_path", "checkpointer.checkpoint_dir", "model",
)  # fmt: skip
FILE_KEYS = ("deepspeed", "deepspeed_config.deepspeed_config_file")
