"""Files and lines that are not this program's: fuzz targets, like those of `targets.py`, one for each format."""

import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from tests.core import test_oom
from tests.examples import a_run
from tests.fuzz.binary import sqlite_bytes
from tests.fuzz.far import CONFIGS, LIBRARY
from tests.fuzz.targets import HOSTILE, sentence, shown
from tests.models.readers.test_weights import gguf_llama, llama_shapes, safetensors
from tests.presets.test_process_offers import COMMANDS
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD
from vramtui.core.observation.oom.read import read_oom
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.importers.command_values import with_command
from vramtui.presets.importers.derived import derived_preset
from vramtui.presets.importers.process_offers import draft_from_process, start_from
from vramtui.presets.model_presets import preset_of
from vramtui.records.memory_snapshot import read_held_memory
from vramtui.records.run_history import RunHistory

Target = Callable[[bytes], None]
FOLDER = Path(mkdtemp(prefix="vramtui-fuzz-"))
GOLDEN = Path(__file__).parents[1] / "golden"
SIMULATED = 400  # events of a trace that are simulated too
SPARSE = 25  # of the golden configs every such one is a seed


def _estimated(path: Path) -> None:
    """The model at `path`, and its estimate."""
    try:
        preset = preset_of(path)
        estimate = ANALYTIC.estimate(preset.workload, CARDS[DEFAULT_CARD])
        assert estimate.process >= 0
        shown(printable(preset.name + preset.notes))
    except UserError as error:
        sentence(error)


def configs(data: bytes) -> None:
    """A model's config.json, alone."""
    folder = FOLDER / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(data)
    _estimated(folder)


def gguf(data: bytes) -> None:
    """A GGUF file."""
    path = FOLDER / "model.gguf"
    path.write_bytes(data)
    _estimated(path)


def weights(data: bytes) -> None:
    """A safetensors file without a config beside it."""
    path = FOLDER / "weights" / "model.safetensors"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    _estimated(path)


def snapshots(data: bytes) -> None:
    """A memory snapshot."""
    path = FOLDER / "snapshot"
    path.write_bytes(data)
    try:
        shown(read_held_memory(path).cause)
    except UserError as error:
        sentence(error)


def history(data: bytes) -> None:
    """The history's database: listed, read, written and a run of it forgotten."""
    for path in FOLDER.glob("history*"):
        path.unlink()
    path = FOLDER / "history.sqlite3"
    path.write_bytes(data)
    runs = RunHistory(path)
    actions: tuple[Callable[[], object], ...] = (
        runs.runs,
        lambda: runs.run(1),
        lambda: runs.keep(a_run()),
        lambda: runs.forget(1),
        lambda: runs.runs("tiny-gpt", 3),
    )
    for action in actions:
        try:
            action()
        except UserError as error:
            sentence(error)
        for words in runs.damaged:
            sentence(UserError(words))


def oom_logs(data: bytes) -> None:
    """What a job printed before it ended."""
    try:
        report = read_oom(data.decode("utf-8", "replace"))
    except UserError as error:
        sentence(error)
        return
    shown(printable(repr(msgspec.to_builtins(report))))
    for size in msgspec.to_builtins(report).values():
        assert not isinstance(size, int) or size >= 0, f"a negative size in {report}"


def commands(data: bytes) -> None:
    """The command line of somebody's job: what it says of a preset, and a draft made of it."""
    command = data.decode("utf-8", "surrogateescape")
    try:
        offers = draft_from_process(command, LIBRARY)
        for offer in offers:
            shown(printable(f"{offer.key} {offer.value} {offer.flag}"))
        start_from(offers, LIBRARY, "mine")
        for found in (with_command(SMALL, command), derived_preset(command, None)):
            if found is not None:
                shown(printable(found.preset.name + repr(found.known)))
                assert ANALYTIC.estimate(found.preset.workload, CARDS[DEFAULT_CARD]).process >= 0
    except UserError as error:
        sentence(error)


SMALL = LIBRARY.get("llama-3.1-8b-lora")


def _golden_configs() -> tuple[bytes, ...]:
    """Of every kind of model some."""
    lines = [
        line for path in sorted((GOLDEN / "architectures").glob("*.jsonl")) for line in path.read_text().split("\n")
    ]
    rows = [json.loads(line) for line in lines[::SPARSE] if line]
    return tuple(text.encode() for row in rows if len(text := json.dumps(row.get("config"))) < 1 << 15)


def snapshot(count: int = 12) -> dict[str, Any]:
    """A memory snapshot as PyTorch dumps it."""
    frames = [{"filename": "train.py", "name": "step", "line": 7}]
    trace = [
        {"action": "segment_alloc", "addr": 4096, "size": 2 << 20, "stream": 0, "frames": frames, "time_us": 1},
        *(
            {
                "action": action,
                "addr": 4096 + 512 * number,
                "size": 512,
                "stream": 0,
                "frames": frames,
                "time_us": number,
            }
            for number in range(count)
            for action in ("alloc", "free_requested", "free_completed")
        ),
        {"action": "oom", "size": 1 << 30, "stream": 0, "device_free": 1 << 20},
    ]
    block = {"address": 8192, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": frames}
    rest = {"address": 8704, "size": (2 << 20) - 4608, "state": "inactive"}
    segment = {"address": 4096, "total_size": 2 << 20, "stream": 0, "device": 0, "segment_type": "large"}
    segment |= {"blocks": [{"size": 4096, "state": "inactive"}, block, rest], "segment_pool_id": (0, 0)}
    setting = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    return {
        "segments": [segment],
        "device_traces": [trace, []],
        "allocator_settings": setting,
        "external_annotations": [],
    }


def _snapshots() -> tuple[bytes, ...]:
    whole = snapshot()
    return (
        *(pickle.dumps(whole, protocol) for protocol in (0, 2, 4, 5)),
        pickle.dumps(whole["segments"]),
        gzip.compress(pickle.dumps(whole)),
    )


def _databases() -> tuple[bytes, ...]:
    path = FOLDER / "seed.sqlite3"
    runs = RunHistory(path)
    for number in range(3):
        run = a_run(workload={"model": {"kind": "huggingface", "config": "{}"}, "run": {}})
        runs.keep(msgspec.structs.replace(run, key=f"k{number}", pid=number + 1, started_at=100.0 + number))
    return (sqlite_bytes(path),)


def _messages() -> Iterator[bytes]:
    """Out-of-memory messages of every program that is known."""
    for text in vars(test_oom).values():
        if isinstance(text, str) and " memory" in text.lower():
            yield text.encode()


def file_seeds(name: str) -> tuple[bytes, ...]:
    """Inputs worth changing, for a target."""
    made: dict[str, Callable[[], tuple[bytes, ...]]] = {
        "configs": lambda: (*(json.dumps(config).encode() for config in CONFIGS), *_golden_configs()),
        "gguf": lambda: (gguf_llama(),),
        "weights": lambda: (safetensors(llama_shapes()), safetensors(llama_shapes(), "F32", 4)),
        "snapshots": _snapshots,
        "history": _databases,
        "oom-logs": lambda: tuple(_messages()),
        "commands": lambda: (*(command.encode() for command, _ in COMMANDS.values()), *HOSTILE),
    }
    return made[name]()


FILE_TARGETS: dict[str, Target] = {
    "configs": configs,
    "gguf": gguf,
    "weights": weights,
    "snapshots": snapshots,
    "history": history,
    "oom-logs": oom_logs,
    "commands": commands,
}
