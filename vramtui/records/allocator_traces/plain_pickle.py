"""Pickles that hold nothing but plain values. Any other could run code of its writer's choosing when read."""

import io
import pickle
from typing import NoReturn

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable


class _PlainUnpickler(pickle.Unpickler):
    """Knows no class and no function, so that only containers, numbers, strings and None can come out."""

    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(io.BytesIO(content))
        self._name = name

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        asked = printable(f"{module_name}.{global_name}")
        raise UserError(
            f"{self._name} is not a plain memory snapshot: it asks for {asked}, and a pickle that does may run code; "
            "it was not read further"
        )

    def persistent_load(self, _pid: object, /) -> NoReturn:
        raise UserError(f"{self._name} is not a plain memory snapshot: it refers to objects outside of it")


def load_plain(name: str, content: bytes) -> object:
    """The plain values in a pickle.

    Args:
        name: the file's, for the sentence.
        content: the pickle.

    Raises:
        UserError: it asks for anything but plain values, or it is broken.
    """
    try:
        return _PlainUnpickler(content, name).load()
    except UserError:
        raise
    # A broken pickle can raise nearly any error, from the opcodes as from the containers they act on.
    except Exception:  # noqa: BLE001 - see above
        raise UserError(f"{name} is not a whole pickle") from None
