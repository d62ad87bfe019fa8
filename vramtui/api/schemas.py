"""JSON Schema of the program's documents, made from the types that write and read them."""

from importlib import import_module
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DOCUMENTS = "vramtui.records.documents"
# The module and the types of the documents of each command with `--json`.
COMMANDS = {
    "doctor": ".observed: DoctorDocument SettingsDocument",
    "dry-run": "vramtui.dryrun.command: DryRunDocument",
    "estimate": ".estimates: EstimateDocument",
    "fit": ".fits: FitDocument CardsDocument MapDocument ModelsDocument",
    "history": ".runs: HistoryDocument",
    "oom": ".runs: OomDocument HeldMemoryDocument",
    "pick": ".observed: PickDocument",
    "presets list": ".observed: PresetsDocument",
    "ps": ".observed: PsDocument PsHostsDocument",
}
SCHEMAS = {
    **COMMANDS,
    "error": ".observed: ErrorDocument",
    "preset": "vramtui.core.schema.preset: Preset",
    "sample": "vramtui.core.observation.readings: Sample",
    "ledger": "vramtui.core.estimate.estimate: Ledger",
    "comparison": "vramtui.core.estimate.fits: Comparison",
}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what the command of that name prints with `--json`: estimate, fit, `presets
    list` …; or of an error, a preset, a sample, a ledger or a comparison.

    Raises:
        UserError: there is no schema with that name.

    >>> import vramtui
    >>> vramtui.schema("preset")["$ref"]
    '#/$defs/Preset'
    """
    if name not in SCHEMAS:
        raise UserError(f"no schema is called {name!r}{nearest(name, SCHEMAS)}; there are: {', '.join(SCHEMAS)}")
    bodies, parts = msgspec.json.schema_components(document_types(name), ref_template="#/$defs/{name}")
    body = bodies[0] if len(bodies) == 1 else {"anyOf": list(bodies)}
    return {"$schema": DIALECT, "$id": f"vramtui:{name.replace(' ', '-')}:1", **body, "$defs": parts}


def document_types(name: str) -> tuple[Any, ...]:
    """The types of the documents of `name`."""
    module, _, types = SCHEMAS[name].partition(": ")
    loaded = import_module(module, DOCUMENTS)
    return tuple(getattr(loaded, one) for one in types.split())


def encoded(name: str) -> bytes:
    """The schema as a file has it.

    Raises:
        UserError: as `schema`.
    """
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=2) + b"\n"
