"""`vramtui trace`: run a training script on a card that is not there, and see its memory."""

import sys
from typing import Annotated

import typer

from vramtui.cli.console import print_json, print_table
from vramtui.cli.exits import NO, leave, spoken_errors
from vramtui.core.devices import DEFAULT_CARD, Device, card
from vramtui.core.text import printable
from vramtui.core.units import format_bytes, format_gib, parse_size
from vramtui.estimators.traced.results import Progress, TraceRequest, TraceResult

BAR_WIDTH = 40
MARKS = {
    "weights": "W",
    "gradients": "G",
    "optimizer": "O",
    "activations": "A",
    "inputs": "I",
    "workspaces": "S",
    "temporaries": "T",
    "kv_cache": "K",
}


def trace(
    target: Annotated[str, typer.Argument(metavar="FILE.py[:FUNCTION]", help="A script, or one function of it.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="For the script.")] = None,
    device: Annotated[str, typer.Option(help="The card to stand in for: H200, A100, T4, ...")] = DEFAULT_CARD,
    memory: Annotated[str | None, typer.Option(help="The card's memory, as in 24GiB.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Stop after this many optimizer steps.")] = 3,
    alloc_conf: Annotated[str, typer.Option(help="What PYTORCH_CUDA_ALLOC_CONF would say.")] = "",
    separate_lt_workspace: Annotated[
        bool, typer.Option(help="A cuBLASLt workspace of its own, as PyTorch up to 2.11 keeps it.")
    ] = False,
    timeout: Annotated[float | None, typer.Option(min=1, help="Give up after this many seconds.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False,
) -> None:
    """Run PyTorch code on fake tensors as if the card were there, and show its memory phase by phase.

    The code runs, in a process of its own, up to the end of the last step: it is your own code, with all it does.
    """
    with spoken_errors():
        from vramtui.estimators.traced.run import split_target  # noqa: PLC0415 - only here
        from vramtui.estimators.traced.run import trace as run  # noqa: PLC0415 - only here

        path, function = split_target(target)
        request = TraceRequest(
            path=path,
            function=function,
            arguments=tuple(arguments or ()),
            device=_device(device, memory),
            steps=steps,
            alloc_conf=alloc_conf,
            separate_lt_workspace=separate_lt_workspace,
        )
        speak = not json and sys.stderr.isatty()
        result = run(request, progress=_tell if speak else None, timeout=timeout)
        if json:
            print_json(document(result))
        else:
            _print(result)
        if result.out_of_memory is not None:
            leave(NO, result.out_of_memory)


def document(result: TraceResult) -> dict[str, object]:
    """What `--json` prints."""
    import msgspec  # noqa: PLC0415 - only here

    built = msgspec.to_builtins(result)
    assert isinstance(built, dict)
    built["series"] = [[point.event, point.allocated, point.reserved] for point in result.series]
    return built


def _device(name: str, memory: str | None) -> Device:
    found = card(name)
    if memory is None:
        return found
    return Device(name=found.name, capability=found.capability, total_memory=parse_size(memory))


def _tell(progress: Progress) -> None:
    step = f" {progress.step}" if progress.step >= 0 else ""
    sys.stderr.write(f"\r\x1b[K{progress.phase}{step}: {format_bytes(progress.allocated)}")
    sys.stderr.flush()


def _print(result: TraceResult) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    top = max((row.peak_allocated for row in result.timeline), default=1) or 1
    rows = [
        (
            row.phase,
            str(row.step) if row.step >= 0 else "",
            format_gib(row.allocated),
            format_gib(row.reserved),
            format_gib(row.peak_allocated),
            format_gib(row.peak_reserved),
            bar(row.categories, row.peak_allocated, top),
        )
        for row in result.timeline
    ]
    print_table(
        ("PHASE", "STEP", "ALLOC", "RESERVED", "PEAK", "PEAK RES", "HELD AT ITS END"), rows, right=(1, 2, 3, 4, 5)
    )
    sys.stdout.write(
        "GiB. " + "  ".join(f"{mark} {name}" for name, mark in MARKS.items()) + "  · peak of the phase\n\n"
    )
    _print_peak(result)


def bar(categories: dict[str, int], peak: int, top: int) -> str:
    """Categories as letters, and dots up to the phase's peak; BAR_WIDTH is `top` bytes."""
    text, total = "", 0
    for name, mark in MARKS.items():
        total += categories.get(name, 0)
        text += mark * (round(total * BAR_WIDTH / top) - len(text))
    return text + "·" * (round(peak * BAR_WIDTH / top) - len(text))


def _print_peak(result: TraceResult) -> None:
    where = f"{result.peak_phase} {result.peak_step}" if result.peak_step >= 0 else result.peak_phase
    sys.stdout.write(
        f"peak allocated {format_bytes(result.peak_allocated)} in {where}, "
        f"peak reserved {format_bytes(result.peak_reserved)}, "
        f"process about {format_bytes(result.process)} on {result.device}\n\nlargest at the peak\n"
    )
    rows = [
        (format_bytes(held.bytes), held.category, printable(held.module or held.operator), printable(held.line))
        for held in result.largest
    ]
    print_table(("SIZE", "WHAT", "MODULE", "LINE"), rows, right=(0,))
    for sentence in result.warnings:
        sys.stdout.write(f"note: {sentence}\n")
