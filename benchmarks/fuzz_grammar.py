"""Changes that keep a format's grammar, for a fuzz target: what is changed is a value, a key, a length or a record, and
what comes of it is a file that a reader gets far into. Changes of bytes, which break the grammar, are in
`fuzz_mutations.py`.
"""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import yaml  # type: ignore[import-untyped]  # carries no types

from benchmarks.fuzz_binary import databases, gguf, pickles, safetensors
from benchmarks.fuzz_mutations import (
    LARGEST,
    NUMBERS,
    SEVERAL,
    VALUES,
    changed_somewhere,
    json_tree,
    mutated,
    with_part_of,
)
from vramtui.presets.importers.flags import FLAGS

Mutator = Callable[[bytes, bytes, Random], bytes]
_TOML_PAIR = re.compile(r"^(\s*)([-\w.\"]+)(\s*=\s*)(.*)$")
_WORD = re.compile(r"\s+|[^\s=]+|=")


def mutated_for(name: str) -> Mutator:
    """What changes inputs of a target; half of the changes are of bytes, pieces and lines."""
    own = MUTATORS.get(name)
    if own is None:
        return mutated

    def either(data: bytes, other: bytes, random: Random) -> bytes:
        if random.random() < 0.3:
            return mutated(data, other, random)
        try:
            return own(data, other, random)[:LARGEST]
        except (ValueError, KeyError, IndexError, struct.error, RecursionError, OverflowError, MemoryError):
            return mutated(data, other, random)  # what was changed before is of the grammar no more

    return either


# --- TOML ---


def toml(data: bytes, other: bytes, random: Random) -> bytes:
    """A preset with keys that it does not have, or with values of the same keys in another preset."""
    lines, others = (text.decode("utf-8", "replace").split("\n") for text in (data, other))
    for _ in range(random.choice(SEVERAL)):
        at, how = random.randrange(len(lines)), random.randrange(6)
        pair = _TOML_PAIR.match(lines[at])
        if how == 0:
            lines.insert(at, f"{random.choice(KEYS)} = {toml_value(random)}")
        elif how == 1:
            lines.insert(at, random.choice(others))
        elif how == 2 and len(lines) > 1:
            del lines[at]
        elif how == 3:
            begin = random.randrange(len(others))
            lines[at:at] = others[begin : begin + random.randrange(1, 12)]
        elif pair is not None:
            same = [found[4] for line in others if (found := _TOML_PAIR.match(line)) and found[2] == pair[2]]
            value = random.choice(same) if same and random.random() < 0.4 else toml_value(random)
            lines[at] = f"{pair[1]}{pair[2]}{pair[3]}{value}"
    return "\n".join(lines).encode()


def toml_value(random: Random) -> str:
    """A value as TOML spells it."""
    value = random.choice(NUMBERS if random.random() < 0.5 else VALUES)
    return _spelled(value, 0)


def _spelled(value: object, depth: int) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(_spelled(one, depth + 1) for one in value) + "]" if depth < 100 else "[]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_spelled(one, depth + 1)}" for key, one in value.items()) + "}"
    return json.dumps(value if isinstance(value, str) else "")


# --- YAML ---


def yaml_tree(data: bytes, other: bytes, random: Random) -> bytes:
    """A job's file with other values and keys, written in either of YAML's styles, sometimes with one value in many
    places.
    """
    try:
        whole, donor = (yaml.safe_load(text) for text in (data, other))
    except (yaml.YAMLError, UnicodeError, AttributeError, TypeError) as error:
        raise ValueError("no YAML any more") from error
    for _ in range(random.choice(SEVERAL)):
        if random.random() < 0.4:
            changed_somewhere(whole, random)
        else:
            with_part_of(whole, donor, random)
    text: str = yaml.safe_dump(whole, default_flow_style=random.choice((True, False, None)), allow_unicode=True)
    if random.random() < 0.15:
        text = "".join((f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 9)}]\n") for i in range(9)) + text
    if random.random() < 0.15:
        text = "base: &base {micro_batch_size: 3}\n<<: [*base, *base]\n" + text
    return text.encode("utf-8", "surrogatepass")


# --- command lines and logs ---


def words(data: bytes, other: bytes, random: Random) -> bytes:
    """Words of a command line or a log left out, doubled, exchanged, with words of another and odd values."""
    pieces, others = (_WORD.findall(text.decode("utf-8", "replace")) for text in (data, other))
    for _ in range(random.choice(SEVERAL)):
        at, how = random.randrange(len(pieces)), random.randrange(6)
        if how == 0 and len(pieces) > 1:
            del pieces[at]
        elif how == 1:
            pieces[at:at] = [" ", random.choice(others), " "]
        elif how == 2:
            begin = random.randrange(len(others))
            pieces[at:at] = others[begin : begin + random.randrange(1, 9)]
        elif how == 3:
            pieces[at:at] = [" ", f"--{random.choice(FLAG_NAMES)}", random.choice(" ="), random.choice(WORDS), " "]
        else:
            pieces[at] = random.choice(WORDS)
    return "".join(pieces).encode("utf-8", "surrogatepass")


WORDS = (
    *("0", "-1", "1e999", "nan", "99999999999999999999", "9" * 400, "True", "auto", "none", "[]", "{}", "''", "'", '"'),
    *(
        "\\",
        "$(id)",
        "../..",
        "/dev/stdin",
        "\x1b[2J",
        "\u202e",
        "\0",
        "(a|a)*b",
        "[1,[2,[3",
        "--",
        "-",
        "=",
        "KiB",
        "GiB",
    ),
    *("1_000", "0x10", "\uff11\uff12", "1.5.5", "é", "a" * 5000),
)
FLAG_NAMES = sorted({name for family in FLAGS.values() for name in family})
KEYS = sorted(
    {
        pair[2]
        for path in (Path(__file__).parents[1] / "presets").rglob("*.toml")
        for line in path.read_text(encoding="utf-8").split("\n")
        if (pair := _TOML_PAIR.match(line))
    }
)
MUTATORS: dict[str, Mutator] = {
    "presets": toml,
    "configs": json_tree,
    "shared": json_tree,
    "job-files": yaml_tree,
    "weights": safetensors,
    "gguf": gguf,
    "snapshots": pickles,
    "history": databases,
    "oom-logs": words,
    "commands": words,
}
