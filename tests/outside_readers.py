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
from vramtui.core.runs.run import Run, spreads
from vramtui.core.runs.run_list import RUN_COLUMNS, in_order
from vramtui.core.schema.preset import Preset
from vramtui.estimators.methods import estimates_by
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.readers.config_json import parse_config
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import checked_preset
from vramtui.records.recording.decoder import LiveRecording
from vramtui.records.run_history import RunHistory
from vramtui.sources.probe_listener import decode_datagram
from vramtui.sources.prometheus import PrometheusClient, past_samples, present, samples_of
from vramtui.sources.slurm import job_hosts

FOLDER = Path(mkdtemp(prefix="vramtui-outside-"))
SHAPES = (
    "llama-3.2-1b-full", "llama-3.1-8b-serve", "mixtral-8x7b-qlora", "deepseek-v2-lite-lora", "gpt2-124m",
    "bert-base-mlm", "bart-large-train", "resnet-18-train", "lstm-language-model", "flux-dev-pipeline",
    "llama-3.1-70b-fsdp",
)  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 512, "vocab_size": 1000,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "attention_bias": False, "hidden_act": "silu", "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False},
    "auto_map": {"AutoModel": "modeling.Model"},
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mixtral": LLAMA
    | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4}
    | {"num_experts_per_tok": 2, "sliding_window": 128},
    "gemma3": LLAMA
    | {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 64}
    | {"layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 32},
    "unknown": LLAMA | {"architectures": ["OursForCausalLM"], "model_type": "ours", "num_experts": 4, "v_head_dim": 32},
    "bert": {
        "architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000, "type_vocab_size": 2,
        "max_position_embeddings": 64, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128,
        "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 1000, "dropout_rate": 0.1,
        "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32, "is_encoder_decoder": True,
    },
}  # fmt: skip
JOB: dict[str, Any] = {
    "pid": 4213, "gone": False, "peaks": {"0": {"index": 0, "allocated": 1 << 30, "allocated_peak": 2 << 30}},
    "parts": {"weights": {"cuda:0": 1 << 30}},
    "moments": [{"at": 10.0, "phase": "forward", "step": 1, "device": 0, "allocated": 1 << 30, "peak_reserved": 1}],
}  # fmt: skip
MESSAGES: dict[str, dict[str, Any]] = {
    "hello": {
        "v": 1, "kind": "hello", "pid": 4213, "at": 10.0, "run": "r", "preset": "p", "command": ["python", "train.py"],
        "python": "3.12", "torch": "2.9", "rank": 0, "local_rank": 0, "world_size": 8,
        "devices": [{"index": 0, "name": "H100", "total_memory": 80 << 30, "capability": [9, 0], "uuid": "0"}],
    },
    "beat": {
        "v": 1, "kind": "beat", "pid": 4213, "at": 10.0, "phase": "forward", "step": 3, "step_seconds": 1.0, "lost": 0,
        "devices": list(JOB["peaks"].values()), "parts": JOB["parts"], "moments": JOB["moments"],
    },
    "oom": {
        "v": 1, "kind": "oom", "pid": 4213, "at": 10.0, "device": 0, "asked": 1 << 30, "free": 0, "limit": 1 << 36,
        "allocated": 1 << 36, "reserved": 1 << 36, "inactive_split": 0, "phase": "step", "step": 1,
    },
    "end": {"v": 1, "kind": "end", "pid": 4213, "at": 10.0, "error": "E", "message": "m", "out_of_memory": True},
}  # fmt: skip
LABELS = {
    "__name__": "DCGM_FI_DEV_FB_USED", "Hostname": "gpu01", "UUID": "GPU-0", "gpu": "0", "modelName": "H100",
    "pod": "train-0", "namespace": "ml", "container": "main", "GPU_I_ID": "1", "instance": "gpu01:9400",
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "status": "success",
    "error": "",
    "data": {"result": [{"metric": LABELS, "value": [1000.0, "4096"], "values": [[1000.0, "4096"], [1015.0, "4097"]]}]},
}
ROW = {"number": "4711", "state": "RUNNING", "owner": "anna", "nodes": "gpu01", "names": "gpu01 gpu02"}


def estimate_preset(tables: dict[str, Any]) -> None:
    """What `vramtui estimate` does with a preset's tables."""
    preset = checked_preset("x.toml", tables)
    estimates_by(None, preset.workload, card("H100"))


def read_config(values: dict[str, Any]) -> None:
    """What is done with somebody's config.json."""
    config = parse_config(values)
    run = {"kind": "infer", "sequence_length": 64, "precision": config.precision or "bf16"}
    estimate_preset({"name": "x", "model": dict(config.model), "run": run})


def read_line(document: dict[str, Any]) -> None:
    """What is done with a line of a recording, a feed or another host."""
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
    """Nothing in it is beyond what a GPU can be, or what a person can read."""
    texts = [gpu.name for gpu in sample.gpus] + [row.command or "" for gpu in sample.gpus for row in gpu.processes]
    assert max(map(len, texts), default=0) <= 1 << 16
    assert len(sample.problems) <= 300
    assert all((gpu.memory.used or 0) >= 0 for gpu in sample.gpus)
    assert all((row.used_memory or 0) >= 0 for gpu in sample.gpus for row in gpu.processes)


def hear_message(document: dict[str, Any]) -> None:
    """What is done with a message of a probe."""
    message = decode_datagram(json.dumps(document).encode())
    if message is not None:
        job = ObservedJob(pid=message.pid).heard(message).heard(message)
        job.ledger(0)
        job.phase_ends(0, 1)


def read_answer(document: dict[str, Any]) -> None:
    """What is done with Prometheus' answer: the present, and the past."""
    with patch("urllib.request.OpenerDirector.open", return_value=BytesIO(json.dumps(document).encode())):
        series = _client().query("up")
    for sample in samples_of(present(series), {"gpu01": 1000.0}).values():
        check_sample(sample)
    for samples in past_samples(series).values():
        for sample in samples:
            check_sample(sample)


@cache
def _client() -> PrometheusClient:
    return PrometheusClient("http://localhost:9090")


def read_queue(document: dict[str, Any]) -> None:
    """What is done with what `squeue` and `scontrol` print."""
    row = "|".join(_spelt(document.get(key, "")) for key in ("number", "state", "owner", "nodes"))
    printed = {"squeue": row, "scontrol": _spelt(document.get("names", ""))}
    with patch("vramtui.sources.slurm.run_slurm", side_effect=lambda program, *_: printed[program]):
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
    "preset": (estimate_preset, (UserError,)),
    "config": (read_config, (UserError, DamagedError)),
    "line": (read_line, (UserError, msgspec.DecodeError)),
    "dashboard": (draw_line, (UserError,)),
    "message": (hear_message, ()),
    "prometheus": (read_answer, (SourceFailed,)),
    "queue": (read_queue, (UserError,)),
    "history": (read_run, (UserError,)),
}
BASES: dict[str, tuple[str, ...]] = {
    "preset": SHAPES,
    "config": tuple(CONFIGS),
    "line": ("sample", "job"),
    "dashboard": ("sample",),
    "message": tuple(MESSAGES),
    "prometheus": ("answer",),
    "queue": ("squeue",),
    "history": ("run",),
}


def document(reader: str, base: str) -> dict[str, Any]:
    """What the reader takes, right in every key."""
    if reader == "preset":
        found = PresetLibrary().find(base)
        assert found is not None
        tables = json.loads(msgspec.json.encode(found.preset))
        return every_field(
            {name: tables[name] for name in ("name", "model", "run", "parallel") if tables[name]}, Preset
        )
    if reader == "history":
        run = a_run(times=(0.0, 1.0), values=(1, 2), ended_at=1010.0, ending="exited", workload={"run": {"kind": "t"}})
        return every_field(json.loads(msgspec.json.encode(run)), Run)
    documents: dict[str, dict[str, Any]] = {
        **CONFIGS,
        **MESSAGES,
        "sample": json.loads(encode_sample(scenes.usual())),
        "job": {"job": {"at": 10.0, **JOB, **{name: MESSAGES[name] for name in ("hello", "beat", "end")}}},
        "answer": ANSWER,
        "squeue": ROW,
    }
    return documents[base]
