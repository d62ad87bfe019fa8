"""What is fuzzed: one function a target, which takes any bytes and fails where a promise is broken.

The promises: no exception but UserError and SourceFailed, each one sentence on one line that a terminal only shows;
what was read once is read again from what we wrote; and nothing that another wrote reaches the terminal as a command.
"""

import io
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch
from zlib import crc32

import msgspec

from tests.fuzz.pictures import pictures
from tests.stub.nvidia_smi import card
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.observation.history import History
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Gpu, Host, Memory, Problem, Process, Sample, decode_sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick, take_snapshot
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.draft.draft import Draft
from vramtui.presets.reader import find_problems, load_preset, parse_preset
from vramtui.records.recording.decoder import RecordingHeader
from vramtui.records.recording.reader import Recording, read_recording
from vramtui.records.recording.writer import RecordingWriter
from vramtui.sources.nvidia_smi import COLUMNS, NvidiaSmiSource, Output
from vramtui.sources.probe_listener import decode_datagram

Target = Callable[[bytes], None]
FOLDER = Path(mkdtemp(prefix="vramtui-fuzz-"))
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


def presets(data: bytes) -> None:
    """A preset's file: read, estimated, and edited; an edit that is taken back leaves every byte as it was."""
    path = FOLDER / "fuzzed.toml"
    path.write_bytes(data)
    try:
        preset = load_preset(path)
        shown(printable(preset.name + preset.notes))
        estimate = ANALYTIC.estimate(preset.workload, CARDS[DEFAULT_CARD])
        assert estimate.process >= 0
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
    display(recording.samples[-3:], _told(recording))


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

    source = NvidiaSmiSource(run, host=_host, clock=lambda: AT)
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
    from vramtui.cli.ps.tables import print_problems, print_tables  # noqa: PLC0415 - loads the command line

    seen = History()
    for sample in samples:
        seen.add(sample)
    snapshot = take_snapshot(samples[-1], seen, {}, _no_estimate, {})
    out, whole = io.StringIO(), crc32(repr((samples[-1], jobs)).encode()) % LAID_OUT == 0
    with (
        redirect_stdout(out),
        redirect_stderr(out),
        patch("vramtui.cli.ps.tables.print_table", print_table if whole else _cells),
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


def _host(driver: str | None, cuda: str | None) -> Host:
    return Host(name="host", driver_version=driver, cuda_version=cuda)


def _no_estimate(found: PresetFile, device: Device) -> None:
    del found, device


def _told(recording: Recording) -> tuple[ObservedJob, ...]:
    return recording.jobs_at(recording.samples[-1].taken_at)


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


def seeds(name: str) -> tuple[bytes, ...]:
    """Inputs worth changing, for a target."""
    if name == "presets":
        folder = Path(__file__).parents[2] / "presets"
        return tuple(path.read_bytes() for path in sorted(folder.rglob("*.toml"))[::6])
    if name == "recordings":
        return _seed_recording(), _hostile_recording()
    if name == "probe":
        return (*PROBE_SEEDS, CUT.join(PROBE_SEEDS))
    if name == "nvidia-smi":
        return (_seed_smi(),)
    return (*HOSTILE, CUT.join(HOSTILE))


TARGETS: dict[str, Target] = {
    "presets": presets,
    "recordings": recordings,
    "probe": probe,
    "nvidia-smi": nvidia_smi,
    "names": names,
}
