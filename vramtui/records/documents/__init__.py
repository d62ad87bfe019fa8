"""Output of commands with `--json`: a type for each document, from which `vramtui.schema` makes its JSON Schema.

In each of them every key is always there, null where something is not known; bytes are integers.
"""

from typing import Any

import msgspec


def like(kind: type[msgspec.Struct], name: str, about: str, **more: Any) -> Any:  # noqa: ANN401 - types as values
    """A type with the fields of another, all of them needed.

    Args:
        kind: the other type.
        name: of the new one.
        about: its docstring.
        more: fields beside those of `kind`, or in place of them.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)} | more
    space = {"__doc__": about, "__module__": __name__}
    return msgspec.defstruct(name, list(fields.items()), frozen=True, kw_only=True, namespace=space)
