"""The keys of a Hugging Face config.json, taken by type."""

from collections.abc import Mapping
from typing import Any

from vramtui.core.base.text import printable
from vramtui.models.readers.bounded import Damaged

Table = dict[str, Any]
_MISSING = object()
# Where models of several parts keep the one that reads words.
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder", "language_model")


class Fields:
    """One table of a config. A key that is null counts as absent, as in transformers.

    Args:
        values: as decoded.
        inside: the name of the table it stands in, for sentences.
    """

    def __init__(self, values: Mapping[str, object], inside: str = "") -> None:
        self.values = values
        self._inside = inside

    def whole(self, key: str, default: object = _MISSING) -> Any:  # noqa: ANN401 - an int, or the default as given
        """A whole number.

        Raises:
            Damaged: there is none and no default, or it is something else.
        """
        value = self._get(key, default)
        if value is not default and (isinstance(value, bool) or not isinstance(value, int)):
            raise self._wrong(key, "a whole number")
        return value

    def number(self, key: str, default: float | None) -> Any:  # noqa: ANN401 - as whole
        """Any number; see `whole`."""
        value = self._get(key, default)
        if value is not default and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise self._wrong(key, "a number")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false; see `whole`."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        """Text; see `whole`."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "text")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts; empty where there is none."""
        value = self._get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
            raise self._wrong(key, "a list of texts")
        return value

    def table(self, key: str) -> "Fields":
        """Another table inside; empty where there is none."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, "a table")
        return Fields(value, f"{self._inside}{key}.")

    def has(self, key: str) -> bool:
        """Whether the key is there and not null, false, 0 or empty."""
        return bool(self.values.get(key))

    def _get(self, key: str, default: object) -> Any:  # noqa: ANN401 - what JSON can hold
        value = self.values.get(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise Damaged(f"has no {self._inside}{key}, which this architecture needs")
        return default

    def _wrong(self, key: str, wanted: str) -> Damaged:
        said = printable(repr(self.values.get(key)))
        return Damaged(f"has {self._inside}{key} = {said[:40]}; {wanted} is needed")
