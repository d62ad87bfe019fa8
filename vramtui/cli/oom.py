"""`vramtui oom`: what an out-of-memory message means, and what would have fitted."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.cli.common.exit_codes import say
from vramtui.cli.options import command_of
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from vramtui.core.estimate.devices import Device
    from vramtui.core.observation.oom.report import OomReport
    from vramtui.core.schema.preset import PresetFile
    from vramtui.estimators.planner.planner import Plan

PIECE = 1 << 20  # bytes that are read at once


@command_of
def oom(log: str | None = None, preset: str | None = None, gpu: str | None = None, *, json: bool = False) -> None:
    """Explain an out-of-memory message: not enough memory, fragmentation, another process, or host memory.

    Reads logs of PyTorch, vLLM, SGLang, TGI, llama.cpp, Ollama, ComfyUI, TensorRT-LLM, JAX, TensorFlow, CuPy, Rust
    programs, CUDA's libraries, the kernel, Slurm and containers. Of a memory snapshot
    (`torch.cuda.memory._dump_snapshot`) it shows what held memory when the request failed.
    """
    import msgspec

    from vramtui.cli.common.console import print_json, print_wrapped, text_width
    from vramtui.core.observation.oom.advice import ways_of
    from vramtui.core.observation.oom.read import read_oom
    from vramtui.records.memory_snapshot import is_snapshot

    if log is not None and is_snapshot(Path(log)):
        _explain_snapshot(Path(log), json=json)
        return
    report = read_oom(_text(log))
    preset_file, plan, remark = _planned(report, preset, gpu)
    if json:
        changes = None
        if plan is not None and plan.cheapest is not None:
            changes = {key: value for mitigation in plan.cheapest for key, value in mitigation.changes.items()}
        hidden = {"known_cause", "headline", "own_ways", "setting", "windows"}
        facts = msgspec.to_builtins(report, str_keys=True)
        print_json(
            {
                "schema": 1,
                "program": report.program,
                "cause": report.cause,
                "sentence": report.cause_sentence(),
                "numbers": report.numbers(),
                "ways": [{"text": way.text, "frees": way.frees} for way in ways_of(report)],
                **{name: value for name, value in facts.items() if name not in hidden},
                "others_hold": report.others_hold,
                "changes": changes,
            }
        )
        return
    rank = f" (rank {report.rank})" if report.rank is not None else ""
    where = f" · requested at {printable(report.line)}" if report.line else ""
    lines = [printable(report.cause_sentence()) + rank, (report.numbers() + where).removeprefix(" · ")]
    lines += (f"{number}. {way.line}" for number, way in enumerate(ways_of(report), 1))
    if plan is not None and preset_file is not None:
        name = preset_file.key
        if report.command and not preset_file.path:
            name = preset_file.preset.name
            lines.append(f"From the log: {printable(report.command[:300])}")
            for edge in (plan.edge, *plan.also):
                if edge.largest is not None:
                    lines.append(f"✓ with --{edge.key.removeprefix('run.').replace('_', '-')} {edge.largest}")
        lines += advice_lines(printable(name), plan)
    for line in filter(None, (*lines, remark)):
        print_wrapped(line, text_width())


def _explain_snapshot(path: Path, *, json: bool) -> None:
    """Print what held memory at the failure, the largest blocks and fragmentation."""
    from vramtui.cli.common.console import print_json, print_table, print_wrapped, text_width
    from vramtui.core.base.units import format_bytes
    from vramtui.records.memory_snapshot import read_held_memory

    held_memory = read_held_memory(path)
    if json:
        import msgspec

        print_json({"schema": 1, "explanation": held_memory.cause, **msgspec.to_builtins(held_memory)})
        return
    print_wrapped(held_memory.cause, text_width())
    facts = {
        "allocated": held_memory.allocated,
        "reserved": held_memory.reserved,
        "reserved but unused": held_memory.reserved - held_memory.allocated,
        "largest free block": max(held_memory.free_blocks, default=None),
        "free on the GPU": held_memory.device_free,
        "peak allocated": held_memory.peak_allocated,
        "peak reserved": held_memory.peak_reserved,
    }
    print(f"  GPU {held_memory.gpu}")
    for name, size in facts.items():
        if size is not None:
            print(f"  {name:<25}{format_bytes(size, 2):>12}")
    unknown = "unknown (record with stacks: torch.cuda.memory._record_memory_history())"
    rows = [(format_bytes(one.size, 2), str(one.blocks), one.where or unknown) for one in held_memory.holders]
    print_table(("HELD", "BLOCKS", "ALLOCATED BY"), rows, right=(0, 1))
    print_table(
        ("LARGEST", "ALLOCATED BY"),
        [(format_bytes(b.size, 2), b.where or unknown) for b in held_memory.largest],
        right=(0,),
    )


def _text(log: str | None) -> str:
    """Read the log of that name, the message itself if no file has that name, or standard input."""
    if log is None or log == "-":
        if sys.stdin.isatty():
            say("paste the message, then press Ctrl-D")
        return _start_and_end(sys.stdin.buffer)
    from vramtui.models.readers.bounded import open_plain

    if len(log.split()) > 1 and not os.path.exists(log):  # noqa: PTH110 - False for a text that no path can be
        return log
    with open_plain(Path(log), pipes=True)[0] as file:
        return _start_and_end(file)


def _start_and_end(file: "BinaryIO") -> str:
    """Read the first MiB, which names the job, and the end, where it failed; `file` may be a pipe."""
    from vramtui.core.base.file_limits import LOG

    start, end = file.read(PIECE), bytearray()
    if file.seekable():
        file.seek(max(file.seek(0, os.SEEK_END) - LOG.size, len(start)))
    while piece := file.read(PIECE):
        end += piece
        del end[: max(len(end) - LOG.size, 0)]
    return (start + end).decode("utf-8", "replace")


def _planned(report: "OomReport", preset: str | None, gpu: str | None) -> "tuple[PresetFile | None, Plan | None, str]":
    """Plan changes of the preset, or of the job that the log names. The last value is a remark."""
    from vramtui.core.estimate.devices import DEFAULT_CARD, card

    if not report.of_gpu_memory or (preset is None and not report.command):
        remark = "Add --preset NAME to see the changes of your job that would have fitted."
        return None, None, remark if report.of_gpu_memory and report.cause != "another process" else ""
    known = card(gpu) if gpu is not None else None
    if known is None and report.gpu_name:
        with suppress(UserError):
            known = card(report.gpu_name)
    total = report.total or (known.total_memory if known is not None else None)
    if preset is not None:
        from vramtui.cli.estimate import changed_preset

        preset_file = changed_preset(preset, [])
        if total is None:
            raise UserError("the message does not state the GPU's memory; name the GPU with --gpu")
        return preset_file, plan_within(preset_file, known or card(DEFAULT_CARD), total - (report.others_hold or 0)), ""
    from vramtui.presets.importers.derived import derived_preset

    derived = derived_preset(report.command, None)
    if derived is None or total is None:
        missing = "its model is not known offline" if derived is None else "the GPU's memory is not stated: add --gpu"
        return None, None, f"The log's job ({printable(report.command[:200])}): {missing}."
    try:
        return derived, plan_within(derived, known or card(DEFAULT_CARD), total - (report.others_hold or 0)), ""
    except UserError as error:
        return None, None, f"The log's job ({printable(report.command[:200])}) cannot be planned: {error}"


def plan_within(preset_file: "PresetFile", device: "Device", room: int) -> "Plan":
    """Plan the changes with which a job needs at most `room` bytes of a card."""
    import msgspec

    from vramtui.estimators.analytic import ANALYTIC
    from vramtui.estimators.methods import DEFAULT
    from vramtui.estimators.planner.planner import Planner

    device = msgspec.structs.replace(device, total_memory=max(room, 1))
    return Planner(ANALYTIC, preset_file.preset.workload, device, exact=DEFAULT).plan()


def advice_lines(name: str, plan: "Plan") -> "Iterator[str]":
    """Say which changes of the preset `name` the planner would have made."""
    from vramtui.cli.fit import settings_of
    from vramtui.core.base.units import format_bytes

    had = f"of the {format_bytes(plan.room, 1)} that it could have"
    if plan.cheapest is None:
        yield f"No set of changes to {name} makes it fit into {format_bytes(plan.room, 1)}."
    elif not plan.cheapest:
        yield f"{name} should need {format_bytes(plan.process)} {had}: the job is larger than its preset says."
    else:
        names = " and ".join(mitigation.name for mitigation in plan.cheapest)
        yield f"What would have fitted: {names} ({format_bytes(plan.cheapest_process)} {had})."
        yield f"  {settings_of(plan.cheapest)}"
