"""What other hosts, other programs and people write: fuzz targets like those of `targets.py`."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from tests.fuzz.targets import CUT, display, sentence, shown, usual_sample
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Sample, encode_sample
from vramtui.core.observation.snapshot import take_snapshot
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.importers.job_presets import preset_of_job_file, with_job_file
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.records.export.metrics import metrics_of
from vramtui.records.recording.decoder import LiveRecording
from vramtui.sources.feed import LineDecoder, LineSplitter, LineTooLargeError
from vramtui.sources.ssh import MOST_HOSTS, SMI_MARK, FarLines, failure_of, host_names

Target = Callable[[bytes], None]
FOLDER = Path(mkdtemp(prefix="vramtui-fuzz-"))
LIBRARY = PresetLibrary()
LAYERS = 2


def _taken(decoder: "LineDecoder | FarLines", data: bytes) -> list[Sample]:
    """The samples of a stream that comes in two pieces; what ends it is one sentence."""
    samples: list[Sample] = []
    splitter = LineSplitter()
    try:
        for piece in (data[: len(data) // 2], data[len(data) // 2 :], b"\n"):
            samples += [sample for line in splitter.add(piece) if (sample := decoder.take(line)) is not None]
    except UserError as error:
        sentence(error)
    except LineTooLargeError:
        pass
    return samples


def feeds(data: bytes) -> None:
    """What `vramtui record -` writes into a pipe, and what Prometheus is told of it."""
    live = LiveRecording()
    samples = _taken(live, data)
    for sample in samples[-2:]:
        told_to_prometheus(sample)
    if samples:
        live.peaks(samples[-1].taken_at)
        display(samples[-3:], live.jobs())


def told_to_prometheus(sample: Sample) -> None:
    """The exporter's families: labels that its text format can hold, and never a command line among them."""
    seen = History()
    seen.add(sample)
    commands = {row.command for gpu in sample.gpus for row in gpu.processes if row.command and len(row.command) > 40}
    for family in metrics_of(take_snapshot(sample, seen, {}, _no_estimate, {}), {}, per_process=True):
        for labels, value in family.samples:
            assert len(labels) == len(family.labels), f"{family.name} has {len(labels)} labels"
            assert isinstance(value, int | float)
            for label in labels:
                label.encode()  # a lone surrogate cannot be sent
                assert label not in commands, "a command line is exported"


def agents(data: bytes) -> None:
    """What comes from another host, whichever program speaks there, and what ssh says where it ends."""
    samples = _taken(FarLines(LiveRecording), data)
    if samples:
        display(samples[-2:])
    failure = failure_of("gpu01", data[-2000:].decode(errors="replace"), data[0] if data else None)
    sentence(failure)


def hosts(data: bytes) -> None:
    """`--host` as it is typed: names, or a sentence; a name is never an option or a word of a shell."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = host_names([text], {"all": ("gpu[01-04]",), "bad": (text,)})
    except UserError as error:
        sentence(error)
        return
    assert len(found) <= MOST_HOSTS
    for name in found:
        assert name
        assert not name.startswith("-")
        assert not set(name) & set(" \t\n'\"`$;&|<>()*?\\!#~{}"), f"{name!r} means something to a shell"


def job_files(data: bytes) -> None:
    """The YAML or JSON of a training program: a preset and its estimate, or a sentence."""
    for name in ("job.yaml", "job.json"):
        path = FOLDER / name
        path.write_bytes(data)
        for whole in (True, False):
            try:
                found = preset_of_job_file(path, LIBRARY) if whole else with_job_file(SMALL, path, LIBRARY)
                estimate = ANALYTIC.estimate(found.preset.workload, CARDS[DEFAULT_CARD])
                assert estimate.process >= 0
                shown(printable(found.preset.notes))
            except UserError as error:  # noqa: PERF203 - each of them
                sentence(error)


def models(data: bytes) -> None:
    """A model's files as they were downloaded: config.json, safetensors, GGUF."""
    config, weights = [*data.split(CUT, 1), b""][:2]
    folder = FOLDER / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes(config)
    (folder / "model.safetensors").unlink(missing_ok=True)
    if weights:
        (folder / "model.safetensors").write_bytes(weights)
    (FOLDER / "model.gguf").write_bytes(data)
    for path in (folder, folder / "config.json", FOLDER / "model.gguf"):
        try:
            preset = preset_of(path)
            estimate = ANALYTIC.estimate(preset.workload, CARDS[DEFAULT_CARD])
            assert estimate.process >= 0
            shown(printable(preset.name + preset.notes))
        except UserError as error:  # noqa: PERF203 - each of them
            sentence(error)


def _no_estimate(found: object, device: object) -> None:
    del found, device


SMALL = LIBRARY.get("tiny-gpt")
_SHAPE = {"hidden_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "vocab_size": 128}
_TOWER = {"hidden_size": 32, "num_hidden_layers": LAYERS, "patch_size": 14, "image_size": 28}
CONFIGS = (
    {**_SHAPE, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "intermediate_size": 128},
    {**_SHAPE, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4},
    {
        "model_type": "llava",
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": {**_SHAPE, "model_type": "llama"},
        "vision_config": {**_TOWER, "model_type": "clip_vision_model"},
    },
    {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {**_SHAPE, "sliding_window": 16, "head_dim": 16, "intermediate_size": 128},
        "vision_config": _TOWER,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64},
    },
)
_AXOLOTL = b"""base_model: tiny-gpt
sequence_len: 512
micro_batch_size: 2
adapter: lora
lora_r: 8
lora_target_modules:
  - q_proj
optimizer: adamw_torch
bf16: auto
gradient_checkpointing: true
"""
_FACTORY = b"""model_name_or_path: tiny-gpt
stage: sft
finetuning_type: full
cutoff_len: 1024
per_device_train_batch_size: 1
deepspeed: ds.json
"""
_DEEPSPEED = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "bf16": {"enabled": True},
    "train_micro_batch_size_per_gpu": 4,
}
HOSTS = (b"gpu01", b"user@gpu[02-16]", b"@all", b"r[1-2]n[01,03],gpu7", b"-oProxyCommand=x", b"a[1-1024][1-2]")


def _safetensors() -> bytes:
    entry = {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(32)


def _gguf() -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    keys = {"block_count": LAYERS, "embedding_length": 64, "attention.head_count": 4, "context_length": 128}
    pairs = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    pairs += b"".join(text(f"llama.{key}") + struct.pack("<II", 4, value) for key, value in keys.items())
    tensor = text("token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 128, 1, 0)
    return b"GGUF" + struct.pack("<IQQ", 3, 1, 1 + len(keys)) + pairs + tensor + bytes(64)


def far_seeds(name: str) -> tuple[bytes, ...]:
    """Inputs worth changing, for a target."""
    if name == "models":
        return (*(json.dumps(config).encode() + CUT + _safetensors() for config in CONFIGS), _gguf())
    if name == "hosts":
        return HOSTS
    if name == "job-files":
        return _AXOLOTL, _FACTORY, json.dumps(_DEEPSPEED).encode()
    stream = b'{"vramtui_recording":1,"interval":1.0}\n' + encode_sample(usual_sample()) + b"\n"
    smi = SMI_MARK.encode() + b" 0\n@ index,uuid,name\nhost\n0, GPU-1, H200\n@apps 0\n@ps\n"
    smi += b" 42 anna Sun Nov 22 10:00:00 2026 python\n@end\n"
    deep = stream + b'{"vramtui_more":' + b"[" * 3000 + b"]" * 3000 + b"}\n"
    return (stream, b"Welcome!\n" + stream, deep, smi)


FAR_TARGETS: dict[str, Target] = {
    "feeds": feeds,
    "agents": agents,
    "hosts": hosts,
    "job-files": job_files,
    "models": models,
}
