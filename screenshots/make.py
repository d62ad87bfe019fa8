"""Make the pictures of the documentation from the demo: `make screenshots`.

SVGs come from the program itself; Chromium, where it is installed, turns them into PNGs. `--check [NAME...]` makes
nothing and ends with 1 where a picture, or one of those named, is not what the program would draw now.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache, partial
from pathlib import Path

import msgspec
from moving import Moment, moving

from vramtui.app.export.portable_svg import portable
from vramtui.app.screenshot import Look, picture
from vramtui.app.services import Services
from vramtui.cli.common.demo_jobs import demo_jobs
from vramtui.cli.dashboard.services import DashboardDryRuns, DemoPast, SnapshotSaver
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.settings import SnapshotSettings
from vramtui.presets import PresetLibrary
from vramtui.sources.demo import DemoSource

HERE = Path(__file__).parent
NOON = 1795176000.0  # 2026-11-20 12:00:00 UTC
SECONDS = 700
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


class Shot(msgspec.Struct, frozen=True):
    """One picture: its file's stem, columns and rows, theme, and the keys pressed before it is taken."""

    stem: str
    size: tuple[int, int]
    theme: str = "vramtui-dark"
    keys: tuple[str, ...] = ()


# The GPT-2 job: three rows below the first.
TRACED = ("down", "down", "down", "3")
SHOTS = (
    Shot("watch-dark", (120, 35)),
    Shot("watch-light", (120, 35), theme="vramtui-light"),
    Shot("watch-80", (80, 24)),
    Shot("watch-wide", (200, 50)),
    Shot("monitor-dark", (120, 35), keys=("M",)),
    Shot("monitor-80-dark", (80, 24), keys=("M",)),
    Shot("monitor-wide-dark", (200, 50), keys=("M",)),
    Shot("monitor-hour-dark", (120, 35), keys=("M", "i", "end")),
    Shot("presets", (120, 35), keys=("p",)),
    Shot("timeline-dark", (120, 35), keys=TRACED),
    Shot("timeline-80", (80, 24), keys=TRACED),
    Shot("plan-dark", (120, 35), keys=("2",)),
    Shot("plan-beside", (200, 50), keys=("2", "b", "down", "down", "down", "enter")),
    Shot("editor-dark", (120, 35), keys=("e", "f6", "f6", "f6")),
    Shot("editor-80", (80, 24), keys=("e",)),
    Shot("history-dark", (120, 35), keys=("4",)),
    Shot("run-dark", (120, 35), keys=("4", "down", "enter")),
    Shot("explain-dark", (120, 35), keys=("x",)),
)
# The moving picture: keys on the first screen and on, and for how many seconds each is shown.
TOUR = (
    (Shot("", (120, 35)), 4.0),
    (Shot("", (120, 35), keys=("]", "]", "]", "]")), 4.0),
    (Shot("", (120, 35), keys=("2",)), 5.0),
    (Shot("", (120, 35), keys=TRACED), 5.0),
)
BACKGROUND = "#0f131a"

_RANDOM = re.compile(r"terminal-\d+-")


class Studio:
    """Draws shots of the demo, all at the same moment of it."""

    def __init__(self) -> None:
        for name in ("NO_COLOR", "VRAMTUI_ASCII"):
            os.environ.pop(name, None)
        os.environ["TZ"] = "UTC"
        time.tzset()
        now = [NOON - SECONDS]
        self._demo = DemoSource(clock=lambda: now[0], ahead=9)
        self._samples: list[Sample] = []
        for _ in range(SECONDS):
            now[0] += 1
            self._samples.append(self._demo.read())
        self._presets = PresetLibrary(user_folder=HERE / "none")
        told = demo_jobs(self._demo)  # once, as its clock stands still from now on
        self._services = Services(
            tracer=DashboardDryRuns(),
            jobs=lambda: told,
            runs=DemoPast(NOON, SnapshotSaver(SnapshotSettings(), HERE / "none.toml")),
        )

    def tour(self) -> str:
        """The moving picture."""
        return moving([Moment(self.draw(shot), seconds) for shot, seconds in TOUR], BACKGROUND)

    @cache  # noqa: B019 - there is one studio, and some pictures are in the tour, too
    def _drawn(self, size: tuple[int, int], theme: str, keys: tuple[str, ...]) -> str:
        drawn = picture(self._samples, self._presets, look=Look(size, theme, keys), services=self._services)
        return portable(_RANDOM.sub("terminal-", drawn)) + "\n"

    def draw(self, shot: Shot) -> str:
        """The picture as SVG, with the same ids in every run."""
        return self._drawn(shot.size, shot.theme, shot.keys)


def to_png(svg: Path) -> None:
    """Draw `svg` with Chromium at twice its size; other converters draw braille wrong."""
    browser = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if browser is None:
        print(f"{svg.stem}: no Chromium here, PNG not made")
        return
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg.read_text())[0]
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={round(float(width))},{round(float(height))}",
                "--force-device-scale-factor=1.5",
                f"--screenshot={svg.with_suffix('.png')}",
                svg.as_uri(),
            ],
            check=True,
            capture_output=True,
        )


def main() -> None:
    """Make every picture, or say which are older than the program."""
    studio, older = Studio(), []
    check = "--check" in sys.argv[1:]
    named = set(sys.argv[1:]) - {"--check"} or {*(shot.stem for shot in SHOTS), "tour"}
    drawings = {shot.stem: partial(studio.draw, shot) for shot in SHOTS} | {"tour": studio.tour}
    for stem, draw in drawings.items():
        if stem not in named:
            continue
        svg, drawn = HERE / f"{stem}.svg", draw()
        if check:
            if not svg.exists() or svg.read_text() != drawn:
                older.append(stem)
            continue
        svg.write_text(drawn)
        if stem != "tour":
            to_png(svg)  # which holds no moving picture
        print(f"{stem}: {len(drawn) // 1000} KB")
    if older:
        sys.exit(f"older than the program: {', '.join(older)}; `make screenshots` makes them anew")


if __name__ == "__main__":
    main()
