"""Inputs for hypothesis: near those that are right, and some that are nothing at all."""

from hypothesis import strategies as st

PIECES = (
    *(b"", b"\x1b[2J", b"\x9b", b"\n", b"\r", b"\t", b"\0", b",", b'"', b"'''", b"[", b"]", b"{", b"}", b"=", b"#"),
    *(b"-1", b"0", b"nan", b"1e999", b"99999999999999999999", b"null", b"true", b"\\ud800", b"\xff"),
    *("\u202e".encode(), "\u2028".encode(), "\x9b".encode(), "\ud83d\ude00".encode("utf-16", "surrogatepass")),
)
MOST = 1 << 16  # bytes


def near(given: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Those given with pieces replaced, taken out and put in, and crossed with each other; and others."""
    piece = st.one_of(st.binary(max_size=12), st.sampled_from(PIECES), st.text(max_size=6).map(encoded))
    edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 24), piece), max_size=6)
    seed = st.sampled_from(given)
    changed = st.builds(edited, seed, edits, seed, crossed=st.booleans())
    return st.one_of(changed, changed, changed, st.binary(max_size=400), st.text(max_size=200).map(encoded))


def edited(start: bytes, edits: list[tuple[float, int, bytes]], other: bytes, *, crossed: bool) -> bytes:
    """`start` with pieces exchanged: each edit is a place from 0 to 1, how many bytes go, and what comes."""
    data = start
    for where, length, new in edits:
        at = int(where * len(data))
        data = data[:at] + new + data[at + length :]
    if crossed and edits:
        at = int(edits[0][0] * min(len(data), len(other)))
        data = data[:at] + other[at:]
    return data[:MOST]


def encoded(text: str) -> bytes:
    """Text as UTF-8, lone surrogates too."""
    return text.encode("utf-8", "surrogatepass")
