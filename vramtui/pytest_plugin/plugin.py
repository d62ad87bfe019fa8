"""The pytest plugin: `@pytest.mark.vram` and the fixture `vram`.

A marked test runs in its own process as a dry run, where "cuda" is the GPU that it names, and its peak is compared with
a limit. The rest of the package is loaded when the first of these tests runs.
"""

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from vramtui.pytest_plugin.client import VramRun

OPTIONS = "peak, device='H100', of='allocated', steps=3, memory=None, engine='fake'"
ON_CARD = "VRAMTUI_CARD"  # set on a simulated GPU: there the test runs as it is
KEY: "pytest.StashKey[VramRun]" = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"vram({OPTIONS}): peak of GPU memory of the test's code, on a simulated GPU")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test as a dry run."""
    marker = item.get_closest_marker("vram")
    if marker is None or ON_CARD in os.environ:
        return None
    if KEY not in item.config.stash:
        from vramtui.pytest_plugin.client import VramRun  # noqa: PLC0415 - runs without vram tests do not pay for it

        item.config.stash[KEY] = VramRun()
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in item.config.stash[KEY].reports(item, marker):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # It was never set up here, so fixtures that the previous test left for it end now.
    item.session._setupstate.teardown_exact(nextitem)  # noqa: SLF001 - as pytest's own runner does
    return True


@pytest.fixture
def vram() -> Any:  # noqa: ANN401 - its type is loaded where it is used
    """`vram.dry_run(step, model, optimizer, gpu="A100-80GB")` runs as `vramtui.dry_run` does; `vram.check(result,
    peak="9.5 GiB")` compares the result with a limit.
    """
    from vramtui.pytest_plugin.client import VramFixture  # noqa: PLC0415 - only the tests that ask for it

    return VramFixture()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the process that runs vram tests."""
    if KEY in session.config.stash:
        session.config.stash[KEY].close()
