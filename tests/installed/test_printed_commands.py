"""Every command that a page prints, run as it is printed, in a terminal on a stand-in host.

What a page prints below a prompt is compared in tests/test_docs.py; the commands of docs/articles.md run in
tests/articles. Of a line in `sh` the whole line runs, pipes and all, by a shell.
"""

import json
import os
import pickle
import re
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import vramtui
from tests.examples import a_run
from tests.installed.sleepers import sleepers
from tests.installed.stand_in import COMMANDS, StandIn
from tests.installed.terminal import Terminal
from tests.models.test_hub import CONFIG as HUB_CONFIG
from tests.models.test_hub import Hub
from tests.models.test_stores import CONFIG, gguf_bytes, ollama
from tests.records.test_memory_snapshot import failed_snapshot
from tests.test_docs import MESSAGE, PAGES, ROOT
from vramtui.cli.main import program
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.files import RecordingHeader, RecordingWriter
from vramtui.records.run_history import FILE, RunHistory

# What stands for something, and what stands for it here; then places that are not this folder's.
MEANT = {
    "MODEL": "gpt2-124m", "PRESET...": "gpt2-124m", "PRESET": "gpt2-124m", "COMMAND": "python train.py",
    "--replay FILE": "--replay night.vram", "RUN": "1", "/shared/": "", "/var/lib/node_exporter/": "",
}  # fmt: skip
# It trains on a GPU alone: in a dry run, and not where a line starts it as it is.
SCRIPT = """\
import torch

def step():
    layer = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(torch.randn(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__" and torch.cuda.is_available():
    step()
"""
# What else than an answer a line has here: exit codes, and words of the sentence.
OTHERWISE = {
    "vramtui estimate llama3.2:1b": ((2,), "llama3.2:1b: model.parameters = 6,144 but"),  # the store's file is a header
    "vramtui oom": ((2,), "no out-of-memory message found"),  # nothing is pasted
    "vramtui record -": ((2,), "record - is for a program that reads it, and this is a terminal"),
    "vramtui record FILE --feed -": ((2,), "--feed - reads standard input, which is the terminal"),
    "vramtui --prometheus http://localhost:9090": ((3,), "9090"),
    "vramtui ps --prometheus https://prometheus.example --token-file token.txt": ((3,), "prometheus.example"),
}
CALL = re.compile(r"(^|[ (])vramtui( |$)")
# No call, but the name of one; what installs; and servers that want PyTorch's CUDA build, which the tests do without.
NOT_RUN = re.compile(
    r"vramtui (--install-completion|dry-run|run|estimate|fit|estimate --json)|(pip|docker) .*|vramtui dry-run .*vllm .*"
)
DASHBOARD = re.compile(r"^vramtui(?! \w)(?! --(once|prometheus))")
ANSWERED_HERE = re.compile(
    r"vramtui (estimate|fit|oom|presets|history|help|doctor --settings|dry-run --gpu [\w,]+ train.py)( [^|>$]*)?"
)
LASTING = re.compile(r"vramtui (record|export|ps --watch)")


class Printed(NamedTuple):
    page: str
    line: str


def printed() -> Iterator[Printed]:
    seen: set[str] = set()
    pages = [path for path in PAGES if path.name != "articles.md" and path.parent.name != "decisions"]
    for path in (*pages, ROOT / "README.md", *(ROOT / "packaging").rglob("*.md")):
        text = path.read_text(encoding="utf-8").replace("\\|", "|")
        lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        lines += re.findall(r"^\$ (.*)$", text, re.MULTILINE) if path.name == "README.md" else []
        outside = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        lines += [" ".join(one.split()) for one in re.findall(r"`((?:vramtui|ssh) [^`]+)`", outside)]
        for whole in lines:
            line = whole.partition("  #")[0].strip()
            for words, meant in MEANT.items():
                line = line.replace(words, meant)
            if CALL.search(line) and not NOT_RUN.fullmatch(line) and "…" not in line and line not in seen:
                seen.add(line)
                yield Printed(path.name, line)


class Host:
    """A machine on which everything is that the pages speak of: a driver, scripts, files, other hosts, Slurm, a Hub."""

    def __init__(self, folder: Path, stand_in: StandIn, hub: str) -> None:
        self.folder = folder / "work"
        self.home = folder / "home"
        commands = folder / "commands"
        for made in (self.folder / "path" / "to", self.home / ".config" / "vramtui", self.home / "envs"):
            made.mkdir(parents=True)
        shutil.copytree(Path(__file__).with_name("commands"), commands)
        self._fill()
        own = {name: None for name in os.environ if name.startswith(("VRAMTUI_", "XDG_", "HF_"))}
        self.environment = {
            **own, **{name: stand_in.environment[name] for name in ("LD_LIBRARY_PATH", "VRAMTUI_STUB_STATE")},
            "HOME": str(self.home), "PATH": f"{commands}:{Path(sys.executable).parent}:/usr/bin:/bin", "EDITOR": "true",
            "HF_ENDPOINT": hub, "COLUMNS": None,
        }  # fmt: skip

    def _fill(self) -> None:
        (self.home / ".config" / "vramtui" / "config.toml").write_text('[hosts]\ntrain = ["gpu[01-02]"]\n')
        (self.home / "envs" / "job").symlink_to(sys.prefix)
        (self.home / ".local/share/bash-completion/completions").mkdir(parents=True)
        for name in ("config.json", "path/to/config.json"):
            (self.folder / name).write_text(json.dumps(CONFIG))
        (self.folder / "train.py").write_text(SCRIPT)
        (self.folder / "train.log").write_text(MESSAGE)
        (self.folder / "token.txt").write_text("secret")
        (self.folder / "token.txt").chmod(0o600)
        for name in ("night.vram", "night.jsonl"):
            with closing(RecordingWriter(self.folder / name, RecordingHeader())) as writer:
                writer.write(RecordedTick(sample=vramtui.sample(demo=True)))
        (self.folder / "snapshot.pickle").write_bytes(pickle.dumps(failed_snapshot()))
        state = self.home / ".local" / "state" / "vramtui"
        state.mkdir(parents=True)
        RunHistory(state / FILE).keep(a_run(key="1", pid=1, ended_at=2000.0, ending="exited"))
        ollama(self.home, "registry.ollama.ai/library/llama3.2/1b", gguf_bytes())


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    Hub.files = {"config.json": json.dumps(HUB_CONFIG).encode()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def host(tmp_path: Path, hub: str) -> Iterator[Host]:
    with sleepers(COMMANDS) as pids:
        yield Host(tmp_path, StandIn(tmp_path, pids), hub)


def run(host: Host, line: str) -> tuple[int, str]:
    """The exit code and the screen of a line that is typed into a shell; what goes on is left as a person leaves it."""
    if made := re.search(r"vramtui record (\S+)", line):
        (host.folder / made[1]).unlink(missing_ok=True)  # a recording never overwrites one
    there = set(host.folder.iterdir())
    with Terminal(["sh", "-c", line], size=(158, 60), env=host.environment, cwd=host.folder) as terminal:
        last = line.rpartition("| ")[2]
        if DASHBOARD.search(last):
            terminal.wait_for("q quit")
            terminal.send("q")
        elif LASTING.search(last) and line not in OTHERWISE:
            terminal.wait(
                lambda screen: bool(screen.strip()) or set(host.folder.iterdir()) > there, "a first word or file"
            )
            terminal.send("\x03")
        return terminal.ended(), terminal.text


COSTLY = re.compile(r"vramtui (dry-run|run|fit) ")  # they train, or plan, for many seconds


def _kinds(line: str) -> tuple[str, frozenset[str]]:
    words = line.split()
    gpus = {mark for mark in (",", "x") for word in words if mark in word and word[:1].isdigit()}
    launcher = {word for word in words if word == "torchrun"}
    return words[1], frozenset({word for word in words if word.startswith("--") and word != "--"} | gpus | launcher)


def _chosen(lines: list[str]) -> Iterator[str]:
    costly = {line: _kinds(line) for line in lines if COSTLY.match(line)}
    for line in lines:
        others = [(other, kinds) for other, kinds in costly.items() if other != line and line in costly]
        mine = costly.get(line, ("", frozenset()))
        if not any(
            kinds[0] == mine[0]
            and (mine[1] < kinds[1] or (mine[1] == kinds[1] and lines.index(other) < lines.index(line)))
            for other, kinds in others
        ):
            yield line


LINES = list(_chosen([one.line for one in printed()]))
TRACES = [line for line in LINES if "dry-run" in line]
HERE = [line for line in LINES if ANSWERED_HERE.fullmatch(line) and line not in TRACES]


def check(line: str, code: int, shown: str) -> None:
    # Ctrl-C may come before a command that lasts takes it for its end: then the shell says so, or the command's parser.
    codes, words = OTHERWISE.get(line, ((-signal.SIGINT, 128 + signal.SIGINT, 0, 1), ""))
    assert code in codes, shown
    assert words in " ".join(shown.split())
    assert "Traceback" not in shown


@pytest.mark.parametrize("line", HERE)
def test_a_printed_question_is_answered(line: str, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    check(line, *answer(host, line, monkeypatch))


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("line", TRACES)
def test_a_printed_trace_is_made(
    line: str, host: Host, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("transformers" if "config.json" in line else "torch")
    if "--python" not in line:  # another Python than this one
        request.getfixturevalue("warm_children")
    check(line, *(answer(host, line, monkeypatch) if ANSWERED_HERE.fullmatch(line) else run(host, line)))


@pytest.mark.slow
@pytest.mark.pty
@pytest.mark.parametrize("line", [line for line in LINES if line not in (*HERE, *TRACES)])
def test_a_printed_command_does_what_it_says(line: str, host: Host) -> None:
    check(line, *run(host, line))


def answer(host: Host, line: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    for name, value in host.environment.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "158")
    monkeypatch.chdir(host.folder)
    words = shlex.split(line.replace("~", str(host.home)))[1:]
    done = CliRunner().invoke(program([words[0]]), words)
    return done.exit_code, done.output
