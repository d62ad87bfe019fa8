"""Words of a command line as this program spells them: other libraries' names of an option, and values left out."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from itertools import takewhile
from typing import get_args

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.schema.workload import Offload
from vramtui.presets.job_flags import HEADINGS, SWITCHES, WEIGHTLESS, advice_on, flag_named, own_setting

# Other names of options that every such command has.
_OPTIONS = {
    **dict.fromkeys(("vram", "gpu-memory", "gpu-mem", "gpu-ram", "mem"), "--memory"),
    **dict.fromkeys(("card", "device", "gpu-type", "gpu-name"), "--gpu"),
    "verbose": "--explain",
}
MISSPELT = 0.8  # how alike a word behind an option that needs none is to one that it takes; llama.ccp is 0.9
# Ways to share a training whose number of GPUs may stand in --gpus.
_SHARINGS = {"--fsdp": ("--fsdp={}",), "--ddp": ("--train", "--set", "parallel.data={}")}
# Programs from whose name on the words are a pasted command, unless they are an engine's name.
STARTS = {
    *("vllm", "llama-server", "ollama", "torchrun", "accelerate", "deepspeed", "llamafactory-cli", "axolotl", "tune"),
    *("python", "python3"),
}
SERVE = (["--serve"], ["--backend"], ["--engine"])
# Cards and how many: 2x4090, 2 x H100, H100x8, 4090x2, a100:8.
_COUNTED = re.compile(
    r"(?P<before>\d{1,2})\s*[x×*]\s*(?P<first>\S.*)|(?P<second>\d{3,4}|.*\D.*?)\s*[x×*:]\s*(?P<behind>\d{1,2})"
)


def spell_words(words: Iterable[str], known: Collection[str] = ()) -> list[str]:
    """`words` with each job's flag by its own name: `--dtype bf16` and `--bf16` are `--precision bf16`, `--lora`
    without a rank has the usual one, and a preset's own key is `--set`. What stands behind `--` belongs to another
    program.
    """
    spelt, rest = list[str](), [*words]
    while rest:
        word = rest.pop(0)
        if word == "--":
            spelt += [word, *rest]
            break
        name, equals, value = word.partition("=")
        is_letter = len(name.lstrip("-")) < 2
        if not name.startswith("-") or (is_letter and (name in known or flag_named(name) is None)):
            spelt.append(word)
            continue
        behind = rest[0] if rest and not rest[0].startswith("-") else None
        own, taken = _spelt(name, value if equals else behind, known)
        if taken and not equals:
            rest.pop(0)
        spelt += own or [word]
    alone = next((word for word in spelt if word in _SHARINGS), None)
    if alone is None:
        return spelt
    # `--fsdp --gpus 4`: how the GPUs share a training.
    counts = [word.partition("=")[2] for word in spelt if word.startswith("--gpus=")]
    if not counts:
        raise UserError(f"{alone} takes over how many GPUs: {alone} 4")
    others = (word for word in spelt if word != alone and not word.startswith("--gpus="))
    return [*(part.format(counts[-1]) for part in _SHARINGS[alone]), *others]


def with_each_once(words: list[str], single: Mapping[str, str], *, joins: bool) -> list[str]:
    """`words` with each option of one value once, at the end."""
    left, given, following = list[str](), dict[str, str](), iter(words)
    for word in following:
        name, equals, value = word.partition("=")
        if name not in single or (not equals and (value := next(following, "")) == ""):
            left.append(word)
            continue
        option = single[name]
        if option == "--gpu" and joins and option in given:
            value = f"{given[option]},{value}"
        elif given.get(option, value) != value:
            more = "; `vramtui estimate` compares several GPUs" if option == "--gpu" else ""
            raise UserError(f"{option} is given twice, with {given[option]} and {value}{more}")
        given[option] = value
    return [*left, *(f"{option}={value}" for option, value in given.items())]


def with_command(words: list[str]) -> list[str]:
    """`words` with a command behind `--`, or from a server's or launcher's name on, as one word."""
    if "--" in words:
        at, start = words.index("--"), words.index("--") + 1
    else:
        places = (at for at, word in enumerate(words[:-1]) if word in STARTS and words[at - 1 : at][:1] not in SERVE)
        at = start = next(places, len(words))
    command = words[start:]
    return [*words[:at], *(command if len(command) == 1 else [shlex.join(command)] if command else [])]


def with_one_name(words: list[str]) -> list[str]:
    """`words` with the first of them as one, if they are one known model's name: `qwen3 8b`."""
    name = [*takewhile(lambda word: word[:1] != "-", words)]
    if len(name) < 2:
        return words
    from vramtui.models.stores.resolve import other_spelling  # only for such a name

    joined = " ".join(name)
    return words if other_spelling(joined) is None else [joined, *words[len(name) :]]


def _spelt(name: str, value: str | None, known: Collection[str]) -> tuple[list[str], bool]:
    """One option as it is written here, and whether that took its value; no words where it stays as it is."""
    plain = name.lstrip("-").lower().replace("_", "-")
    if plain in {"gpu", "card", "device"} and value is not None and (counted := _COUNTED.fullmatch(value)):
        groups = counted.groupdict()
        return [f"--gpu={groups['first'] or groups['second']}", f"--gpus={groups['before'] or groups['behind']}"], True
    is_kind = plain in HEADINGS and value is not None and (name not in known or flag_named(value))
    if is_kind and (spelt := _spelt(f"--{value}", None, known)[0]):
        return spelt, True
    if switch := SWITCHES.get(plain):
        return [f"--{switch[0]}={switch[1]}" if switch[1] else f"--{switch[0]}"], (value or "").lower() == "true"
    if flag := flag_named(name):
        if flag.metavar.startswith("["):
            follows = value is not None and flag.is_value(value)
            if value is not None and not follows and (near := nearest(value, flag.words, cutoff=MISSPELT)):
                raise UserError(f"--{flag.name} {value} is not known{near}")
            return [f"--{flag.name}={value if follows else flag.alone}"], follows
        takes = value is not None and bool(flag.metavar)
        written = value if takes else flag.alone
        return [f"--{flag.name}={written}" if written else f"--{flag.name}"], takes
    if name in known or not name.startswith("--"):
        return [], False
    if plain in _OPTIONS:
        return ([_OPTIONS[plain]], False) if value is None else ([f"{_OPTIONS[plain]}={value}"], True)
    if plain in WEIGHTLESS:
        raise UserError(f"{name} changes nothing about memory: leave it out")
    if advice := advice_on(plain):
        raise UserError(f"no such option: {name}; {advice}")
    if plain == "offload" and value not in get_args(Offload):
        raise UserError(f"--offload {value or ''}".rstrip() + f" is not known; {advice_on('offload-to')}")
    setting, takes = own_setting(plain, value)
    return (["--set", setting], takes) if setting else ([], False)
