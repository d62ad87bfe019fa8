"""Lines of a file that may be compressed and may have been cut off in the middle of being written."""

import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

LONGEST_LINE = 64 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16


class FileLine(NamedTuple):
    """A line without its newline, counted from 1. `whole` is False when the file ends before the line does."""

    number: int
    text: bytes
    whole: bool


class LineTooLong(Exception):
    """A line of more than LONGEST_LINE bytes. Its only argument is the line's number."""


def read_lines(file: IO[bytes]) -> Iterator[FileLine]:
    """Every line of `file`, which may be gzip of one or more members; only the last can be one that is not whole.

    Raises:
        LineTooLong: a line does not end.
        zlib.error: compressed data is damaged, not only cut off.
    """
    rest = bytearray()
    number = 0
    for chunk in _chunks(file):
        searched = len(rest)
        rest += chunk
        begin = 0
        end = rest.find(b"\n", searched)
        while end >= 0:
            number += 1
            yield FileLine(number, bytes(rest[begin:end]), whole=True)
            begin = end + 1
            end = rest.find(b"\n", begin)
        del rest[:begin]
        if len(rest) > LONGEST_LINE:
            raise LineTooLong(number + 1)
    if rest:
        yield FileLine(number + 1, bytes(rest), whole=False)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    first = file.read(len(_GZIP_MAGIC))
    if first == _GZIP_MAGIC:
        yield from _unzipped(file, first)
        return
    yield first
    while chunk := file.read(_CHUNK):
        yield chunk


def _unzipped(file: IO[bytes], data: bytes) -> Iterator[bytes]:
    """What is in the gzip members, up to wherever the last one was cut off."""
    member = zlib.decompressobj(wbits=31)
    while data or (data := file.read(_CHUNK)):
        if member.eof:
            member = zlib.decompressobj(wbits=31)
        # Bounded, so that a small file cannot fill the memory before a line's length is looked at.
        yield member.decompress(data, _CHUNK)
        data = member.unused_data if member.eof else member.unconsumed_tail
    yield member.flush()
