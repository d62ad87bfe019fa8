"""Input that is nearly right: what is right with pieces, values or words changed, and some that is nothing at all."""

from contextlib import suppress
from functools import partial
from random import Random

from hypothesis import strategies as st

from tests.fuzz.binary import databases, gguf, pickles, safetensors
from tests.fuzz.changes import with_other_values, with_other_words

PIECES = (
    *(b"", b"\x1b[2J", b"\x9b", b"\n", b"\r", b"\t", b"\0", b",", b'"', b"'''", b"[", b"]", b"{", b"}", b"=", b"#"),
    *(b"-1", b"0", b"nan", b"1e999", b"99999999999999999999", b"null", b"true", b"\\ud800", b"\xff"),
    *("\u202e".encode(), "\u2028".encode(), "\x9b".encode(), "\ud83d\ude00".encode("utf-16", "surrogatepass")),
)
LARGEST = 1 << 16  # bytes
# Changes that keep the grammar of a binary format, by target.
BINARY = {"weights": safetensors, "gguf": gguf, "snapshots": pickles, "history": databases}


def near(name: str, given: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Inputs of the target `name` that are nearly those given: in its own grammar where it has one."""
    piece = st.one_of(st.binary(max_size=12), st.sampled_from(PIECES), st.text(max_size=6).map(_encoded))
    edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 24), piece), max_size=6)
    # By their numbers: Hypothesis spells out what it samples from, which are files here.
    seed, random = st.integers(0, len(given) - 1).map(given.__getitem__), st.randoms(use_true_random=False)
    edited = st.builds(_edited, seed, edits, seed, crossed=st.booleans())
    in_grammar = st.builds(partial(_in_grammar, name), seed, seed, random)
    return st.one_of(in_grammar, edited, in_grammar, st.binary(max_size=400), st.text(max_size=200).map(_encoded))


def _in_grammar(name: str, data: bytes, other: bytes, random: Random) -> bytes:
    change = BINARY.get(name, with_other_values)
    if name in BINARY or random.random() < 0.5:
        with suppress(ValueError, RecursionError):  # some seeds are of no grammar
            return change(data, random)[:LARGEST]
    return with_other_words(data, other, random)[:LARGEST]


def _edited(start: bytes, edits: list[tuple[float, int, bytes]], other: bytes, *, crossed: bool) -> bytes:
    """`start` with pieces exchanged: each edit is a place from 0 to 1, how many bytes go, and what comes."""
    data = start
    for where, length, new in edits:
        at = int(where * len(data))
        data = data[:at] + new + data[at + length :]
    if crossed and edits:
        at = int(edits[0][0] * min(len(data), len(other)))
        data = data[:at] + other[at:]
    return data[:LARGEST]


def _encoded(text: str) -> bytes:
    """Text as UTF-8, lone surrogates too."""
    return text.encode("utf-8", "surrogatepass")
