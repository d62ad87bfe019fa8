"""Make the pictures of the documentation from the demo: `make screenshots`.

SVGs come from the program itself; Chromium, where it is installed, turns them into PNGs.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from vramtui.app.picture import picture
from vramtui.cli.dashboard_tracer import ChildTracer
from vramtui.core.readings import Sample
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


# The GPT-2 job: four rows below the first.
TRACED = ("down", "down", "down", "down", "3", "t")
SHOTS = (
    Shot("watch-dark", (120, 35)),
    Shot("watch-light", (120, 35), theme="vramtui-light"),
    Shot("watch-80", (80, 24)),
    Shot("watch-wide", (200, 50)),
    Shot("presets", (120, 35), keys=("p",)),
    Shot("timeline-dark", (120, 35), keys=TRACED),
    Shot("timeline-80", (80, 24), keys=TRACED),
)


def demo_samples() -> list[Sample]:
    """Ten minutes of the demo, a sample each second, ending at noon."""
    now = [NOON - SECONDS]
    demo = DemoSource(clock=lambda: now[0], ahead=9)
    samples = []
    for _ in range(SECONDS):
        now[0] += 1
        samples.append(demo.read())
    return samples


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
    """Make every picture."""
    samples, presets = demo_samples(), PresetLibrary()
    tracer = ChildTracer(Path(tempfile.mkdtemp()))
    for shot in SHOTS:
        svg = HERE / f"{shot.stem}.svg"
        drawn = picture(samples, presets, size=shot.size, theme=shot.theme, keys=shot.keys, tracer=tracer)
        svg.write_text(drawn + "\n")
        to_png(svg)
        print(svg.stem)


if __name__ == "__main__":
    main()
