"""All fields of a preset as a list with a filter, to go to one by its name."""

from rich.cells import cell_len
from textual.content import Content
from textual.widgets.option_list import Option

from vramtui.app.choosers.chooser import Chooser
from vramtui.app.choosers.ranking import ranked
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN
from vramtui.presets.form.types import FormField, FormGroup, fields_of

WIDTH, KEY, VALUE = 110, 36, 20


class FieldChooser(Chooser):
    """Dismissed with a field's key; None when none was chosen.

    Args:
        groups: the form.
    """

    DEFAULT_CSS = f"FieldChooser > #window {{ width: {WIDTH}; }}"

    def __init__(self, groups: tuple[FormGroup, ...]) -> None:
        super().__init__("Find a field")
        self._fields = [field for field in fields_of(groups).values() if not field.is_new]
        self._places = {field.key: at for at, field in enumerate(self._fields)}

    def fill(self, wanted: str) -> None:
        """List the fields that are called so, then those whose help says it; those that are set first."""
        found = ranked(wanted, self._fields, _text, self._order)
        room = self.room(WIDTH)
        self.list_options((Option(_line(field, room), field.key) for field in found), "no field is called so")

    def _order(self, field: FormField) -> tuple[bool, int]:
        return field.value is None, self._places[field.key]


def _text(field: FormField) -> tuple[str, str]:
    # `lora rank` and `run.lora.rank` find the same.
    return field.key.replace(".", " ").replace("_", " "), f"{field.key} {field.help}"


def _line(field: FormField, room: int) -> Content:
    """Its key, what it is now (dim: by default), and its help."""
    value = field.value if field.value is not None else field.default
    said = printable((UNKNOWN if value is None else value).replace("\n", " "))
    rest = max(0, room - max(KEY, cell_len(field.key) + 1) - VALUE - 1)
    return Content.assemble(
        (f"{printable(field.key):<{KEY - 1}} ", "bold"),
        (f"{fit(said, VALUE)} ", "" if field.value is not None else "$muted"),
        (fit(printable(field.help), rest), "$muted"),
    )
