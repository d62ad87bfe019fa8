"""The pytest plugin: `@pytest.mark.vram` and the fixture `vram`.

A marked test runs in a process of its own on fake tensors, where "cuda" is the card that it names, and its peak is held
against a limit and against the baseline file. Everything but this file is loaded when the first such test runs.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vramtui.pytest_plugin.limits import VramRun

OPTIONS = "peak=None, device='H100', of='allocated', steps=3, memory=None, tolerance=0, engine='fake'"
ON_CARD = "VRAMTUI_CARD"  # set where a test runs on an emulated card: there it runs as it is
KEY = pytest.StashKey["VramRun"]()
OUTPUT = "vramtui"


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option and one setting."""
    group = parser.getgroup("vram", "memory on a simulated GPU (vramtui)")
    group.addoption("--vram-update", action="store_true", help="write the peaks of the vram tests into the baseline")
    parser.addini("vram_baseline", "the file with the accepted peaks of vram tests", default="vram_baseline.json")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"vram({OPTIONS}): peak of GPU memory of the test's code, on a simulated card")


def run_of(config: pytest.Config) -> "VramRun":
    """What this run of pytest knows of its vram tests, made when it is first asked for."""
    if KEY not in config.stash:
        from vramtui.pytest_plugin.limits import VramRun  # noqa: PLC0415 - runs without vram tests do not pay for it

        config.stash[KEY] = VramRun(
            config.rootpath,
            config.rootpath / str(config.getini("vram_baseline")),
            update=config.getoption("vram_update"),
        )
    return config.stash[KEY]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test in the process that traces."""
    marker = item.get_closest_marker("vram")
    if marker is None or ON_CARD in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in run_of(item.config).reports(item, marker):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # It was never set up here: what the test before it left for this one is not needed any more.
    item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 - as pytest's own runner does
    return True


@pytest.fixture
def vram(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - its type is loaded where it is used
    """`vram.dry_run(step, model, optimizer, gpu="A100-80GB")` runs as `vramtui.dry_run` does; `vram.check(result,
    peak="9.5 GiB")` holds the result against a limit and the baseline.
    """
    from vramtui.pytest_plugin.limits import VramFixture  # noqa: PLC0415 - only the tests that ask for it

    return VramFixture(run_of(request.config), request.node.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the baseline; a worker of xdist hands its figures to the controller instead."""
    config = session.config
    if KEY not in config.stash:
        return
    run = config.stash[KEY]
    run.close()
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output[OUTPUT] = run.handed_over()
    else:
        run.write()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ANN401, ARG001 - xdist's own, where it is installed
    output = getattr(node, "workeroutput", {}).get(OUTPUT)
    if output is not None:
        run_of(node.config).take(output)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:  # noqa: ANN401 - pytest keeps its type private
    """What was written, and what is less than the baseline says."""
    if KEY in config.stash:
        for line in config.stash[KEY].summary():
            terminalreporter.write_line(line)


def pytest_report_header(config: pytest.Config) -> Iterator[str] | None:
    """The header's line for a baseline file; none without one."""
    path = Path(config.rootpath) / str(config.getini("vram_baseline"))
    return iter([f"vram baseline: {path.name}"]) if path.is_file() else None
