"""A real Prometheus: it scrapes the exporter over TLS with a client's certificate, answers every query of the dashboard
and the rules, and is read back as a source.
"""

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.installed.terminal import PATIENCE, free_port
from vramtui.records.export.metrics import NAMES

PACKAGING = Path(__file__).parents[2] / "packaging" / "prometheus"
pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("openssl")),
    reason="needs Prometheus and openssl (Debian: prometheus, openssl)",
)
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
CONFIG = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: vramtui
    scheme: https
    tls_config: {{ca_file: ca.pem, cert_file: client.pem, key_file: client.key}}
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def _certificates(folder: Path) -> None:
    _openssl(folder, "req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        _openssl(folder, "req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")


class Monitored:
    def __init__(self, folder: Path, program: str) -> None:
        _certificates(folder)
        self.metrics, self.port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        (folder / "prometheus.yml").write_text(CONFIG.format(rules=PACKAGING / "alerts.yml", port=self.metrics))
        tls = ("--certificate", "server.pem", "--key", "server.key", "--client-ca", "ca.pem")
        exporter = [program, "export", "--demo", "--interval", "0.5", "--listen", f"127.0.0.1:{self.metrics}", *tls]
        own = [f"--web.listen-address=127.0.0.1:{self.port}", "--storage.tsdb.path=tsdb", "--log.level=warn"]
        commands = (exporter, ["prometheus", "--config.file=prometheus.yml", *own])
        self.processes = [subprocess.Popen(one, cwd=folder, stderr=subprocess.DEVNULL) for one in commands]

    def ask(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"query?{urllib.parse.urlencode({'query': query})}")["result"]
        return found

    def get(self, path: str) -> Any:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("GET", f"/api/v1/{path}")
            answer = connection.getresponse()
            if answer.status != 200:  # it has only begun
                raise ConnectionError(answer.read())
            return json.load(answer)["data"]

    def wait_for(self, query: str) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                if self.ask(query):
                    return
            assert time.monotonic() < until, query
            time.sleep(0.1)


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    found = Monitored(tmp_path_factory.mktemp("prometheus"), str(Path(sys.executable).with_name("vramtui")))
    yield found
    for one in found.processes:
        one.terminate()
    for one in found.processes:
        one.wait(PATIENCE)


def _expressions() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load((PACKAGING / "alerts.yml").read_text())["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])
    for panel in json.loads((PACKAGING / "grafana-dashboard.json").read_text())["panels"]:
        yield from ((panel["title"], target["expr"].replace("$Hostname", ".*")) for target in panel["targets"])


def test_every_query_is_answered_to_the_clients_certificate_alone(monitored: Monitored) -> None:
    monitored.wait_for("vramtui_prediction_error_ratio")
    rules = {"VramtuiDown", "GpuLost", "JobAbovePrediction", "JobWillNotFit", "GpuMemoryNearlyFull"}  # all is well
    for title, expression in _expressions():
        assert bool(monitored.ask(expression)) == (title not in rules), title
    assert set(NAMES) <= set(monitored.get("label/__name__/values"))
    monitored.wait_for("up == 1")
    for scheme in ("http", "https"):
        command = ["curl", "-sSk", "-m", "5", f"{scheme}://127.0.0.1:{monitored.metrics}/metrics"]
        if shutil.which("curl"):
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ended.returncode
            assert "vramtui_" not in ended.stdout


def test_it_is_read_back_as_a_source(monitored: Monitored, program: str, tmp_path: Path) -> None:
    monitored.wait_for("count_over_time(DCGM_FI_DEV_FB_USED[1m]) > 3")
    env = {**os.environ, "VRAMTUI_CONFIG_DIR": str(tmp_path), "VRAMTUI_DATA_DIR": str(tmp_path)}
    command = [program, "ps", "--prometheus", monitored.url, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=env, timeout=PATIENCE)
    gpus = json.loads(ended.stdout)["gpus"]
    assert [gpu["name"] for gpu in gpus] == ["NVIDIA H200"] * 4
    assert all(gpu["memory"]["used"] for gpu in gpus)


@pytest.mark.skipif(not shutil.which("promtool"), reason="Prometheus' promtool is not installed")
def test_rules_speak_and_keep_silent_as_promtool_is_told() -> None:
    ended = subprocess.run(
        ["promtool", "test", "rules", "alerts.test.yml"], cwd=PACKAGING, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = (PACKAGING / "vramtui-exporter.service").read_text().replace("/opt/vramtui/bin/vramtui", "/bin/true")
    (tmp_path / "vramtui-exporter.service").write_text(unit)
    ended = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "vramtui-exporter.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
