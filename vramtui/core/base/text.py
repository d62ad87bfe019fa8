"""Untrusted text made safe to show: process names and commands can hold anything."""

import unicodedata

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_REPLACEMENT = "\ufffd"


def printable(text: str) -> str:
    """`text` with every character that a terminal could obey replaced by one it only shows.

    Control characters become their pictures (ESC is ␛), so that a reader still sees what was there; invisible
    formatting, bidirectional overrides and lone surrogates become the replacement character.
    """
    if text.isprintable():
        return text
    return "".join(_safe(character) for character in text)


def _safe(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return _REPLACEMENT if unicodedata.category(character) in _UNSAFE else character
