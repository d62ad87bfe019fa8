"""`%load_ext vramtui.integrations.jupyter`: `%vram` shows the GPUs, `%%vram` what a cell's code took."""

from typing import Any

from vramtui.api.estimation import JobEstimate, estimate
from vramtui.api.observation import observe, sample
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import format_bytes

USAGE = (
    "%vram: the GPUs now; %vram PRESET [KEY=VALUE ...] [gpu=CARD]: an estimate; "
    "%%vram [PRESET ...] above a cell: what it took, beside the estimate"
)


def load_ipython_extension(shell: Any) -> None:
    """Register the magic."""
    shell.register_magic_function(lambda line, cell=None: vram(shell, line, cell), "line_cell", "vram")


def vram(shell: Any, line: str, cell: str | None = None) -> object:
    """What the magic gives: a sentence, or an estimate that the notebook draws as a table."""
    try:
        if cell is None:
            return _line(line)
        with observe(_estimated(line.split()) if line.split() else None) as run:
            shell.run_cell(cell)
    except UserError as error:
        return print(f"vramtui: {error}")  # noqa: T201 - a notebook's answer
    except SourceFailed as error:
        return print(f"vramtui: {error.message} {error.hint}")  # noqa: T201 - as above
    ledger = run.ledger
    if ledger is None:
        return print("The cell used no CUDA memory through PyTorch.")  # noqa: T201 - as above
    parts = [f"peak allocated {format_bytes(ledger.allocated, 2)}, peak reserved {format_bytes(ledger.reserved, 2)}"]
    if run.predicted is not None:
        known = run.predicted.estimate
        parts.append(
            f"predicted by {run.predicted.preset.key}: allocated {format_bytes(known.allocated, 2)}, "
            f"reserved {format_bytes(known.reserved, 2)}"
        )
    return print("\n".join(parts))  # noqa: T201 - as above


def _line(line: str) -> object:
    words = line.split()
    if words == ["?"]:
        return print(USAGE)  # noqa: T201 - as above
    if words:
        return _estimated(words)
    for gpu in sample().gpus:
        memory = f"{format_bytes(gpu.memory.used)} of {format_bytes(gpu.memory.total)}"
        print(f"GPU {gpu.index} {gpu.name}: {memory}, {len(gpu.processes)} processes")  # noqa: T201 - as above
    return None


def _estimated(words: list[str]) -> JobEstimate:
    """What `PRESET [KEY=VALUE ...] [gpu=CARD]` asks for.

    Raises:
        UserError: there is no such preset, or it has no such key.
    """
    pairs = (word.partition("=") for word in words[1:])
    settings: dict[str, Any] = {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
    return estimate(words[0], **settings)
