import csv
import io
import json
import unicodedata
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.records.moments import TAKEN_AT, moment
from vramtui.core.observation.readings import Gpu, Host, Process, Sample, process_key
from vramtui.core.observation.snapshot import Holding, Snapshot, WhatIf
from vramtui.presets import PresetLibrary
from vramtui.records.export import files as saving
from vramtui.records.export.markdown import code, markdown_report, prose
from vramtui.records.export.plain import COLUMNS, csv_table, ps_document

KINDS = ("json", "csv", "md", "html")


def test_the_first_line_is_the_sentence_to_forward() -> None:
    taken = moment()
    first, *others = taken.holdings
    workload = PresetLibrary().get("llama-3.1-8b-lora").preset.workload
    tried = WhatIf(changes={"run.batch_size": 8}, process=90 << 30)
    taken = msgspec.structs.replace(
        taken, holdings=(msgspec.structs.replace(first, workload=workload, what_if=tried), *others)
    )
    sentence = "pid 4213 (anna) on GPU 0: 60.0 of 61.5 GiB predicted (−2.4 %), fits, 74.3 spare"
    assert taken.sentences == (sentence,)
    report, page = (saving.file_text(kind, taken) for kind in ("md", "html"))
    assert report.splitlines()[0].replace("\\", "").rstrip() == sentence
    assert sentence in page
    for text in (report, page):
        assert "batch_size = 4, sequence_length = 2048, precision = bf16" in text
        assert "what if run.batch" in text.replace("\\", "")
        assert text.index("anna") < text.index("Settings: ") < text.index("Every byte")
    assert "| `anna` | 1 | 58.00 |" in report
    document = ps_document(taken)
    assert document["summary"] == [sentence]
    assert document["users"][0] == {"user": "anna", "processes": 1, "used_memory": 58 * (1 << 30) + 4096}
    process = document["gpus"][0]["processes"][0]
    assert process["settings"].startswith("kind = train, batch_size = 4")
    assert process["outlook"] == ["what if run.batch_size = 8: 90.0 GiB"]
    wide = msgspec.structs.replace(first, span=(27 << 30, 44 << 30), what_if=None)
    guess = "pid 4213 (anna) on GPU 0: 60.0 GiB, may need 27.0 GiB to 44.0 GiB: not all of its settings are known"
    unmatched = msgspec.structs.replace(wide, comparison=None)
    assert msgspec.structs.replace(taken, holdings=(unmatched, first)).sentences == (guess, sentence)
    none = msgspec.structs.replace(taken, holdings=tuple(others))
    assert none.sentences == ("pid 5120 (bo) on GPU 0: 2.0 GiB, no prediction",)


class Text(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT


def _with_command(command: str) -> Snapshot:
    process = Process(pid=7, type="C", user=command, name=command, command=command)
    gpu = Gpu(index=0, uuid="GPU-0", name=command, processes=(process,))
    sample = Sample(taken_at=TAKEN_AT, source=command, host=Host(name=command), gpus=(gpu,))
    holding = Holding(key=process_key(command, gpu, process), gpu_index=0, process=process, preset=command)
    return Snapshot(sample=sample, holdings=(holding,), versions={"vramtui": command})


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_text(kind: str, snapshot: SnapshotAssertion) -> None:
    extension = type("Golden", (Text,), {"file_extension": kind})
    assert saving.file_text(kind, moment()) == snapshot(extension_class=extension)


@pytest.mark.parametrize("kind", ["md", "html"])
@pytest.mark.parametrize(("vendor", "other"), [("AMD", "NVIDIA"), ("NVIDIA", "AMD")])
def test_a_context_is_called_as_the_cards_vendor_calls_it(kind: str, vendor: str, other: str) -> None:
    taken = moment()
    gpus = tuple(msgspec.structs.replace(gpu, vendor=vendor) for gpu in taken.sample.gpus)
    text = saving.file_text(
        kind, msgspec.structs.replace(taken, sample=msgspec.structs.replace(taken.sample, gpus=gpus))
    )
    titles = {"AMD": "HIP context", "NVIDIA": "CUDA context"}
    assert titles[vendor] in text
    assert titles[other] not in text


@given(st.text(st.characters(exclude_categories=()), min_size=1))
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_reaches_a_terminal_as_an_order(kind: str, command: str) -> None:
    text = saving.file_text(kind, _with_command(command)).replace("\n", "")
    assert {unicodedata.category(character) for character in text}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    text.encode()


def test_the_document_has_the_fields_others_build_on_and_every_field_of_a_gpu_and_a_process() -> None:
    document = json.loads(json.dumps(ps_document(moment()), allow_nan=False))
    assert document["schema"] == 1
    assert {"host", "taken_at", "source", "gpus", "problems"} <= document.keys()
    busy, cut, _, lost = document["gpus"]
    assert {"index", "uuid", "name", "state", "memory", "utilization", "power_watts", "processes"} <= busy.keys()
    assert busy["memory"] == {
        "total": 150754820096,
        "used": 66571993088,
        "reserved": 644874240,
        "free": 83537952768,
        "unattributed": 66571993088 - sum(p["used_memory"] or 0 for p in busy["processes"]),
        "unified": False,
    }
    assert lost["state"] == "lost"
    assert set(lost["memory"].values()) == {None, False}
    assert cut["memory"]["unattributed"] == 1 << 30
    training = busy["processes"][0]
    assert (
        training
        | {
            "pid": 4213,
            "type": "C",
            "user": "anna",
            "command": "python train.py --lr=1e-4 --model llama",
            "used_memory": 62277029888,
            "peak_memory": 64424509440,
            "started_at": TAKEN_AT - 600,
            "state": "running",
            "preset": "llama-3.1-8b-lora",
            "predicted_memory": 66022539264,
        }
        == training
    )
    unknown = busy["processes"][-1]
    assert (unknown["used_memory"], unknown["peak_memory"], unknown["predicted_memory"]) == (None, None, None)
    assert unknown["absent"] == {"used_memory": "no_permission"}
    gpu = ps_document(moment())["gpus"][0]
    assert set(Gpu.__struct_fields__) <= gpu.keys()
    assert set(Process.__struct_fields__) <= gpu["processes"][0].keys()


def test_the_rows_of_the_table_add_up_to_the_byte_and_a_cell_is_a_number_or_no_formula() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_table(moment()))))
    held: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        if row["now_bytes"]:
            held[row["gpu_index"]][row["line"]] += int(row["now_bytes"])
    for index in ("0", "2"):
        total = held[index].pop("device_total")
        assert sum(held[index].values()) == total
    users = {row["user"] for row in rows}
    assert "'=cmd|' /C calc'!A0" in users
    assert "'@SUM(A1)" in {row["command"] for row in rows}
    differences = [float(row["difference_bytes"]) for row in rows if row["difference_bytes"]]
    assert min(differences) < 0


@given(st.text(min_size=1))
def test_a_spreadsheet_never_sees_a_formula(command: str) -> None:
    (heading, *rows) = list(csv.reader(io.StringIO(csv_table(_with_command(command)))))
    assert tuple(heading) == COLUMNS
    for row in rows:
        for cell in row:
            assert not cell.strip().startswith(("=", "+", "-", "@"))


class TestMarkdown:
    def test_text_is_a_code_span_and_what_could_end_it_is_spelt(self) -> None:
        assert code("python train.py --lr=1e-4 *.txt [red]") == "`python train.py --lr=1e-4 *.txt [red]`"
        assert code("a|b") == "<code>a&#124;b</code>"
        assert code("`<b>`") == "<code>&#96;&#60;b&#62;&#96;</code>"
        assert code("&amp; @all") == "<code>&#38;amp&#59; &#64;all</code>"
        assert code(None) == code("") == "–"

    @given(st.text(min_size=1))
    def test_a_row_keeps_its_cells(self, command: str) -> None:
        report = markdown_report(_with_command(command))
        widths = {}
        for line in report.split("\n"):
            if line.startswith(("| GPU", "| User")):
                width = line.count("|")
            if line.startswith("| "):
                widths[line] = line.replace("\\|", "").count("|") == width
        assert len(widths) >= 9
        assert all(widths.values())

    @given(st.text(min_size=1))
    def test_html_never_comes_alive(self, text: str) -> None:
        inner = code(text).removeprefix("<code>").removesuffix("</code>")
        assert not {"<", ">"} & set(inner)
        assert not {"<", ">"} & set(prose(text))


@given(st.builds(dict, cpu_percent=st.floats(), host_memory=st.none() | st.integers(0, 2**60)))
def test_json_holds_any_number(fields: dict[str, Any]) -> None:
    taken = _with_command("x")
    gpu = taken.sample.gpus[0]
    process = msgspec.structs.replace(gpu.processes[0], **fields)
    gpu = msgspec.structs.replace(gpu, processes=(process,))
    taken = msgspec.structs.replace(taken, sample=msgspec.structs.replace(taken.sample, gpus=(gpu,)))
    json.dumps(ps_document(taken), allow_nan=False)
