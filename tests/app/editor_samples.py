from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot

from tests.app import scenes
from tests.app.driver import dashboard, settle
from tests.app.fakes import FixedPresets, Still
from vramtui.app.editor.screen import EditorScreen
from vramtui.core.base.units import GIB
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.predictor import Refiner
from vramtui.presets.reader import load_preset

TEXT = """\
# Started by train.sh on the first card.
name = "Tiny"

[model]
kind = "transformer"
hidden_size = 4096          # as published
num_hidden_layers = 32
num_attention_heads = 32
vocab_size = 128256

[run]
kind = "train"
batch_size = 4   # one card
sequence_length = 4096
precision = "bf16-mixed"

[match]
all = [["train.py"], ["Llama-3.1-8B"], ["--lora"]]
"""
PLAIN = scenes.sample(scenes.gpu(0, scenes.process(4213, 58 * GIB, "python train.py Llama-3.1-8B --lora_path=x")))
Edited = tuple[Still, Pilot[None], EditorScreen]


def preset_at(path: Path, text: str = TEXT, *, bundled: bool = False) -> PresetFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return PresetFile(key=path.stem, path=str(path), bundled=bundled, preset=load_preset(path))


@asynccontextmanager
async def editor(
    folder: Path,
    size: tuple[int, int] = (120, 35),
    *,
    found: PresetFile | None = None,
    samples: Sequence[Sample] = (),
    notifications: bool = False,
    estimator: Estimator | None = None,
    refiner: Refiner | None = None,
) -> AsyncIterator[Edited]:
    found = found or preset_at(folder / "presets" / "tiny.toml")
    async with dashboard(
        [*samples] or [scenes.usual()],
        size,
        presets=FixedPresets([found]),
        preset=found.key,
        notifications=notifications,
        estimator=estimator,
        refiner=refiner,
    ) as (app, pilot):
        await pilot.press("e")
        await settle(app, pilot)
        screen = app.screen
        assert isinstance(screen, EditorScreen)
        yield app, pilot, screen


def said(app: Still) -> str:
    return "\n".join(note.message for note in app.announced)


def on_top(app: Still, kind: type[object]) -> bool:
    return isinstance(app.screen, kind)


def text_of(found: PresetFile) -> str:
    return Path(found.path).read_text()
