"""The readers of what comes from outside: for each what it does with a document, and documents that are right."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, redirect_stdout
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import msgspec

from tests.app import scenes
from tests.examples import a_run
from tests.fuzz.pictures import pictures
from tests.outside_values import every_field
from vramtui.cli.history import print_list, print_run
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.estimate.devices import card
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Sample, encode_sample
from vramtui.core.runs.run import RUN_COLUMNS, Run, in_order, spreads
from vramtui.core.schema.preset import Preset
from vramtui.estimators.methods import estimates_by
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.readers.config_json import parse_config
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import checked_preset
from vramtui.records.recording.files import LiveRecording
from vramtui.records.run_history import RunHistory
from vramtui.sources.probe_listener import decode_datagram
from vramtui.sources.prometheus import PrometheusClient, past_samples, present, samples_of
from vramtui.sources.ssh import job_hosts

FOLDER = Path(mkdtemp(prefix="vramtui-outside-"))
SHAPES = (
    "llama-3.2-1b-full", "llama-3.1-8b-serve", "mixtral-8x7b-qlora", "deepseek-v2-lite-lora", "gpt2-124m",
    "bert-base-mlm", "bart-large-train", "resnet-18-train", "lstm-language-model", "flux-dev-pipeline",
    "llama-3.1-70b-fsdp",
)  # fmt: skip
DOCUMENTS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("golden").joinpath("outside.json").read_text(encoding="utf-8")
)


def estimate_preset(tables: dict[str, Any]) -> None:
    preset = checked_preset("x.toml", tables)
    estimates_by(None, preset.workload, card("H100"))


def read_config(values: dict[str, Any]) -> None:
    config = parse_config(values)
    run = {"kind": "infer", "sequence_length": 64, "precision": config.precision or "bf16"}
    estimate_preset({"name": "x", "model": dict(config.model), "run": run})


def read_line(document: dict[str, Any]) -> None:
    recording = LiveRecording()
    sample = recording.take(json.dumps(document).encode())
    if sample is not None:
        check_sample(sample)
    for job in recording.jobs():
        job.ledger(0)


def draw_line(document: dict[str, Any]) -> None:
    """What the dashboard draws of a line: all panels, the table's first rows, the details of the first of them."""
    sample = LiveRecording().take(json.dumps(document).encode())
    if sample is not None:
        for text in pictures([sample]):
            assert text.isprintable(), text[:200]


def check_sample(sample: Sample) -> None:
    texts = [gpu.name for gpu in sample.gpus] + [row.command or "" for gpu in sample.gpus for row in gpu.processes]
    assert max(map(len, texts), default=0) <= 1 << 16
    assert len(sample.problems) <= 300
    assert all((gpu.memory.used or 0) >= 0 for gpu in sample.gpus)
    assert all((row.used_memory or 0) >= 0 for gpu in sample.gpus for row in gpu.processes)


def hear_message(document: dict[str, Any]) -> None:
    message = decode_datagram(json.dumps(document).encode())
    if message is not None:
        job = ObservedJob(pid=message.pid).heard(message).heard(message)
        job.ledger(0)
        job.phase_ends(0, 1)


def read_answer(document: dict[str, Any]) -> None:
    with patch("urllib.request.OpenerDirector.open", return_value=BytesIO(json.dumps(document).encode())):
        series = PrometheusClient("http://localhost:9090").query("up")
    for sample in samples_of(present(series), {"gpu01": 1000.0}).values():
        check_sample(sample)
    for samples in past_samples(series).values():
        for sample in samples:
            check_sample(sample)


def read_queue(document: dict[str, Any]) -> None:
    row = "|".join(_spelt(document.get(key, "")) for key in ("number", "state", "owner", "nodes"))
    printed = {"squeue": row, "scontrol": _spelt(document.get("names", ""))}
    with patch("vramtui.sources.ssh.run_slurm", side_effect=lambda program, *_: printed[program]):
        hosts, _ = job_hosts("4711")
    assert all(len(host) < 1 << 21 and not host.startswith("-") for host in hosts)


def _spelt(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_run(document: dict[str, Any]) -> None:
    """What `vramtui history` does with a run that another version or somebody wrote into the database."""
    history = _history()
    with closing(sqlite3.connect(history.path)) as database, database:
        database.execute("PRAGMA synchronous = OFF")
        database.execute("UPDATE runs SET document = ?", (json.dumps(document).encode(),))
    kept = history.runs()
    assert len(kept) + len(history.damaged) == 1
    for sentence in history.damaged:
        raise UserError(sentence)
    with redirect_stdout(StringIO()), patch.dict(os.environ, {"COLUMNS": "120"}):
        print_list(kept, some_kept=True)
        print_run(kept[0])
    for column in RUN_COLUMNS:
        in_order(kept, column)
    spreads(tuple(stored.run for stored in kept))


@cache
def _history() -> RunHistory:
    history = RunHistory(FOLDER / "history.sqlite3")
    history.keep(a_run())
    return history


READERS: dict[str, tuple[Callable[[dict[str, Any]], None], tuple[type[Exception], ...]]] = {
    "preset": (estimate_preset, (UserError,)), "config": (read_config, (UserError, DamagedError)),
    "line": (read_line, (UserError, msgspec.DecodeError)), "dashboard": (draw_line, (UserError,)),
    "message": (hear_message, ()), "prometheus": (read_answer, (SourceFailed,)), "queue": (read_queue, (UserError,)),
    "history": (read_run, (UserError,)),
}  # fmt: skip
BASES: dict[str, tuple[str, ...]] = {
    **{reader: tuple(documents) for reader, documents in DOCUMENTS.items()}, "preset": SHAPES,
    "line": ("sample", "job"), "dashboard": ("sample",), "history": ("run",),
}  # fmt: skip


def document(reader: str, base: str) -> dict[str, Any]:
    if reader == "preset":
        found = PresetLibrary().find(base)
        tables = json.loads(msgspec.json.encode(found.preset))
        return every_field(
            {name: tables[name] for name in ("name", "model", "run", "parallel") if tables[name]}, Preset
        )
    if reader == "history":
        run = a_run(times=(0.0, 1.0), values=(1, 2), ended_at=1010.0, ending="exited", workload={"run": {"kind": "t"}})
        return every_field(json.loads(msgspec.json.encode(run)), Run)
    return dict(json.loads(encode_sample(scenes.usual())) if base == "sample" else DOCUMENTS[reader][base])
