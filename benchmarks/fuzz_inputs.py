"""Input that is nearly right: seeds with a few pieces or values changed, and some that are nothing at all."""

from hypothesis import strategies as st

from benchmarks.fuzz_mutations import PIECES, edited, encoded, with_other_values


def near(given: tuple[bytes, ...]) -> st.SearchStrategy[bytes]:
    """Those given with pieces replaced, taken out and put in, and crossed with each other; and others."""
    piece = st.one_of(st.binary(max_size=12), st.sampled_from(PIECES), st.text(max_size=6).map(encoded))
    edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 24), piece), max_size=6)
    seed = st.sampled_from(given)
    changed = st.builds(edited, seed, edits, seed, crossed=st.booleans())
    valued = st.builds(with_other_values, seed, st.integers(0, (1 << 32) - 1))
    return st.one_of(changed, changed, changed, valued, st.binary(max_size=400), st.text(max_size=200).map(encoded))
