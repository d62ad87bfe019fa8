from pathlib import Path

import pytest

from tests.tables import rows
from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.schema.workload import InferRun, ServeRun
from vramtui.models.stores.resolve import OtherSpelling, known_names, other_spelling
from vramtui.presets import PresetLibrary
from vramtui.presets.named_presets import preset_named


@pytest.mark.parametrize(("text", "spelling"), rows(__file__, "a_spelling"))
def test_a_spelling(text: str, spelling: list[str]) -> None:
    assert other_spelling(text) == (OtherSpelling(*spelling) if spelling else None)


def test_all_tags_of_the_table_name_known_models() -> None:
    known, tags = set(known_names()), toml.loads(Path("vramtui/models/stores/ollama_tags.toml").read_text())
    assert {tag: value for tag, value in tags.items() if value.split()[0] not in known} == {}


def test_a_tag_runs_as_ollama_runs_it_and_a_loose_name_as_usual(tmp_path: Path) -> None:
    found = preset_named("qwen3:30b-a3b", PresetLibrary(tmp_path))
    run = found.preset.run
    assert isinstance(run, ServeRun)
    assert (run.engine, run.quantization, run.max_model_len) == ("ollama", "q4_k_m", None)
    assert "qwen3:30b-a3b is read as Qwen3-30B-A3B at Q4_K_M in Ollama" in found.preset.notes
    found = preset_named("qwen3 8b", PresetLibrary(tmp_path))
    assert isinstance(found.preset.run, InferRun)
    assert "is read as Qwen3-8B" in found.preset.notes
    with pytest.raises(UserError, match="IQ7_XXS"):
        preset_named("Qwen3-8B-IQ7_XXS.gguf", PresetLibrary(tmp_path))


def test_gguf_files_of_a_pipeline_are_its_denoisers(tmp_path: Path) -> None:
    found = preset_named("flux1-dev-Q4_K_S.gguf", PresetLibrary(tmp_path))
    assert isinstance(found.preset.run, InferRun)
    assert found.preset.run.quantization == "q4_k_s"
    assert "is read as FLUX.1-dev at Q4_K_S." in found.preset.notes
