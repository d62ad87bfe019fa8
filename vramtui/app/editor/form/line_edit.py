"""A value while it is typed into the form: the text and where the caret is."""


class TypingLine:
    """One line of text with a caret.

    Args:
        key: of the field.
        text: to begin with.
        before: what the field said then; None where it was unsaid.
        takes_lines: whether a line end can be typed into it.
    """

    def __init__(self, key: str, text: str, before: str | None, *, takes_lines: bool = False) -> None:
        self.key = key
        self.text = text
        self.before = before
        self.takes_lines = takes_lines
        self.caret = len(text)

    def insert(self, text: str) -> None:
        """Put `text` where the caret is."""
        self.text = self.text[: self.caret] + text + self.text[self.caret :]
        self.caret += len(text)

    def press(self, key: str) -> bool:
        """What an editing key does; False for any other key."""
        moves = {"left": self.caret - 1, "right": self.caret + 1, "home": 0, "end": len(self.text)}
        if key in moves:
            self.caret = max(0, min(len(self.text), moves[key]))
            return True
        cuts = {
            "backspace": (max(0, self.caret - 1), self.caret),
            "delete": (self.caret, self.caret + 1),
            "ctrl+u": (0, self.caret),
            "ctrl+k": (self.caret, len(self.text)),
            "ctrl+w": (self._word_before(), self.caret),
        }
        if key not in cuts:
            return False
        start, stop = cuts[key]
        self.text = self.text[:start] + self.text[stop:]
        self.caret = start
        return True

    def _word_before(self) -> int:
        return self.text[: self.caret].rstrip().rfind(" ") + 1
