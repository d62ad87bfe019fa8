"""The lines that a far host prints, whichever program it is; of the loop of nvidia-smi and ps, which is for hosts with
neither vramtui nor python3, they are put together to samples.
"""

import calendar
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from vramtui.agent.stream import BROKEN, NO_NVML
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Absence, Gpu, Host, Problem, Process, Sample
from vramtui.sources.feed.pipe import LineDecoder
from vramtui.sources.nvidia_smi.runner import Output
from vramtui.sources.nvidia_smi.source import NvidiaSmiSource
from vramtui.sources.ssh.far_command import NO_PYTHON, NOT_STARTED, SMI_MARK, TOO_OLD

MOST_GREETING = 200  # lines that a login shell may print before anything else
MOST_LINES = 1 << 17  # of one frame
_MARK = re.compile(SMI_MARK.encode() + rb" (\d{1,3})")
_PS = re.compile(rb"\s*(\d+)\s+(\S+)\s+\w{3}\s+(\w{3}\s+\d+\s+[\d:]{8}\s+\d{4})\s?(.*)")
_REASONS = {
    NO_PYTHON: "neither vramtui nor a Python",
    TOO_OLD: "no vramtui, and its Python is older than 3.6",
    **dict.fromkeys(NOT_STARTED, "no vramtui, and no Python that starts"),
    BROKEN: "no vramtui, and its Python fails in what would read it",
    NO_NVML: "no vramtui, and its Python cannot load NVML's library",
}


def fallen_back(why: int) -> Problem:
    """Why nvidia-smi is read, by the exit code of the Python that would have run the agent."""
    reason = _REASONS.get(why, f"no vramtui, and its Python ended with {why}")
    return Problem(
        where="nvidia-smi",
        message=f"The host has {reason}, so nvidia-smi is read in a loop.",
        hint="Graphics clients, MIG instances and peaks between samples are not seen.",
    )


class FarLines:
    """Passes over what a login shell prints first, and then knows by the first line who speaks.

    Args:
        recording: makes what reads the lines of a recording.

    Attributes:
        decoder: what reads the lines; None until somebody speaks.
    """

    def __init__(self, recording: Callable[[], LineDecoder]) -> None:
        self._recording = recording
        self._greeting = 0
        self.decoder: LineDecoder | None = None

    def take(self, line: bytes) -> Sample | None:
        """The sample that the next line tells, if any.

        Raises:
            UserError: it is none of theirs.
        """
        if self.decoder is not None:
            return self.decoder.take(line)
        if line.startswith(b'{"vramtui_recording":'):
            self.decoder = self._recording()
            return self.decoder.take(line)
        mark = _MARK.fullmatch(line.strip())
        if mark is not None:
            self.decoder = SmiFrames(why=int(mark[1]))
            return None
        self._greeting += 1
        if self._greeting > MOST_GREETING:
            raise UserError("it prints something else than a recording")
        return None


class SmiFrames:
    """Takes line after line; a frame ends with `@end` and is one sample.

    Args:
        clock: seconds since the epoch, by this machine: the loop does not say when.
        why: the exit code of the Python that would have run the agent.
    """

    interval = None

    def __init__(self, clock: Callable[[], float] = time.time, *, why: int = NO_PYTHON) -> None:
        self._clock = clock
        self._parts: dict[str, list[bytes]] = {}
        self._part = ""
        self._count = 0
        self._columns: tuple[str, ...] = ()
        self._code = 0
        self._host = ""
        self._source = NvidiaSmiSource(self._answer, host=self._read_host, clock=clock, because=fallen_back(why))

    def take(self, line: bytes) -> Sample | None:
        """The sample that ends with this line, if one does.

        Raises:
            UserError: nvidia-smi tells nothing that can be used, or does not stop.
        """
        self._count += 1
        if line.startswith(b"@ "):
            self._columns = tuple(line[2:].decode(errors="replace").strip().split(","))
            self._parts, self._part, self._count = {}, "gpus", 0
        elif line.startswith(b"@apps "):
            self._part, self._code = "apps", _status(line[6:])
        elif line == b"@ps":
            self._part = "ps"
        elif line == b"@end":
            return self._sample()
        elif self._count > MOST_LINES:
            raise UserError("nvidia-smi does not stop")
        else:
            self._parts.setdefault(self._part, []).append(line)
        return None

    def _sample(self) -> Sample:
        gpus = self._parts.get("gpus", [])
        self._host = printable(gpus[0].decode(errors="replace")) if gpus else ""
        try:
            sample = self._source.read()
        except SourceFailed as failure:
            raise UserError(failure.message) from None
        except (LookupError, ValueError) as error:
            raise UserError(f"nvidia-smi's answer cannot be read: {printable(str(error))}") from None
        known = self._processes()
        return msgspec.structs.replace(sample, gpus=tuple(_introduced(gpu, known) for gpu in sample.gpus))

    def _answer(self, command: Sequence[str], limit: float) -> Output:
        """What the program printed in this frame, in place of running it."""
        del limit
        question = command[1]
        if question.startswith("--query-gpu="):
            text = b"\n".join(self._parts.get("gpus", [])[1:]).decode(errors="replace")
            asked = question.removeprefix("--query-gpu=").split(",")
            missing = next((name for name in asked if name not in self._columns), None)
            if missing is not None:
                # As a version says that does not know a field; the source then does without it.
                return Output(f'Field "{missing}" is not a valid field to query.', 2)
            return Output(_in_order(text, self._columns, asked), self._code)
        if question.startswith("--query-compute-apps="):
            return Output(b"\n".join(self._parts.get("apps", [])).decode(errors="replace"), 0)
        return Output("", 1)

    def _read_host(self, driver: str | None, cuda: str | None) -> Host:
        return Host(name=self._host or "?", driver_version=driver, cuda_version=cuda)

    def _processes(self) -> dict[int, Process]:
        processes = {}
        for line in self._parts.get("ps", []):
            matched = _PS.match(line)
            if matched is None:
                continue
            pid, user, started, command = matched.groups()
            try:
                at = calendar.timegm(time.strptime(b" ".join(started.split()).decode(), "%b %d %H:%M:%S %Y"))
            except ValueError:
                continue
            processes[int(pid)] = Process(
                pid=int(pid),
                type="C",
                user=printable(user.decode(errors="replace")),
                command=printable(command.decode(errors="replace")),
                started_at=float(at),
                state="zombie" if command.endswith(b"<defunct>") else "running",
            )
        return processes


def _introduced(gpu: Gpu, known: dict[int, Process]) -> Gpu:
    def row(process: Process) -> Process:
        before = known.get(process.pid)
        if before is None:
            absent = {**process.absent, **dict.fromkeys(("user", "command", "started_at"), Absence.NO_ANSWER)}
            return msgspec.structs.replace(process, absent=absent)
        return msgspec.structs.replace(
            process, user=before.user, command=before.command, started_at=before.started_at, state=before.state
        )

    return msgspec.structs.replace(gpu, processes=tuple(row(process) for process in gpu.processes))


def _in_order(text: str, printed: Sequence[str], asked: Sequence[str]) -> str:
    """The lines with their cells in the order that is asked for; what is no such line stays as it is."""
    lines = []
    for line in text.splitlines():
        cells = line.split(", ", len(printed) - 1)
        if len(cells) == len(printed):
            by_name = dict(zip(printed, cells, strict=True))
            line = ", ".join(by_name[name] for name in asked)  # noqa: PLW2901 - the same line in another order
        lines.append(line)
    return "\n".join(lines)


def _status(output: bytes) -> int:
    """A shell's exit status.

    Raises:
        UserError: it is none.
    """
    text = output.strip()
    if not re.fullmatch(rb"\d{1,3}", text):
        raise UserError(f"nvidia-smi's exit status cannot be read: {printable(text[:20].decode(errors='replace'))}")
    return int(text)
