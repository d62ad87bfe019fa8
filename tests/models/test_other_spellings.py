"""Names as people and other programs spell them."""

from pathlib import Path

import pytest

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.schema.workload import InferRun, ServeRun
from vramtui.models.stores.resolve import OtherSpelling, known_names, other_spelling
from vramtui.presets import PresetLibrary
from vramtui.presets.named_presets import preset_named


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("llama3.1:8b", OtherSpelling("Llama-3.1-8B", "Q4_K_M", "Ollama")),
        ("llama3.1:8b-instruct-q8_0", OtherSpelling("Llama-3.1-8B-Instruct", "q8_0", "Ollama")),
        ("qwen3:30b-a3b", OtherSpelling("Qwen3-30B-A3B", "Q4_K_M", "Ollama")),
        ("gpt-oss:20b", OtherSpelling("gpt-oss-20b", "mxfp4", "Ollama")),
        ("llama3:8b-instruct-q8_0", OtherSpelling("Meta-Llama-3-8B-Instruct", "q8_0", "Ollama")),
        ("gemma2:latest", OtherSpelling("gemma-2-9b-it", "Q4_0", "Ollama")),
        ("deepseek-r1:8b", OtherSpelling("DeepSeek-R1-0528-Qwen3-8B", "Q4_K_M", "Ollama")),
        ("gemma3:12b", OtherSpelling("gemma-3-12b-it", "Q4_K_M", "Ollama")),
        ("deepseek-r1:14b", OtherSpelling("DeepSeek-R1-Distill-Qwen-14B", "Q4_K_M", "Ollama")),
        (
            "hf.co/bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M",
            OtherSpelling("Qwen2.5-7B-Instruct", "Q4_K_M", "Ollama"),
        ),
        ("unsloth/Qwen3-8B-GGUF", OtherSpelling("Qwen3-8B", "Q4_K_M", "llama.cpp")),
        ("models/Qwen3-8B-Q6_K.gguf", OtherSpelling("Qwen3-8B", "Q6_K", "llama.cpp")),
        ("https://huggingface.co/Qwen/Qwen3-8B/tree/main", OtherSpelling("Qwen/Qwen3-8B")),
        ("Qwen3-Coder-30B-A3B", OtherSpelling("Qwen3-Coder-30B-A3B-Instruct")),
        ("qwen3 8b", OtherSpelling("Qwen3-8B")),
        ("Llama 3.1 8B Instruct", OtherSpelling("Llama-3.1-8B-Instruct")),
        ("llama", None),
        ("nosuch:8b", None),
        ("my run.toml", None),
    ],
)
def test_a_spelling(text: str, spelling: OtherSpelling | None) -> None:
    assert other_spelling(text) == spelling


def test_all_tags_of_the_table_name_known_models() -> None:
    known, tags = set(known_names()), toml.loads(Path("vramtui/models/stores/ollama_tags.toml").read_text())
    assert {tag: value for tag, value in tags.items() if value.split()[0] not in known} == {}


def test_a_tag_runs_as_ollama_runs_it(tmp_path: Path) -> None:
    found = preset_named("qwen3:30b-a3b", PresetLibrary(tmp_path))
    run = found.preset.run
    assert isinstance(run, ServeRun)
    assert (run.engine, run.quantization, run.max_model_len) == ("ollama", "q4_k_m", None)
    assert "qwen3:30b-a3b is read as Qwen3-30B-A3B at Q4_K_M in Ollama" in found.preset.notes


def test_a_loose_name_keeps_the_usual_run(tmp_path: Path) -> None:
    found = preset_named("qwen3 8b", PresetLibrary(tmp_path))
    assert isinstance(found.preset.run, InferRun)
    assert "is read as Qwen3-8B" in found.preset.notes


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="IQ7_XXS"):
        preset_named("Qwen3-8B-IQ7_XXS.gguf", PresetLibrary(tmp_path))
