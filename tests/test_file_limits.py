import gzip
import json
import os
import pickle
import sqlite3
import struct
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.examples import a_run
from tests.models.readers.test_weights import gguf_llama, text
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import (
    CONFIG,
    GGUF,
    INDEX,
    MOST_GGUF_DIMENSIONS,
    MOST_GGUF_KEYS,
    MOST_GGUF_LISTS,
    MOST_GGUF_TENSORS,
    MOST_KEY_PARTS,
    MOST_LAYERS,
    PRESET,
    RECORDING,
    SAFETENSORS,
    SNAPSHOT,
    TRAINING,
    FileLimits,
)
from vramtui.core.base.units import MIB
from vramtui.models.readers.gguf import read_gguf
from vramtui.models.readers.model_folder import read_index, read_safetensors
from vramtui.presets.importers.job_files import read_job_file
from vramtui.presets.model_presets import preset_of
from vramtui.presets.reader import load_preset
from vramtui.records.memory_snapshot import read_held_memory
from vramtui.records.recording.files import read_recording
from vramtui.records.run_history import RunHistory

LONGEST = 500  # characters of the sentence
SECONDS = 1.0  # of one processor
Read = Callable[[Path], object]


@dataclass(frozen=True)
class Beyond:
    name: str
    file: str
    read: Read
    content: Callable[[], bytes]
    said: str
    size: int | None = None  # bytes, most of which are not on the disk


def _count(limits: FileLimits) -> int:
    assert limits.count is not None
    return limits.count


def _gguf(keys: int, tensors: int, *records: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + b"".join(records)


def _array(kind: int, length: int) -> bytes:
    return text("a") + struct.pack("<IIQ", 9, kind, length)


def _weights(count: int) -> bytes:
    entry = '"t%d":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    header = ("{" + ",".join(entry % number for number in range(count)) + "}").encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


def _config(**said: object) -> bytes:
    shape = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128, "model_type": "unheard_of"}
    return json.dumps({**shape, "architectures": ["UnheardOfForCausalLM"], **said}).encode()


def _aliases(number: int) -> bytes:
    """A list of nine times the one before: nine such lines are 387 million values."""
    return b"a%d: &a%d [%s]\n" % (number, number, b", ".join([b"*a%d" % (number - 1) if number else b"x"] * 9))


BEYOND = (
    Beyond("TOML: size", "a.toml", load_preset, bytes, "larger than 1 MiB, which no preset is", PRESET.size + 1),
    Beyond("TOML: values", "a.toml", load_preset, lambda: b"a = [" + b"1," * _count(PRESET) + b"]", "50,000 values"),
    Beyond("TOML: keys", "a.toml", load_preset, lambda: b"".join(b"k%d=1\n" % i for i in range(60_000)),
           "50,000 values"),
    Beyond("TOML: parts", "a.toml", load_preset, lambda: b"b = 1\n" + b"a." * MOST_KEY_PARTS + b"a = 1\n",
           "a.toml:2: not valid TOML: a key of more than 16 parts"),
    Beyond("TOML: table parts", "a.toml", load_preset, lambda: b"[" + b"a." * 200_000 + b"a]\n", "more than 16 parts"),
    Beyond("TOML: inline", "a.toml", load_preset, lambda: b"b = {" + b"a." * 200_000 + b"a=1}\n", "more than 16 parts"),
    Beyond("TOML: depth", "a.toml", load_preset, lambda: b"a = " + b"[" * 20_000 + b"]" * 20_000, "nested too deeply"),
    Beyond("YAML: size", "a.yaml", read_job_file, bytes, "larger than 128 KiB", TRAINING.size + 1),
    Beyond("YAML: values", "a.yaml", read_job_file, lambda: b"a: [" + b"1," * _count(TRAINING) + b"1]",
           "20,000 values"),
    Beyond("YAML: depth", "a.yaml", read_job_file, lambda: b"a: " + b"[" * 33 + b"]" * 33, "more than 32 levels"),
    Beyond("YAML: deepest", "a.yaml", read_job_file, lambda: b"a: " + b"[" * 60_000, "more than 32 levels"),
    Beyond("YAML: aliases", "a.yaml", read_job_file, lambda: b"".join(map(_aliases, range(9))),
           "says nothing that a preset could take"),
    Beyond("JSON: size", "a.json", read_job_file, bytes, "larger than 128 KiB", TRAINING.size + 1),
    Beyond("JSON: depth", "a.json", read_job_file, lambda: b"[" * 60_000, "nested too deeply"),
    Beyond("config: size", "config.json", preset_of, bytes, "larger than 8 MiB, which no config.json", CONFIG.size + 1),
    Beyond("config: depth", "config.json", preset_of, lambda: b'{"a":' * 150_000, "is not a config.json"),
    Beyond("config: layers", "config.json", preset_of, lambda: _config(num_hidden_layers=MOST_LAYERS + 1),
           "4096 are needed"),
    Beyond("index: size", "i.json", read_index, bytes, "larger than 32 MiB, which no index is", INDEX.size + 1),
    Beyond("index: names", "i.json", read_index,
           lambda: json.dumps({"weight_map": {f"t{i}": "a.safetensors" for i in range(_count(INDEX) + 1)}}).encode(),
           "names more than 131,072 tensors"),
    Beyond("safetensors: size", "a.safetensors", read_safetensors, lambda: struct.pack("<Q", SAFETENSORS.size + 1),
           "larger than 100 MB", SAFETENSORS.size + 100),
    Beyond("safetensors: tensors", "a.safetensors", read_safetensors, lambda: _weights(_count(SAFETENSORS) + 1),
           "more than 131,072 tensors"),
    Beyond("GGUF: keys", "a.gguf", read_gguf, lambda: _gguf(MOST_GGUF_KEYS + 1, 0), "65,537 values"),
    Beyond("GGUF: tensors", "a.gguf", read_gguf, lambda: _gguf(0, MOST_GGUF_TENSORS + 1), "131,073 tensors"),
    Beyond("GGUF: items", "a.gguf", read_gguf, lambda: _gguf(1, 0, _array(0, _count(GGUF) + 1)), "4,194,304 values"),
    Beyond("GGUF: lists", "a.gguf", read_gguf, lambda: _gguf(1, 0, _array(9, MOST_GGUF_LISTS + 1)), "4,097 lists"),
    Beyond("GGUF: depth", "a.gguf", read_gguf, lambda: _gguf(1, 0, _array(9, 1), *[struct.pack("<IQ", 9, 1)] * 9),
           "lists within lists"),
    Beyond("GGUF: dimensions", "a.gguf", read_gguf,
           lambda: _gguf(0, 1, text("a"), struct.pack("<I", MOST_GGUF_DIMENSIONS + 1)), "has 5 dimensions"),
    Beyond("GGUF: size", "a.gguf", read_gguf, lambda: _gguf(9, 0, text("a"), struct.pack("<IQ", 8, GGUF.size + 1)),
           "larger than 100 MB", GGUF.size + 4 * MIB),
    Beyond("GGUF: layers", "a.gguf", preset_of, lambda: gguf_llama().replace(_blocks(1), _blocks((1 << 32) - 1)),
           "block_count of 4,294,967,295"),
    Beyond("snapshot: size", "a.pickle", read_held_memory, bytes, "larger than 4.0 GiB", SNAPSHOT.size + 1),
    Beyond("snapshot: unpacked", "a.gz", read_held_memory, lambda: gzip.compress(bytes(SNAPSHOT.spare + (64 << 20)), 9),
           "which no memory snapshot of its size does"),
    Beyond("pickle: memory", "a.pickle", read_held_memory, lambda: b"\x80\x02Nr\xff\xff\xff\x0f.",
           "asks for more memory than a file of its size"),
    Beyond("pickle: entries", "a.pickle", read_held_memory, lambda: pickle.dumps(_shared_lists()),
           "more entries than bytes"),
    Beyond("pickle: names", "a.pickle", read_held_memory, lambda: pickle.dumps(_segments(address="\ud800")),
           "it holds a name that is not text"),
    Beyond("pickle: depth", "a.pickle", read_held_memory, lambda: b"\x80\x02" + b"]" * 9 + b"a" * 99, "not a whole"),
    Beyond("recording: line", "a.jsonl", read_recording, lambda: b'{"vramtui_recording":1}\n', "longer",
           RECORDING.size + 99),
)  # fmt: skip


def _blocks(count: int) -> bytes:
    return text("llama.block_count") + struct.pack("<II", 4, count)


def _segments(**changed: object) -> dict[str, object]:
    segment = {"blocks": [], "device": 0, "address": 0, "total_size": 512, "stream": 0, **changed}
    return {"segments": [segment], "device_traces": [[]]}


def _shared_lists() -> dict[str, object]:
    blocks = [{"size": 512, "requested_size": 512, "address": 0, "state": "inactive"}] * 3000
    segments = _segments(blocks=blocks)
    return segments | {"segments": segments["segments"] * 3000}  # type: ignore[operator]  # a list


@pytest.mark.parametrize("case", BEYOND, ids=lambda case: case.name)
def test_a_file_beyond_its_bounds_is_one_sentence_within_a_second(case: Beyond, tmp_path: Path) -> None:
    path = tmp_path / case.file
    path.write_bytes(case.content())
    if case.size is not None:
        os.truncate(path, case.size)
    for _ in range(3):  # what else the machine does takes of the processor's caches, not always
        begun = time.thread_time()
        with pytest.raises(UserError) as caught:
            case.read(path)
        spent, said = time.thread_time() - begun, str(caught.value)
        if spent < SECONDS:
            break
    assert case.said in said
    assert "\n" not in said
    assert len(said) < LONGEST
    assert spent < SECONDS, f"{spent:.1f} s"


@pytest.mark.parametrize("read", dict.fromkeys(case.read for case in BEYOND), ids=lambda read: read.__name__)
def test_no_reader_waits_for_a_pipe_or_reads_a_device(read: Read, tmp_path: Path) -> None:
    if read is read_recording:
        pytest.skip("a recording may come from a pipe")
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", Path("/dev/zero")):
        with pytest.raises(UserError, match="not a plain file"):
            read(path)


def _history(path: Path, *statements: str) -> RunHistory:
    runs = RunHistory(path)
    for number in range(3):
        run = msgspec.structs.replace(a_run(), key=f"k{number}", pid=number + 1, started_at=100.0 + number)
        runs.keep(run)
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return runs


@pytest.mark.parametrize(
    ("document", "why"), [("zeroblob(3000000)", "larger than 1 MiB"), ("x'7b'", ""), ("7", ""), ("'text'", "")]
)
def test_a_damaged_run_or_one_larger_than_any_does_not_hide_the_others(tmp_path: Path, document: str, why: str) -> None:
    runs = _history(
        tmp_path / "runs.db",
        "PRAGMA ignore_check_constraints = 1",
        f"UPDATE runs SET document = {document} WHERE id = 2",  # noqa: S608 - the test's own
    )
    begun = time.thread_time()
    assert sorted(kept.id for kept in runs.runs()) == [1, 3]
    (said,) = runs.damaged
    assert "run 2 is damaged" in said
    assert why in said
    assert time.thread_time() - begun < SECONDS


@pytest.mark.slow
def test_a_table_that_has_no_end_is_given_up(tmp_path: Path) -> None:
    """It is a view: whoever gives a database away can put any in the place of a table."""
    endless = (
        "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id,"
        " 'k' AS key, i AS started_at, i AS ended_at, 'h' AS host, 'g' AS gpu_name, 'p' AS preset, 'm' AS method,"
        " 1 AS predicted, 1 AS observed, x'7b' AS document, 'u' AS gpu_uuid, 1 AS pid FROM n"
    )
    runs = _history(tmp_path / "runs.db", "DROP TABLE runs", endless)
    begun = time.thread_time()
    with pytest.raises(UserError, match="takes longer than 1 s to look up"):
        runs.runs()
    assert time.thread_time() - begun < 2 * SECONDS
