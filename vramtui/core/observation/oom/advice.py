"""Ways out of an out-of-memory error, by program and cause: only what exists in that program."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vramtui.core.base import toml
from vramtui.core.observation.oom.report import OomReport, Way

WAYS = 3

WAIT = "Use another GPU, or wait: `vramtui ps` shows who holds the memory, `vramtui run --when-fits -- COMMAND` waits"
ONE_GPU_EACH = (
    "Give each process its own GPU: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first CUDA call"
)


@cache
def _usual_ways() -> dict[str, tuple[Way, ...]]:
    tables = toml.loads(Path(__file__).with_name("ways.toml").read_text(encoding="utf-8"))
    return {program: tuple(map(Way, ways)) for program, ways in tables.items()}


def sentences_of(report: OomReport) -> Iterator[str]:
    """The cause, the figures, and the ways out, one line each."""
    yield report.cause_sentence()
    if numbers := report.numbers():
        yield numbers
    for way in ways_of(report):
        yield way.line


def ways_of(report: OomReport) -> tuple[Way, ...]:
    """Return up to three ways out in the order of least loss, those of the message itself first."""
    if report.own_ways:
        return report.own_ways[:WAYS]
    program = report.program
    usual = _usual_ways().get(program) or _usual_ways()["plain"]
    match report.cause:
        case "another process":
            shared = len(report.others) > 1 and (report.rank is not None or program in {"training", "DeepSpeed"})
            first = (Way(ONE_GPU_EACH, report.others_hold),) if shared else ()
            if program == "vLLM" and report.total and report.free is not None:
                usable = report.free + (report.in_use or report.reserved or 0)
                share = 100 * usable // report.total / 100
                first = (Way(f"--gpu-memory-utilization {share:.2f} uses what the others leave"),)
            return (*first, Way(WAIT, report.others_hold), *usual)[:WAYS]
        case "fragmentation" if not report.windows:
            return (
                Way(f"{report.setting}=expandable_segments:True joins cached pieces", report.unallocated),
                *usual[:2],
            )
        case "larger than the GPU":
            return _usual_ways()["larger"] if program in {"PyTorch", "training", "inference"} else usual[:WAYS]
        case "refused":
            file = "On Windows a small page file limits GPU memory as well: enlarge it" if report.windows else WAIT
            return (Way("Try again: another process may have freed its memory in between"), Way(file))
        case "not enough memory" if report.spills:
            spilled = Way("The driver already keeps the rest in the host's memory, which is slow: make the job smaller")
            return (*usual[:2], spilled)
        case "host" | "shared memory":
            return ()
        case _:
            return usual[:WAYS]
