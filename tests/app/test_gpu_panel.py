"""What stands in the frame of the GPUs."""

from tests.app import scenes
from vramtui.app.state.view import GpuBar, View
from vramtui.app.themes import Palette
from vramtui.app.watch.gpu_panel import GpuPanel, host_line
from vramtui.core.base.colours import DARK
from vramtui.core.base.units import GIB
from vramtui.core.observation.readings import Host

HOST = Host(
    name="gpu01",
    cpu_percent=12.4,
    memory_total=512 * GIB,
    memory_available=480 * GIB,
    load=(1.04, 2.0, 3.0),
    swap_total=8 * GIB,
    swap_free=7 * GIB,
)


def test_the_host_is_told_as_far_as_there_is_room() -> None:
    whole = "host CPU 12 % · memory 32.0/512.0 GiB · load 1.0 2.0 3.0 · swap 1.0/8.0 GiB"
    assert host_line(HOST, 200) == whole
    assert host_line(HOST, 45) == "host CPU 12 % · memory 32.0/512.0 GiB"
    assert host_line(Host(name="gpu01", memory_total=GIB), 200) == ""


def test_a_host_that_does_not_answer_is_not_said_to_be_asked_for_the_first_time() -> None:
    panel, palette = GpuPanel(), Palette(DARK | {"foreground": "#ffffff", "background": "#000000"})
    asked, failed = (panel.build(View(failure=failure), palette, 78, 1)[0].text for failure in ("", "gpu01: no route"))
    assert asked.strip() == "asking the driver …"
    assert failed.strip() == "no answer; asking again …"
    assert panel.part(View()) != panel.part(View(failure="gpu01: no route"))


def test_all_bars_end_in_one_column_and_an_instance_has_its_memory_alone() -> None:
    palette = Palette(DARK | {"foreground": "#ffffff", "background": "#000000"})
    sample = scenes.divided()
    view = View(sample=sample, bars=tuple(GpuBar(gpu=gpu, predicted=None, chosen=False) for gpu in sample.gpus))
    for width in (60, 78, 118):
        lines = [line.text for line in GpuPanel().build(view, palette, width, 12)]
        bars = [line for line in lines if "▌" in line]
        assert len({line.index("▌") for line in bars}) == 1, lines
        instance = next(line for line in lines if "MIG" in line)
        assert instance.rstrip().endswith("GiB")
