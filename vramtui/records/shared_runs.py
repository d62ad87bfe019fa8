"""Scored runs as others may have them: no names, paths, users, hosts or command lines, and days instead of times."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from vramtui.core.base.compatibility import NewerFormatError, check_format
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import SHARED
from vramtui.core.base.text import shortened
from vramtui.core.runs.run import Run
from vramtui.models.readers.bounded import read_plain

DAY = 86400.0  # seconds
SCHEMA = 1
HOST = "shared"
OWN = "a preset of one's own"
# Keys of a model's config that name where it came from.
NAMING = ("_name_or_path", "name_or_path", "base_model_name_or_path")


class SharedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A file of shared runs."""

    schema: int = SCHEMA
    kind: Literal["vramtui shared runs"] = "vramtui shared runs"
    runs: tuple[Run, ...]


class _Version(msgspec.Struct):
    schema: int = SCHEMA


def shareable(runs: Iterable[Run], bundled: Iterable[str]) -> tuple[Run, ...]:
    """The finished runs with a prediction and an observation, without what says whose they are. Runs of one's own code
    are left out: nothing of their model could be told.

    Args:
        runs: of the history.
        bundled: the keys of the presets that came with the program; others become `OWN`.
    """
    known = frozenset(bundled)
    described = (
        _anonymous(run, known)
        for run in runs
        if run.finished and run.error is not None and (run.workload.get("model") or {}).get("kind") != "torch"
    )
    # The same run has the same key in every file it is in, so that importing twice is importing once. Runs that are the
    # same without their names are told apart by their number among those.
    alike: Counter[bytes] = Counter()
    keyed = []
    for run in described:
        text = msgspec.json.encode(run)
        digest = hashlib.sha256(text + (b"%d" % alike[text] if alike[text] else b"")).hexdigest()
        keyed.append(msgspec.structs.replace(run, key=f"shared-{digest[:32]}"))
        alike[text] += 1
    return tuple(keyed)


def _anonymous(run: Run, bundled: frozenset[str]) -> Run:
    day = run.started_at // DAY * DAY
    length = None if run.ended_at is None else run.ended_at - run.started_at
    return msgspec.structs.replace(
        run,
        key="",
        host=HOST,
        gpu_uuid="",
        pid=0,
        command="",
        started_at=day,
        ended_at=None if length is None else day + length,
        seen_until=None,
        preset=run.preset if run.preset in bundled else OWN,
        workload=_without_names(run.workload),
        versions={name: run.versions[name] for name in ("vramtui", "torch", "driver") if name in run.versions},
    )


def _without_names(workload: dict[str, Any]) -> dict[str, Any]:
    model = workload.get("model")
    if not isinstance(model, dict):
        return {**workload, "model": {}}
    model = dict(model)
    if isinstance(model.get("config"), str):
        try:
            config = msgspec.json.decode(model["config"], type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            config = {}  # no config of a model: whatever stands there is nobody else's business
        model["config"] = msgspec.json.encode({key: config[key] for key in config if key not in NAMING}).decode()
    return {**workload, "model": model}


def encoded(runs: tuple[Run, ...]) -> str:
    return msgspec.json.format(msgspec.json.encode(SharedRuns(runs=runs)), indent=2).decode() + "\n"


def read_shared(path: Path) -> tuple[Run, ...]:
    """The runs of a file that somebody shared; their keys are made anew, so that none replaces a run of one's own.

    Raises:
        UserError: it cannot be read, is too large, or is no such file.
    """
    try:
        data = read_plain(path, SHARED)
        check_format(msgspec.json.decode(data, type=_Version).schema, SCHEMA)
        shared = msgspec.json.decode(data, type=SharedRuns)
    except NewerFormatError as error:
        raise UserError(f"{path}: {error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} holds no shared runs: {shortened(str(error))}") from None
    if len(shared.runs) > (SHARED.count or 0):
        raise UserError(f"{path} holds more than {SHARED.count:,} runs, which no {SHARED.what} does")
    return shareable(shared.runs, {run.preset for run in shared.runs})
