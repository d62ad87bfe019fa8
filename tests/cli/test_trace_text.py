import pytest

from vramtui.cli.common.plot import Bars
from vramtui.cli.dry_run import print_timeline
from vramtui.dryrun.result import TraceRow

MIB = 1 << 20


def row(phase: str, step: int, held: int, peak: int) -> TraceRow:
    return TraceRow(
        phase=phase,
        step=step,
        allocated=held * MIB,
        reserved=100 * MIB,
        peak_allocated=peak * MIB,
        peak_reserved=100 * MIB,
        categories={"weights": held * MIB},
    )


def passes(step: int, first: int, rest: int, count: int) -> list[TraceRow]:
    sizes = [first, *[rest] * (count - 1)]
    rows = [row(phase, step, size, size + 5) for size in sizes for phase in ("input", "forward", "backward")]
    return [*rows, row("step", step, rest, rest + 9)]


def shown(rows: list[TraceRow], capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_timeline(tuple(rows), 100, Bars())
    return [line for line in capsys.readouterr().out.splitlines() if line][1:-1]


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_passes_that_come_again_are_counted(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown([*passes(0, 20, 30, count), *passes(1, 40, 50, count)], capsys)
    told = [line for line in lines if line.startswith("…")]
    assert told == ([f"… the 3 rows above, {count - 2} times more"] * 2 if count > 3 else [])
    assert len(lines) == 2 * (3 * min(count, 3 if count == 3 else 2) + 1) + len(told)
    assert lines[-1].startswith("step")


def test_what_differs_by_a_byte_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(phase, 0, 20 + at, 30 + at) for at in range(6) for phase in ("forward", "backward")]
    assert len(shown(rows, capsys)) == len(rows)
    many = [row(phase, 0, held, held + 1) for held in (4, 9, 5) for phase in ("step", "zero_grad")]
    lines = shown([row("backward", 0, 3, 3), *many, row("input", 1, 1, 1)], capsys)
    assert [line.split()[0] for line in lines if line.startswith(("step", "zero_grad"))] == ["step", "zero_grad"]
