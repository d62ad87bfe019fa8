"""The words that a pattern looks for: what `[match]` says today for what presets once said as a regular expression."""

import json
import re
from itertools import product
from math import prod

MOST_WORDS = 64  # that one part of a pattern may stand for
_PART = re.compile(r"\(\?(?P<sign>[=!])\.\*(?P<inner>(?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)|\.[*+]|\(\?i\)|\^|\$")
_ATOM = re.compile(
    r"\\b|\\(?P<escaped>[^a-zA-Z0-9])|\[(?P<set>-?[^\]^\\-]+-?)\]"
    r"|\((?:\?:)?(?!\?)(?P<group>(?:[^()]|\([^()]*\))*)\)|(?P<plain>[^\\\[\](){}.*+?|^$])"
)


def words_for_command(pattern: object) -> str:
    """What to write in `[match]` in place of `command = PATTERN`."""
    words = words_of(pattern) if isinstance(pattern, str) else None
    if words is None:
        return 'match.command is no key any more; list words instead: all = [["train", "tune"], ["llama"]]'
    wanted, unwanted = (json.dumps(part, ensure_ascii=False) for part in words)
    return f"match.command is no key any more; write all = {wanted}" + (f", none = {unwanted}" if words[1] else "")


def words_of(pattern: str) -> tuple[list[list[str]], list[str]] | None:
    """For each part of `pattern` the words of which one is wanted, and the words of which none is; None where it
    is more than words.
    """
    wanted: list[list[str]] = []
    unwanted: list[str] = []
    at = start = 0
    pieces: list[tuple[str, str]] = []
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            at += 2 if pattern[at] == "\\" else 1
            continue
        pieces += [("=", pattern[start:at]), (part["sign"] or "=", part["inner"] or "")]
        at = start = part.end()
    pieces = [(sign, piece) for sign, piece in (*pieces, ("=", pattern[start:])) if piece]
    for sign, piece in pieces:
        is_either = "|" in re.sub(r"\([^()]*\)", "", piece) and len(pieces) > 1 and "(?" not in pattern
        words = None if is_either else _alternatives(piece)
        if words is None or "" in words or len(words) > MOST_WORDS:
            return None
        if sign == "=":
            wanted.append(words)
        else:
            unwanted += words
    return (wanted, unwanted) if wanted else None


def _alternatives(piece: str) -> list[str] | None:
    """Every text that `piece` stands for: `llama-?3` is `llama-3` and `llama3`."""
    found: list[str] = []
    run: list[list[str]] = []
    at = 0
    while at < len(piece):
        if piece[at] == "|":
            found += map("".join, product(*run))
            run, at = [], at + 1
            continue
        atom = _ATOM.match(piece, at)
        if atom is None:
            return None
        at = atom.end()
        one = _atom(atom)
        if one is None:
            return None
        if piece[at : at + 1] == "?":
            one, at = [*one, ""], at + 1
        run.append(one)
        if prod(map(len, run)) + len(found) > MOST_WORDS:
            return None
    return list(dict.fromkeys([*found, *map("".join, product(*run))]))


def _atom(atom: re.Match[str]) -> list[str] | None:
    if atom["group"] is not None:
        return _alternatives(atom["group"])
    if atom["set"] is not None:
        return list(atom["set"])
    return [atom["escaped"] or atom["plain"] or ""]
