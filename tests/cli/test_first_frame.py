from unicodedata import east_asian_width

import msgspec

from tests.app import scenes
from vramtui.cli.dashboard.first_frame import frame_lines
from vramtui.core.observation.readings import Gpu, Process, Sample


def test_each_line_fits_and_unknown_figures_and_lost_cards_are_said() -> None:
    sample = scenes.usual()
    hostile = Process(
        pid=4_194_304, type="C", used_memory=3 << 30, user="\x1b[31mroot", command="\u6f22" * 300 + "\x07"
    )
    gpus = tuple(msgspec.structs.replace(gpu, processes=(hostile, *gpu.processes)) for gpu in sample.gpus)
    for width, height in ((20, 5), (80, 24), (200, 50)):
        lines = frame_lines(msgspec.structs.replace(sample, gpus=gpus), "a demo", width, height)
        assert 0 < len(lines) < height
        assert all("\x1b" not in line and "\x07" not in line for line in lines)
        assert all(sum(1 + (east_asian_width(one) in "WF") for one in line) <= width for line in lines)
        assert all(line.endswith("…") for line in lines if "\u6f22" in line)
    assert [line.split()[0] for line in frame_lines(scenes.usual(), None, 200, 50)[-3:]] == ["4213", "5120", "977"]
    lost = Gpu(index=1, uuid="u1", name="NVIDIA L40S", state="lost", reason="GPU is lost")
    bare = Gpu(index=0, uuid="u0", name="NVIDIA H200", processes=(Process(pid=7, type="C"),))
    sample = Sample(taken_at=0, source="nvml", host=scenes.usual().host, gpus=(bare, lost))
    text = "\n".join(frame_lines(sample, None, 80, 24))
    assert "0 NVIDIA H200     –/– GiB\n" in text
    assert "1 NVIDIA L40S GPU is lost" in text
    assert "N/A" in text
