"""What is fuzzed: one function a target, which takes any bytes and fails where a promise is broken.

The promises: no exception but UserError and SourceFailed, each one sentence on one line that a terminal only shows;
what was read once is read again from what we wrote; and nothing that another wrote reaches the terminal as a command.
"""

import gzip
import io
import json
import pickle
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch
from zlib import crc32

import msgspec
from hypothesis import HealthCheck, settings

from tests.core import test_oom
from tests.examples import a_run
from tests.fuzz.inputs import sqlite_bytes
from tests.fuzz.pictures import pictures
from tests.models.readers.test_weights import gguf_llama, llama_shapes, safetensors
from tests.presets.test_process_offers import COMMANDS
from tests.stub.nvidia_smi import card
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.observation.history import History
from vramtui.core.observation.oom.read import read_oom
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Gpu, Host, Memory, Problem, Process, Sample, decode_sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick, take_snapshot
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.draft.draft import Draft
from vramtui.presets.importers.command_values import with_command
from vramtui.presets.importers.derived import derived_preset
from vramtui.presets.importers.job_presets import preset_of_job_file, with_job_file
from vramtui.presets.importers.process_offers import draft_from_process, start_from
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.presets.reader import find_problems, load_preset, parse_preset
from vramtui.records.export.metrics import metrics_of
from vramtui.records.memory_snapshot import read_held_memory
from vramtui.records.recording.decoder import LiveRecording, RecordingHeader, read_recording
from vramtui.records.recording.writer import RecordingWriter
from vramtui.records.run_history import RunHistory
from vramtui.sources.feed import LineDecoder, LineSplitter, LineTooLargeError
from vramtui.sources.nvidia_smi import COLUMNS, NvidiaSmiSource, Output
from vramtui.sources.probe_listener import decode_datagram
from vramtui.sources.ssh import MOST_HOSTS, SMI_MARK, FarLines, failure_of, host_names

Target = Callable[[bytes], None]
FOLDER = Path(mkdtemp(prefix="vramtui-fuzz-"))
CORPUS = Path(__file__).parent / "corpus"  # a folder a target
LIBRARY = PresetLibrary()
SMALL = LIBRARY.get("tiny-gpt")

LONGEST = 2000  # characters of a sentence
AT = 1_800_000_000.0
# An edit reads the file some fifty times, and laying a table out is Rich's work: one input in so many goes through
# them, always the same ones.
EDITED, LAID_OUT = 4, 8
# Between the parts of an input that has several.
CUT = b"\n====\n"
LIVE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def sentence(error: UserError | SourceFailed) -> None:
    """An error's text is one line, not endless, and harmless."""
    text = str(error) if isinstance(error, UserError) else f"{error.message} {error.hint}"
    assert text.strip(), "an empty sentence"
    assert "\n" not in text, f"more than one line: {text!r}"
    assert len(text) <= LONGEST, f"{len(text)} characters: {text[:200]!r}"
    shown(text)


def shown(text: str) -> None:
    """Text for the terminal holds nothing that it obeys; line breaks are our own."""
    found = LIVE.search(text)
    assert found is None, f"{found[0]!r} reaches the terminal: {text[max(0, found.start() - 60) : found.end() + 20]!r}"


def estimated(preset: Preset) -> None:
    """What is read of a file gives an estimate, and its texts can be shown."""
    assert ANALYTIC.estimate(preset.workload, CARDS[DEFAULT_CARD]).process >= 0
    shown(printable(preset.name + preset.notes))


def model(file: str) -> Target:
    """A model's file of that name; what follows CUT is the weights beside its config.json."""

    def read(data: bytes) -> None:
        config, _, weights = data.partition(CUT) if file.endswith(".json") else (data, b"", b"")
        path = FOLDER / file
        path.parent.mkdir(exist_ok=True)
        (path.parent / "model.safetensors").unlink(missing_ok=True)
        path.write_bytes(config)
        if weights:
            (path.parent / "model.safetensors").write_bytes(weights)
        for place in (path, path.parent) if file.endswith(".json") else (path,):
            try:
                estimated(preset_of(place))
            except UserError as error:  # noqa: PERF203 - each of them
                sentence(error)

    return read


def presets(data: bytes) -> None:
    """A preset's file: read, estimated, and edited; an edit that is taken back leaves every byte as it was."""
    path = FOLDER / "fuzzed.toml"
    path.write_bytes(data)
    try:
        preset = load_preset(path)
        estimated(preset)
        assert parse_preset(data.decode(), path) == preset
    except UserError as error:
        sentence(error)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    for problem in find_problems(text, folder=FOLDER):
        sentence(UserError(problem.at(path)))
    if crc32(data) % EDITED:
        return
    edited = Draft(text, "fuzzed", path=FOLDER / "fuzzed.toml")
    for group in edited.form[:2]:
        for field in group.fields[:1]:
            edited.set_value(field.key, "7")
    while edited.undo():
        pass
    assert edited.text == text, "undo does not bring back what was there"


def recordings(data: bytes) -> None:
    """A recording: what is read of it can be written and read again, and shown."""
    path = FOLDER / "fuzzed.jsonl"
    path.write_bytes(data)
    try:
        recording = read_recording(path)
    except UserError as error:
        sentence(error)
        return
    for warning in recording.warnings:
        shown(warning)
    again = FOLDER / "again.jsonl"
    again.unlink(missing_ok=True)
    with closing(RecordingWriter(again, recording.header)) as writer:
        for sample in recording.samples:
            writer.write(RecordedTick(sample))
    back = read_recording(again)
    assert back.samples == recording.samples, "samples are lost"
    assert back.header == recording.header
    display(recording.samples[-3:], recording.jobs_at(recording.samples[-1].taken_at))


def probe(data: bytes) -> None:
    """What a probe sends: each message is taken or left, and what they amount to survives a recording."""
    job = ObservedJob(pid=4213)
    for part in data.split(CUT)[:8]:
        message = decode_datagram(part)
        if message is not None:
            job = job.heard(message)
    path = FOLDER / "told.jsonl"
    path.unlink(missing_ok=True)
    sample = _sample([_gpu("NVIDIA H200", [_process(4213, "python train.py")])])
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        writer.write(RecordedTick(sample, (job,)))
    (back,) = read_recording(path).jobs_at(AT) or (ObservedJob(pid=4213),)
    assert back.pid == job.pid
    display([sample], (job,))


def nvidia_smi(data: bytes) -> None:
    """What the program prints, its exit status, and the list of processes."""
    parts = [*data.split(CUT, 3), b"", b"", b""]
    code = parts[2][0] if parts[2] else 0

    def run(command: Sequence[str], limit: float) -> Output:
        del limit
        said = parts[1] if "compute-apps" in " ".join(command) else parts[0]
        return Output(said.decode(errors="surrogateescape"), code if said is parts[0] else 0)

    source = NvidiaSmiSource(
        run, host=lambda driver, cuda: Host(name="host", driver_version=driver, cuda_version=cuda), clock=lambda: AT
    )
    try:
        sample = source.read()
        sample = msgspec.structs.replace(source.read(), taken_at=sample.taken_at)
    except SourceFailed as error:
        sentence(error)
        return
    assert decode_sample(encode_sample(sample)) == sample, "the sample does not survive its own encoding"
    display([sample])


def names(data: bytes) -> None:
    """Names, commands and users, as another wrote them."""
    parts = [part.decode("utf-8", "surrogateescape") for part in data.split(CUT, 3)]
    parts += [parts[-1]] * (4 - len(parts))
    name, command, user, device = parts[:4]
    row = msgspec.structs.replace(_process(4213, command), name=name, user=user)
    sample = _sample([_gpu(device, [row, _process(977, "")])])
    display([sample])


def display(samples: Sequence[Sample], jobs: tuple[ObservedJob, ...] = ()) -> None:
    """Show samples in every way that goes to a terminal."""
    from vramtui.cli.common.console import print_table  # noqa: PLC0415 - as below
    from vramtui.cli.ps import print_problems, print_tables  # noqa: PLC0415 - loads the command line

    seen = History()
    for sample in samples:
        seen.add(sample)
    snapshot = take_snapshot(samples[-1], seen, {}, _no_estimate, {})
    out, whole = io.StringIO(), crc32(repr((samples[-1], jobs)).encode()) % LAID_OUT == 0
    with (
        redirect_stdout(out),
        redirect_stderr(out),
        patch("vramtui.cli.ps.print_table", print_table if whole else _cells),
    ):
        print_tables(snapshot)
        print_problems(snapshot)
    shown(out.getvalue())
    for line in pictures(samples, jobs):
        shown(line)
        assert "\n" not in line, f"a line break in a line of the screen: {line!r}"


def _cells(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> None:
    """What stands in a table."""
    del right
    sys.stdout.write("\n".join((*headings, *(cell for row in rows for cell in row), "")))


def taken(decoder: "LineDecoder | FarLines", data: bytes) -> list[Sample]:
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
    samples = taken(live, data)
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
    samples = taken(FarLines(LiveRecording), data)
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
                estimated(found.preset)
            except UserError as error:  # noqa: PERF203 - each of them
                sentence(error)


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
        for found in (with_command(LIBRARY.get("llama-3.1-8b-lora"), command), derived_preset(command, None)):
            if found is not None:
                shown(printable(found.preset.name + repr(found.known)))
                assert ANALYTIC.estimate(found.preset.workload, CARDS[DEFAULT_CARD]).process >= 0
    except UserError as error:
        sentence(error)


def _no_estimate(found: PresetFile, device: Device) -> None:
    del found, device


def _process(pid: int, command: str) -> Process:
    return Process(pid=pid, type="C", used_memory=1 << 30, user="anna", name=command[:15], command=command)


def _gpu(name: str, rows: Sequence[Process]) -> Gpu:
    total, used = 80 << 30, len(rows) << 30
    memory = Memory(total=total, used=used, reserved=0, free=total - used)
    return Gpu(index=0, uuid="GPU-0", name=name, memory=memory, processes=tuple(rows))


def _sample(gpus: Sequence[Gpu]) -> Sample:
    return Sample(taken_at=AT, source="nvml", host=Host(name="gpu01"), gpus=tuple(gpus))


def usual_sample() -> Sample:
    """What a source sees of one GPU with one process."""
    return _sample([_gpu("NVIDIA H200", [_process(4213, "python train.py")])])


def _seed_recording() -> bytes:
    path = FOLDER / "seed.jsonl"
    path.unlink(missing_ok=True)
    sample = usual_sample()
    with closing(RecordingWriter(path, RecordingHeader(started_at=AT))) as writer:
        for later in range(3):
            memory = msgspec.structs.replace(sample.gpus[0].memory, used=(later + 1) << 30)
            gpu = msgspec.structs.replace(sample.gpus[0], memory=memory)
            writer.write(RecordedTick(msgspec.structs.replace(sample, taken_at=AT + later, gpus=(gpu,))))
    return path.read_bytes()


def _hostile_recording() -> bytes:
    """Every text in it is one that a terminal would obey."""
    said = HOSTILE[0].decode()
    row = msgspec.structs.replace(_process(4213, said), user=said, name=said)
    lost = msgspec.structs.replace(_gpu(said, [row]), index=1, uuid="GPU-1", state="lost", reason=said)
    whole = msgspec.structs.replace(_gpu(said, [row]), mig_profile=said, throttle_reasons=(said,), pci_bus_id=said)
    sample = Sample(
        taken_at=AT,
        source=said,
        host=Host(name=said, driver_version=said, cuda_version=said),
        gpus=(whole, lost),
        problems=(Problem(where=said, message=said, hint=said),),
    )
    return b'{"vramtui_recording":1}\n' + encode_sample(sample) + b"\n"


def _seed_smi() -> bytes:
    row = card(0)
    line = ", ".join(row.get(column.queries[0], "[N/A]") for column in COLUMNS)
    apps = f"4213, {row['uuid']}, 1024, python"
    return CUT.join([line.encode(), apps.encode(), b"\0"])


PROBE_SEEDS = (
    b'{"v":1,"kind":"hello","pid":4213,"at":1.0,"torch":"2.9.0","command":["python"],"devices":[]}',
    (
        b'{"v":1,"kind":"beat","pid":4213,"at":2.0,"step":3,"phase":"forward","parts":{"weights":{"cuda:0":1024}},'
        b'"devices":[{"index":0,"allocated_peak":4096}],"moments":[{"at":2.0,"phase":"step","step":1,"device":0}]}'
    ),
    b'{"v":1,"kind":"end","pid":4213,"at":3.0}',
)
HOSTILE = (
    b"[red]x[/] \x1b[2J\x1b]0;pwn\x07",
    "a\u202eb\u2028c\ud7ff\u0301".encode(),
    b"\xff\xfe\x80",
    b"\r\n\t\x9b31m",
)


_SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}
_TOWER = {"hidden_size": 32, "num_hidden_layers": 2, "patch_size": 14, "image_size": 28}
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


def _golden_configs() -> tuple[bytes, ...]:
    """Of every kind of model some."""
    lines = [
        line
        for path in sorted((Path(__file__).parents[1] / "golden/architectures").glob("*.jsonl"))
        for line in path.read_text().split("\n")
    ]
    rows = [json.loads(line) for line in lines[::25] if line]
    return tuple(text.encode() for row in rows if len(text := json.dumps(row.get("config"))) < 1 << 15)


def snapshot() -> dict[str, Any]:
    """A memory snapshot as PyTorch dumps it."""
    frames = [{"filename": "train.py", "name": "step", "line": 7}]
    trace_entry = {"size": 512, "stream": 0, "frames": frames}
    trace = [
        {"action": "segment_alloc", "addr": 4096, "size": 2 << 20, "stream": 0, "frames": frames, "time_us": 1},
        *(
            trace_entry | {"action": action, "addr": 4096 + 512 * number, "time_us": number}
            for number in range(12)
            for action in ("alloc", "free_requested", "free_completed")
        ),
        {"action": "oom", "size": 1 << 30, "stream": 0, "device_free": 1 << 20},
    ]
    block = {"address": 8192, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": frames}
    rest = {"address": 8704, "size": (2 << 20) - 4608, "state": "inactive"}
    segment = {"address": 4096, "total_size": 2 << 20, "stream": 0, "device": 0, "segment_type": "large"}
    segment |= {"blocks": [{"size": 4096, "state": "inactive"}, block, rest], "segment_pool_id": (0, 0)}
    setting = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    whole = {"segments": [segment], "device_traces": [trace, []], "allocator_settings": setting}
    return whole | {"external_annotations": []}


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


def _safetensors() -> bytes:
    entry = {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(32)


def seeds(name: str) -> tuple[bytes, ...]:
    """Inputs of a target that are right, and worth changing."""
    configs = tuple(json.dumps(config).encode() for config in CONFIGS)
    stream = b'{"vramtui_recording":1,"interval":1.0}\n' + encode_sample(usual_sample()) + b"\n"
    smi = SMI_MARK.encode() + b" 0\n@ index,uuid,name\nhost\n0, GPU-1, H200\n@apps 0\n@ps\n"
    smi += b" 42 anna Sun Nov 22 10:00:00 2026 python\n@end\n"
    deep = stream + b'{"vramtui_more":' + b"[" * 3000 + b"]" * 3000 + b"}\n"
    folder = Path(__file__).parents[2] / "presets"
    made: dict[str, Callable[[], tuple[bytes, ...]]] = {
        "presets": lambda: tuple(path.read_bytes() for path in sorted(folder.rglob("*.toml"))[::6]),
        "recordings": lambda: (_seed_recording(), _hostile_recording()),
        "probe": lambda: (*PROBE_SEEDS, CUT.join(PROBE_SEEDS)),
        "nvidia-smi": lambda: (_seed_smi(), *(CUT.join((said, said, b"\x09")) for said in HOSTILE)),
        "names": lambda: (*HOSTILE, CUT.join(HOSTILE)),
        "feeds": lambda: (stream, b"Welcome!\n" + stream, deep, smi),
        "agents": lambda: (stream, b"Welcome!\n" + stream, deep, smi),
        "hosts": lambda: HOSTS,
        "job-files": lambda: (_AXOLOTL, _FACTORY, json.dumps(_DEEPSPEED).encode()),
        "configs": lambda: (*configs, *(config + CUT + _safetensors() for config in configs), *_golden_configs()),
        "gguf": lambda: (gguf_llama(),),
        "weights": lambda: (safetensors(llama_shapes()), safetensors(llama_shapes(), "F32", 4)),
        "snapshots": _snapshots,
        "history": _databases,
        "oom-logs": lambda: tuple(_messages()),
        "commands": lambda: (*(command.encode() for command, _ in COMMANDS.values()), *HOSTILE),
    }
    return made[name]()


def settings_of(number: settings) -> settings:
    """Other examples than last time, however long each takes."""
    return settings(number, database=None, suppress_health_check=list(HealthCheck), derandomize=False, deadline=None)


EVERY: dict[str, Target] = {
    "presets": presets, "recordings": recordings, "probe": probe, "nvidia-smi": nvidia_smi, "names": names,
    "feeds": feeds, "agents": agents, "hosts": hosts, "job-files": job_files, "configs": model("model/config.json"),
    "gguf": model("model.gguf"), "weights": model("weights/model.safetensors"), "snapshots": snapshots,
    "history": history, "oom-logs": oom_logs, "commands": commands,
}  # fmt: skip
