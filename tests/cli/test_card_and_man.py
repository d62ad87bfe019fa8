"""`vramtui card` draws a job's verdict and its parts; `vramtui man` is made from the commands themselves."""

import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import COMMANDS, program

RUNNER = CliRunner()


def drawn(tmp_path: Path, *arguments: str) -> ET.Element:
    path = tmp_path / "card.svg"
    done = RUNNER.invoke(program(["card"]), ["card", *arguments, "-o", str(path)])
    assert done.exit_code == 0, done.output
    return ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - our own


def words(root: ET.Element) -> str:
    return " ".join(one.text or "" for one in root.iter() if one.tag.endswith("text"))


def test_the_card_says_the_verdict_and_its_parts(tmp_path: Path) -> None:
    root = drawn(tmp_path, "llama-3.1-8b-lora", "--gpu", "H100")
    told = words(root)
    assert "Llama 3.1 8B · LoRA" in told
    assert "H100, 79.2 GiB · batch 4 · sequence 2048" in told
    assert "✓ fits H100" in told
    assert "needs 76.3 GiB, has 79.2 GiB" in told
    assert "largest batch 4" in told, "as `vramtui fit` says"
    assert "weights 14.99 GiB" in told


def test_the_bar_is_the_process_in_the_cards_memory(tmp_path: Path) -> None:
    root = drawn(tmp_path, "gpt2-124m", "--gpu", "H200")
    bars = [one for one in root.iter() if one.tag.endswith("rect") and one.get("y") == "340"]
    room, *pieces = (float(one.get("width", "0")) for one in bars)
    assert 0.1 < sum(pieces) / room < 0.2
    assert "url(" not in ET.tostring(root, encoding="unicode"), "nothing is loaded from anywhere"


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "card.svg"
    path.write_text("mine")
    done = RUNNER.invoke(program(["card"]), ["card", "gpt2-124m", "-o", str(path)])
    assert done.exit_code == 2
    assert "is there already" in done.output
    assert path.read_text() == "mine"


def test_a_png_needs_a_renderer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    done = RUNNER.invoke(program(["card"]), ["card", "gpt2-124m", "-o", str(tmp_path / "card.png")])
    assert done.exit_code == 2
    assert "a PNG needs one of rsvg-convert, inkscape" in done.output


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="librsvg draws in well under a second")
def test_a_png_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "card.png"
    done = RUNNER.invoke(program(["card"]), ["card", "gpt2-124m", "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_manual_has_every_command_and_option() -> None:
    done = RUNNER.invoke(program(), ["man"])
    assert done.exit_code == 0
    assert done.output.isascii()
    told = done.output.replace("\\-", "-")
    for name in COMMANDS:
        assert re.search(rf"^\\fBvramtui {name}\\fR", told, re.MULTILINE), name
    assert re.match(r'\.TH VRAMTUI 1 "\d{4}-\d\d-\d\d" "vramtui ', told)
    assert "\\fB--when-fits\\fR" in told
    assert "vramtui fit llama-3.1-8b-lora" in told
    requests = {line.split()[0] for line in told.splitlines() if line.startswith(".")}
    assert requests <= {".TH", ".SH", ".SS", ".B", ".I", ".PP", ".TP", ".RS", ".RE"}
