"""JSON Schema of what the program writes and reads, made from the very types that do so.

What commands print with `--json` are the program's own types, with what a reader wants beside them; in those documents
every key is always there, null where something is not known.
"""

from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.estimate.comparison import Comparison, Verdict
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import FitVerdict
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.readings import Gpu, Problem, Process, Sample
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import Workload
from vramtui.estimators.traced.process.results import LargestBatch, TraceResult

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def _like(kind: type[msgspec.Struct], name: str, about: str, **more: Any) -> Any:  # noqa: ANN401 - types as values
    """The fields of `kind`, all of them needed, with `more` beside or instead of them."""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)} | more
    space = {"__doc__": about, "__module__": __name__}
    return msgspec.defstruct(name, list(fields.items()), frozen=True, kw_only=True, namespace=space)


class PrintedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The card that was asked about; bytes."""

    name: str
    capability: str
    total_memory: int


class PrintedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's memory in bytes; `unattributed` is what no process of the list holds."""

    total: int | None
    used: int | None
    reserved: int | None
    free: int | None
    unattributed: int | None
    unified: bool


class PrintedHostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The host's own memory in bytes."""

    total: int | None
    available: int | None


PrintedEstimate = _like(
    Estimate,
    "PrintedEstimate",
    "One method's answer, with its totals and whether it fits.",
    allocated=int,
    reserved=int | None,
    process=int,
    fits=bool | None,
    verdict=FitVerdict | None,
    spare=int | None,
    uncalibrated=Ledger | None,
)
PrintedProcess = _like(
    Process,
    "PrintedProcess",
    "One process on one GPU, with its peak since the program began to look and what its preset predicts.",
    peak_at=float | None,
    peak_how=str | None,
    peak_interval=float | None,
    preset=str | None,
    predicted_memory=int | None,
    verdict=Verdict | None,
)
PrintedGpu = _like(
    Gpu,
    "PrintedGpu",
    "One GPU.",
    memory=PrintedMemory,
    processes=tuple[PrintedProcess, ...],  # type: ignore[valid-type] # made by msgspec
)
TraceDocument = _like(
    TraceResult,
    "TraceDocument",
    "What `vramtui trace --json` prints; bytes. A point of `series` is an event's number, allocated and reserved.",
    series=tuple[tuple[int, int, int], ...],
    verdict=FitVerdict,
    largest_batch=LargestBatch | None,
)


class EstimatesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui estimate --json` prints: an answer of each method; bytes throughout.

    Attributes:
        notes: sentences on what the model was not made for, or what is not known of it.
    """

    schema: int
    preset: str
    device: PrintedDevice | None
    notes: tuple[str, ...]
    estimates: tuple[PrintedEstimate, ...]  # type: ignore[valid-type] # made by msgspec


class PsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui ps --json` prints: everything seen on one host at one moment (`taken_at`, seconds since 1970)."""

    schema: int
    host: str
    taken_at: float
    source: str
    driver_version: str | None
    cuda_version: str | None
    cpu_percent: float | None
    host_memory: PrintedHostMemory
    gpus: tuple[PrintedGpu, ...]  # type: ignore[valid-type] # made by msgspec
    problems: tuple[Problem, ...]
    versions: dict[str, str]


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
