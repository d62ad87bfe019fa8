"""`dry_run`: a job as it is on a card that is not there, by the program's own `run --on`."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import DEFAULT_CARD
from vramtui.core.observation.probe_messages import PhaseEnd

Values = Literal["zeros", "ones"]
LAST_WORDS = 500  # characters of what a job that told nothing said last


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a job came to on an emulated card: figures of its largest process, in bytes.

    Attributes:
        verdict: `fits`, `tight`, `does not fit`, or `failed` where the job ended for another reason.
        exit_code: of the job.
        steps: that its optimizers took.
        allocated, reserved: PyTorch's peaks; `process` with the context and what other libraries hold.
        memory: of the card.
        parts: weights, gradients, optimizer and activations at the peak, as far as they are known.
        phases: the ends of its phases.
        out_of_memory: what was asked for, and how much was free, where it ran out.
        bounded: whether its way may hang on values that kernels would have computed; `read_places` names the lines.
        unmodelled: functions that the emulated card does not have, with the library that called each.
    """

    card: str
    cards: int
    verdict: str
    exit_code: int
    steps: int
    allocated: int | None
    reserved: int | None
    process: int | None
    memory: int
    parts: dict[str, int | None] | None
    phases: tuple[PhaseEnd, ...]
    out_of_memory: dict[str, Any] | None
    bounded: bool
    reads: int
    read_places: tuple[dict[str, Any], ...]
    unmodelled: tuple[dict[str, str], ...]

    @property
    def fits(self) -> bool | None:
        """None where the job failed for another reason than memory."""
        return None if self.verdict == "failed" else self.verdict != "does not fit"


class _Document(msgspec.Struct):
    cards: list[DryRun]


def dry_run(
    command: Sequence[str],
    *,
    on: str = DEFAULT_CARD,
    steps: int | None = 3,
    values: Values = "zeros",
    timeout: float | None = None,
    show_output: bool = False,
) -> DryRun:
    """Run a command, unchanged and without a GPU, with PyTorch's CUDA build on an emulated card.

    Args:
        command: program and arguments, as `["python", "train.py", "--batch-size", "8"]`; its Python is the job's.
        on: the card, or several of one kind: `"RTX4090"`, `"8xH100"`.
        steps: end it after so many steps of its optimizer; None: at its own end.
        values: as what values are read that kernels would have computed.
        timeout: seconds after which it is ended.
        show_output: let what it prints through to standard error.

    Raises:
        UserError: the card is not known, there is no C compiler, the program `vramtui` is not installed, the job used
            no CUDA, or it took longer than `timeout`.
    """
    if find_spec("vramtui.cli") is None:
        raise UserError("dry_run needs the program: pip install vramtui")
    taken = [] if steps is None else ["--steps", str(steps)]
    asked = ["run", "--on", on, "--json", "--values", values, *taken, "--", *command]
    with subprocess.Popen(  # noqa: S603 - the caller's own command, in vramtui's own program
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-m", "vramtui", *asked],
        stdout=subprocess.PIPE,
        stderr=None if show_output else subprocess.PIPE,
        text=True,
    ) as ran:
        try:
            told, said = ran.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            ran.terminate()  # which it passes on to the job
            raise UserError(f"the job did not end within {timeout:g} s") from None
    try:
        (found,) = msgspec.json.decode(told, type=_Document).cards
    except (msgspec.DecodeError, ValueError):
        last = (said or "").strip()[-LAST_WORDS:]
        raise UserError(last.removeprefix("vramtui: ") or "the job told nothing") from None
    if found.process is None and found.verdict == "failed" and found.exit_code == 0:
        raise UserError("no process of it used CUDA through PyTorch")
    return found
