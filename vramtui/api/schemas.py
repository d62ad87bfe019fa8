"""JSON Schema of what the program writes and reads, made from the very types that do so."""

from typing import Any

import msgspec

from vramtui.api.printed import EstimatesDocument, PsDocument, TraceDocument
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.estimate.comparison import Comparison
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import FitVerdict
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import Workload

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class EstimateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `JobEstimate.to_dict` gives; bytes throughout, null where something is not known."""

    schema: int
    preset: str
    workload: Workload
    device: dict[str, Any] | None
    allocated: int
    reserved: int | None
    process: int
    fits: bool | None
    verdict: FitVerdict | None
    spare: int | None
    estimate: Estimate


SCHEMAS: dict[str, Any] = {
    "comparison": Comparison,
    "estimate": EstimateDocument,
    "estimates": EstimatesDocument,
    "ledger": Ledger,
    "preset": Preset,
    "ps": PsDocument,
    "sample": Sample,
    "trace": TraceDocument,
}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) called so: comparison, estimate, estimates, ledger, preset, ps, sample or trace.

    Raises:
        UserError: there is none of that name.

    >>> import vramtui
    >>> vramtui.schema("preset")["$ref"]
    '#/$defs/Preset'
    """
    if name not in SCHEMAS:
        raise UserError(f"no schema is called {name!r}{nearest(name, SCHEMAS)}; there are: {', '.join(SCHEMAS)}")
    made: dict[str, Any] = msgspec.json.schema(SCHEMAS[name])
    return {"$schema": DIALECT, "$id": f"vramtui:{name}:1", **made}


def encoded(name: str) -> bytes:
    """The schema as a file has it.

    Raises:
        UserError: as `schema`.
    """
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=2) + b"\n"
