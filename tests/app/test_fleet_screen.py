import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from textual.pilot import Pilot

from tests.app.driver import climbing, dashboard, known, press, screen_text, settle
from tests.app.fakes import FixedPresets, RoundEstimator
from tests.examples import Never
from tests.installed.terminal import until
from vramtui.app.app import Dashboard
from vramtui.app.fleet.screen import FleetModel, FleetRow, FleetScreen, holds, text_of
from vramtui.app.services import Services, StartOptions
from vramtui.app.ui.view_screen import name_those_down
from vramtui.app.watch.screen import Watch
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.units import GIB
from vramtui.core.observation.readings import Gpu, Host, JobRank, Memory, Process, Sample
from vramtui.core.runs.ranked_jobs import RankReading
from vramtui.monitor.fleet import Fleet, GpuSummary, HostSummary, RemoteHost
from vramtui.monitor.session import MonitorSession


class Far(Never):
    def __init__(self, name: str, user: str = "", *, failure: str = "", rank: JobRank | None = None) -> None:
        self._rank = rank
        self.name = name
        self._user = user
        self._failure = failure

    def read(self) -> Sample:
        if self._failure:
            raise SourceFailed(self._failure)
        memory = Memory(total=80 * GIB, used=8 * GIB, free=72 * GIB)
        row = Process(pid=7, type="C", used_memory=7 * GIB, user=self._user, command=f"train on {self.name}")
        row = msgspec.structs.replace(row, rank=self._rank)
        gpus = tuple(Gpu(index=at, uuid=f"GPU-{at}", name="NVIDIA H100", memory=memory) for at in range(2))
        gpus = (msgspec.structs.replace(gpus[0], processes=(row,)), gpus[1])
        return Sample(taken_at=100.0, source="ssh", host=Host(name=self.name), gpus=gpus)


@asynccontextmanager
async def running(app: Dashboard, fleet: Fleet, size: tuple[int, int]) -> AsyncIterator[Pilot[None]]:
    async with app.run_test(size=size) as pilot:
        try:
            yield pilot
        finally:
            app.stop_reading()
            fleet.close()


def fleet_of(*hosts: "Far") -> tuple[Dashboard, Fleet]:
    fleet = Fleet([RemoteHost(far.name, far) for far in hosts], 0.1)
    start = StartOptions(estimator=RoundEstimator())
    return Dashboard(fleet, FixedPresets(), start=start, services=Services(fleet=fleet)), fleet


async def text_with(app: Dashboard, pilot: Pilot[None], *words: str) -> str:
    for _ in range(100):
        await settle(app, pilot)
        app.draw()
        text = screen_text(app)
        if all(word in text for word in words):
            break
        await pilot.pause(0.05)
    return text


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
async def test_every_host_has_its_lines_and_enter_watches_one(size: tuple[int, int]) -> None:
    down = Far("gpu03", failure="gpu03: it refuses connections.")
    app, fleet = fleet_of(Far("gpu01", "anna"), Far("gpu02", "bo"), down)
    async with running(app, fleet, size) as pilot:
        text = await text_with(app, pilot, "2 of 3 hosts up", "refuses")
        assert isinstance(app.screen, FleetScreen)
        assert "Fleet · 2 of 3 hosts up · 4 GPUs, 0 free · 32.0 of 320.0 GiB · 2 users" in text
        assert "down: it refuses connections" in text
        assert "anna 7.0  bo 7.0" in text
        await press(app, pilot, "down", "down", "enter")
        assert isinstance(app.screen, Watch)
        assert "train on gpu02" in screen_text(app)
        assert app.session is fleet.switch("gpu02")
        assert app.feed.asked == "gpu02"
        for key in ("1", "2", "3", "4"):
            await press(app, pilot, key)
            assert " down: gpu03 " in screen_text(app).splitlines()[0], key


class Cut(Far):
    """A host with a card of two MIG instances, one of them in use, and a card that nobody uses."""

    def read(self) -> Sample:
        used, empty = super().read().gpus
        one = {"index": 0, "mig_parent": "GPU-0", "mig_profile": "3g.40gb"}
        first = msgspec.structs.replace(used, uuid="MIG-1", **one)
        second = msgspec.structs.replace(empty, uuid="MIG-2", memory=Memory(total=40 * GIB, used=0), **one)
        card = msgspec.structs.replace(used, processes=(), mig_used=8 * GIB)
        whole = msgspec.structs.replace(empty, memory=Memory(total=80 * GIB, used=0))
        return Sample(taken_at=100.0, source="ssh", host=Host(name=self.name), gpus=(card, first, second, whole))


def test_a_card_that_is_cut_into_instances_counts_as_these() -> None:
    far = Cut("gpu01", "anna")
    fleet = Fleet([RemoteHost("gpu00", Far("gpu00", "bo")), RemoteHost(far.name, far)], 0.05)
    fleet.begin(lambda _: MonitorSession())
    try:
        until(lambda: fleet.summaries()[1].is_up)
        view = FleetModel().view(fleet.summaries()[1:], "gpu00")
    finally:
        fleet.close()
    assert (view.total, view.free, view.used, view.capacity) == (3, 2, 8 * GIB, 200 * GIB)
    assert [text_of(row, "gpu", wide=True).split()[0] for row in view.rows] == ["0:0", "0:1", "1"]


def test_who_waits_for_a_sample_does_not_wait_for_ever() -> None:
    fleet = Fleet([RemoteHost("gpu01", Far("gpu01"))], 3600.0)
    fleet.begin(lambda _: MonitorSession())
    fleet.read()  # the only one for an hour

    def read() -> None:
        with suppress(SourceFailed):
            fleet.read()

    waiting = threading.Thread(target=read)
    waiting.start()
    fleet.close()
    waiting.join(30)
    assert not waiting.is_alive()


async def test_one_host_has_no_fleet() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, pilot):
        await press(app, pilot, "5")
        assert isinstance(app.screen, Watch)
        assert "6 Fleet" not in screen_text(app)


def gpu(index: int, used: int | None, users: dict[str, int]) -> GpuSummary:
    row = {"uuid": f"GPU-{index}", "name": "NVIDIA H100", "state": "ok", "reason": "", "total": 80}
    return GpuSummary(index=index, used=used, users=users, predicted=None, utilization=None, **row)  # type: ignore[arg-type]  # of mixed types


HOSTS = (
    HostSummary(name="a1", gpus=(gpu(0, 5, {"anna": 5}), gpu(1, None, {})), is_up=True, age=0.1),
    HostSummary(name="b2", gpus=(gpu(0, 70, {"bo": 60, "anna": 1}),), is_up=False, age=65.0, failure="no answer"),
    HostSummary(name="c3", failure="connecting"),
)


def test_rows_are_in_the_order_that_is_asked_for_and_the_cursor_stays_with_its_gpu() -> None:
    model = FleetModel()

    def order() -> list[str]:
        return [f"{row.host.name}/{'-' if row.gpu is None else row.gpu.index}" for row in model.view(HOSTS, "a1").rows]

    assert order() == ["a1/0", "a1/1", "b2/0", "c3/-"]
    model.sort_by("used")
    assert order() == ["b2/0", "a1/0", "a1/1", "c3/-"]  # what is not known comes last
    model.sort_by("used")
    assert order() == ["a1/0", "b2/0", "a1/1", "c3/-"]
    model.sort_by("host")
    model.sort_by("host")
    assert order() == ["c3/-", "b2/0", "a1/1", "a1/0"]
    model = FleetModel()
    model.view(HOSTS, "a1")
    model.choose(("b2", "GPU-0"))
    model.sort_by("used")
    assert model.view(HOSTS, "a1").chosen == ("b2", "GPU-0")
    model.filter = "host:a"
    assert model.view(HOSTS, "a1").chosen == ("a1", "GPU-0")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", ["a1", "a1", "b2", "c3"]), ("anna", ["a1", "b2"]), ("user:bo", ["b2"]), ("user:b", ["b2"]),
        ("user:o", []), ("host:a", ["a1", "a1"]), ("gpu:1", ["a1"]), ("state:down", ["b2"]), ("host:a user:bo", []),
    ],
)  # fmt: skip
def test_a_filter_is_words_or_forms(words: str, found: list[str]) -> None:
    rows = [FleetRow(host, one) for host in HOSTS for one in (host.gpus or (None,))]
    assert [row.host.name for row in rows if holds(row, words)] == found


def test_hosts_that_are_down_are_named_with_how_long_and_why() -> None:
    names = tuple(f"gpu{at:02}" for at in range(20))
    assert name_those_down(names, 30) == " down: gpu00, gpu01, gpu02 and 17 more "
    assert name_those_down(names[:2], 30) == " down: gpu00, gpu01 "
    assert name_those_down(names[:1], 3) == " down: gpu00 "
    assert FleetRow(HOSTS[1], HOSTS[1].gpus[0]).state == "down for 1 m 05 s: no answer"
    assert (FleetRow(HOSTS[2], None).state, FleetRow(HOSTS[0], HOSTS[0].gpus[0]).state) == ("connecting", "up")
    for is_quick, shown in ((False, "76.1"), (True, "≈76.1")):
        one = msgspec.structs.replace(gpu(0, 5, {}), predicted=round(76.1 * GIB), is_quick=is_quick)
        assert text_of(FleetRow(HOSTS[0], one), "predicted", wide=True) == shown


def reading(host: str, rank: int, peak: int, job: str = "gpu01:29500") -> RankReading:
    place = {"launcher": "torchrun", "user": "anna"}
    return RankReading(job=job, rank=rank, size=4, host=host, gpu_index=0, peak=peak, **place)  # type: ignore[arg-type]  # all of it is text


def test_jobs_are_opened_filtered_and_sorted() -> None:
    hosts = (
        HostSummary(name="a1", is_up=True, ranks=(reading("a1", 0, 5), reading("a1", 0, 9, "other"))),
        HostSummary(name="b2", is_up=True, ranks=(reading("far", 1, 7),)),  # named as the person wrote it
        HostSummary(name="c3", is_up=False, ranks=(reading("c3", 2, 7),)),  # nothing old is said to be so
    )
    model = FleetModel()
    model.by_job = True

    def shown() -> list[str]:
        return [f"{row.job.job} {'-' if row.rank is None else row.rank.host}" for row in model.view(hosts, "a1").jobs]

    model.jobs.sort_by("job")
    assert shown() == ["gpu01:29500 -", "other -"]
    assert model.jobs.toggle() is None
    assert shown() == ["gpu01:29500 -", "gpu01:29500 a1", "gpu01:29500 b2", "other -"]
    model.jobs.choose(model.view(hosts, "a1").jobs[2].id)
    assert known(model.jobs.toggle()).host == "b2"
    model.filter = "host:b"
    assert shown() == ["gpu01:29500 -", "gpu01:29500 a1", "gpu01:29500 b2"]


@pytest.mark.parametrize("size", [(80, 24), (160, 35)])
async def test_one_job_on_two_hosts_is_one_line_and_opens(size: tuple[int, int]) -> None:
    ranks = [JobRank(job="slurm 47.0", rank=at, size=4, launcher="srun") for at in (1, 2)]
    app, fleet = fleet_of(*(Far(f"gpu0{place.rank}", "anna", rank=place) for place in ranks))
    async with running(app, fleet, size) as pilot:
        await pilot.press("5", "b")
        text = await text_with(app, pilot, "2/4")
        assert "Jobs of several ranks · 1 on 2 of 2 hosts" in text
        assert "▸ slurm 47.0" in text
        assert "14.0" in text  # GiB of both
        await press(app, pilot, "enter")
        app.draw()
        assert "gpu02 GPU 0 · peak 7.0" in screen_text(app)
        await press(app, pilot, "down", "down", "enter")
        assert isinstance(app.screen, Watch)
        assert "train on gpu02" in screen_text(app)
        await press(app, pilot, "5", "escape")
        app.draw()
        assert "2 of 2 hosts up" in screen_text(app)
