"""What is fuzzed: one function a target, which takes any bytes and fails where a promise is broken.

The promises: no exception but UserError and SourceFailed, each one sentence on one line that a terminal only shows;
what was read once is read again from what we wrote; and nothing that another wrote reaches the terminal as a command.
"""

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch
from zlib import crc32

import msgspec
from hypothesis import HealthCheck, settings

from tests.core.test_oom import MESSAGES
from tests.examples import a_run, followed
from tests.fuzz.inputs import sqlite_bytes
from tests.fuzz.pictures import pictures
from tests.models.readers.test_weights import gguf_llama, llama_shapes, safetensors
from tests.presets.test_process_offers import COMMANDS
from tests.stub.nvidia_smi import card
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.read import read_oom
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample, decode_sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick, take_snapshot
from vramtui.core.schema.preset import Preset
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.draft import Draft
from vramtui.presets.importers.derived import derived_preset, preset_of_job_file, with_job_file
from vramtui.presets.importers.process_offers import draft_from_process, start_from, with_command
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of
from vramtui.presets.reader import find_problems, load_preset, parse_preset
from vramtui.records.export.metrics import metrics_of
from vramtui.records.memory_snapshot import read_held_memory
from vramtui.records.recording.files import LiveRecording, RecordingHeader, RecordingWriter, read_recording
from vramtui.records.run_history import RunHistory
from vramtui.sources.feed import LineDecoder, LineSplitter, LineTooLargeError
from vramtui.sources.nvidia_smi import COLUMNS, NvidiaSmiSource, Output
from vramtui.sources.probe_listener import decode_datagram
from vramtui.sources.ssh import MOST_HOSTS, FarLines, failure_of, host_names

Target = Callable[[bytes], None]
FOLDER = Path(mkdtemp(prefix="vramtui-fuzz-"))
CORPUS = Path(__file__).parent / "corpus"  # a folder a target
SEEDS = CORPUS.with_name("seeds")  # the same: inputs that are right, and some that a terminal would obey
PRESETS = Path(__file__).parents[2] / "presets"
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
    assert ANALYTIC.estimate(preset.workload, CARDS[DEFAULT_CARD]).process >= 0
    shown(printable(preset.name + preset.notes))


def model(file: str) -> Target:
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
    parts = [part.decode("utf-8", "surrogateescape") for part in data.split(CUT, 3)]
    parts += [parts[-1]] * (4 - len(parts))
    name, command, user, device = parts[:4]
    row = msgspec.structs.replace(_process(4213, command), name=name, user=user)
    sample = _sample([_gpu(device, [row, _process(977, "")])])
    display([sample])


def display(samples: Sequence[Sample], jobs: tuple[ObservedJob, ...] = ()) -> None:
    from vramtui.cli.common.console import print_table  # noqa: PLC0415 - as below
    from vramtui.cli.ps import print_problems, print_tables  # noqa: PLC0415 - loads the command line

    snapshot = take_snapshot(samples[-1], followed(*samples), {}, lambda *_: None, {})
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
    del right
    sys.stdout.write("\n".join((*headings, *(cell for row in rows for cell in row), "")))


def taken(decoder: "LineDecoder | FarLines", data: bytes) -> list[Sample]:
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
    commands = {row.command for gpu in sample.gpus for row in gpu.processes if row.command and len(row.command) > 40}
    for family in metrics_of(take_snapshot(sample, followed(sample), {}, lambda *_: None, {}), {}, per_process=True):
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
    path = FOLDER / "snapshot"
    path.write_bytes(data)
    try:
        shown(read_held_memory(path).cause)
    except UserError as error:
        sentence(error)


def history(data: bytes) -> None:
    for path in FOLDER.glob("history*"):
        path.unlink()
    path = FOLDER / "history.sqlite3"
    path.write_bytes(data)
    runs = RunHistory(path)
    actions: tuple[Callable[[], object], ...] = (
        runs.runs, lambda: runs.run(1), lambda: runs.keep(a_run()), lambda: runs.forget(1),
        lambda: runs.runs("tiny-gpt", 3),
    )  # fmt: skip
    for action in actions:
        try:
            action()
        except UserError as error:
            sentence(error)
        for words in runs.damaged:
            sentence(UserError(words))


def oom_logs(data: bytes) -> None:
    try:
        report = read_oom(data.decode("utf-8", "replace"))
    except UserError as error:
        sentence(error)
        return
    shown(printable(repr((msgspec.to_builtins(report), list(sentences_of(report))))))
    for size in msgspec.to_builtins(report).values():
        assert not isinstance(size, int) or size >= 0, f"a negative size in {report}"


def commands(data: bytes) -> None:
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


def _process(pid: int, command: str) -> Process:
    return Process(pid=pid, type="C", used_memory=1 << 30, user="anna", name=command[:15], command=command)


def _gpu(name: str, rows: Sequence[Process]) -> Gpu:
    total, used = 80 << 30, len(rows) << 30
    memory = Memory(total=total, used=used, reserved=0, free=total - used)
    return Gpu(index=0, uuid="GPU-0", name=name, memory=memory, processes=tuple(rows))


def _sample(gpus: Sequence[Gpu]) -> Sample:
    return Sample(taken_at=AT, source="nvml", host=Host(name="gpu01"), gpus=tuple(gpus))


def seeds(name: str) -> tuple[bytes, ...]:
    """Inputs of a target that are right, and worth changing: its folder's files, and what other files of tests have."""
    kept = [path.read_bytes() for path in sorted((SEEDS / {"agents": "feeds"}.get(name, name)).glob("*"))]
    return (*kept, *MADE.get(name, tuple)())


def _smi_seed() -> tuple[bytes, ...]:
    row = card(0)
    line = ", ".join(row.get(column.queries[0], "[N/A]") for column in COLUMNS)
    return (CUT.join([line.encode(), f"4213, {row['uuid']}, 1024, python".encode(), b"\0"]),)


def _golden_configs() -> tuple[bytes, ...]:
    files = sorted((Path(__file__).parents[1] / "golden/architectures").glob("*.jsonl"))
    lines = [line for path in files for line in path.read_text().split("\n")]
    texts = (json.dumps(json.loads(line).get("config")) for line in lines[::25] if line)
    return tuple(text.encode() for text in texts if len(text) < 1 << 15)


def _databases() -> tuple[bytes, ...]:
    path = FOLDER / "seed.sqlite3"
    runs = RunHistory(path)
    for number in range(3):
        run = a_run(workload={"model": {"kind": "huggingface", "config": "{}"}, "run": {}})
        runs.keep(msgspec.structs.replace(run, key=f"k{number}", pid=number + 1, started_at=100.0 + number))
    return (sqlite_bytes(path),)


MADE: dict[str, Callable[[], tuple[bytes, ...]]] = {
    "presets": lambda: tuple(path.read_bytes() for path in sorted(PRESETS.rglob("*.toml"))[::6]),
    "nvidia-smi": _smi_seed,
    "configs": _golden_configs,
    "gguf": lambda: (gguf_llama(),),
    "weights": lambda: (safetensors(llama_shapes()), safetensors(llama_shapes(), "F32", 4)),
    "history": _databases,
    "oom-logs": lambda: tuple(row["text"].encode() for row in MESSAGES if " memory" in row["text"].lower()),
    "commands": lambda: (
        *(command.encode() for command, _ in COMMANDS.values()),
        *(path.read_bytes() for path in sorted((SEEDS / "names").glob("*"))),
    ),
}


def settings_of(number: settings) -> settings:
    return settings(number, database=None, suppress_health_check=list(HealthCheck), derandomize=False, deadline=None)


EVERY: dict[str, Target] = {
    "presets": presets, "recordings": recordings, "probe": probe, "nvidia-smi": nvidia_smi, "names": names,
    "feeds": feeds, "agents": agents, "hosts": hosts, "job-files": job_files, "configs": model("model/config.json"),
    "gguf": model("model.gguf"), "weights": model("weights/model.safetensors"), "snapshots": snapshots,
    "history": history, "oom-logs": oom_logs, "commands": commands,
}  # fmt: skip
