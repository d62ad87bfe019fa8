import os
import tempfile
from pathlib import Path

import pytest

from tests.app.fakes import FixedPresets, Still
from tests.examples import Never
from vramtui.app.services import Services
from vramtui.cli.common.open_source import ProbeClient


def test_a_dashboard_that_is_left_leaves_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="vt") as runtime:  # pytest's own folder is too long for a socket
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        client = ProbeClient("dashboard")
        client.vanish()  # nothing was made yet
        assert list(client.jobs()) == []
        (socket,) = (Path(runtime) / "vramtui").iterdir()
        assert socket.name == f"dashboard-{os.getpid()}.sock"
        Still(Never(), FixedPresets(), services=Services(leave=client.vanish)).stop_reading()
        assert not socket.exists()
        client.close()
