"""JSON Schema of the program's documents: those in documents.json, and the types that presets and readings have."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# The documents of each command with `--json`.
COMMANDS = {
    "doctor": "DoctorDocument SettingsDocument",
    "dry-run": "DryRunDocument",
    "estimate": "EstimateDocument EstimatesDocument",
    "fit": "FitDocument CardsDocument MapDocument ModelsDocument",
    "history": "HistoryDocument",
    "oom": "OomDocument HeldMemoryDocument",
    "pick": "PickDocument",
    "presets list": "PresetsDocument",
    "ps": "PsDocument PsHostsDocument",
}
SCHEMAS = {
    **COMMANDS,
    "error": "ErrorDocument",
    "preset": "Preset",
    "sample": "Sample",
    "ledger": "Ledger",
    "comparison": "Comparison",
}
# The module of each type that is not in documents.json.
MODULES = {
    "DryRunDocument": "dryrun.command",
    **dict.fromkeys(("Edge", "Effect"), "estimators.planner.planner"),
    **dict.fromkeys(("Estimate", "Ledger"), "core.estimate.estimate"),
    "Comparison": "core.estimate.fits",
    **dict.fromkeys(("Gpu", "Problem", "Process", "Sample"), "core.observation.readings"),
    "HeldMemory": "records.memory_snapshot",
    "Preset": "core.schema.preset",
    **dict.fromkeys(("Run", "Spread"), "core.runs.run"),
    "Settings": "core.schema.settings",
    "Workload": "core.schema.workload",
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
    titles, parts = SCHEMAS[name].split(), dict[str, Any]()
    for title in titles:
        _add(title, parts)
    bodies = [{"$ref": f"#/$defs/{title}"} for title in titles]
    body = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
    return {"$schema": DIALECT, "$id": f"vramtui:{name.replace(' ', '-')}:1", **body, "$defs": parts}


def _add(title: str, parts: dict[str, Any], known: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Put the definition of `title` into `parts`, with those that it refers to; `known` are those of a type's parts.

    A document that is `like` a type has the type's properties too. Its keys are always there, null if unknown.
    """
    if title in parts:
        return
    if title in known:
        parts[title] = known[title]
    elif title in MODULES:
        kind = getattr(import_module(f"vramtui.{MODULES[title]}"), title)
        _, known = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
        parts[title] = known[title]
    else:
        body = {"title": title, "type": "object", **_documents()[title]}
        if base := body.pop("like", ""):
            inherited: dict[str, Any] = {}
            _add(base, inherited)
            fields = inherited[base]["properties"].items()
            own = {name: {key: part for key, part in one.items() if key != "default"} for name, one in fields}
            body["properties"], known = own | body["properties"], inherited
        parts[title] = {"required": [*body["properties"]], **body}
    for other in re.findall(r'"#/\$defs/(\w+)"', json.dumps(parts[title])):
        _add(other, parts, known)


@cache
def _documents() -> dict[str, dict[str, Any]]:
    documents: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("documents.json").read_bytes())
    return documents
