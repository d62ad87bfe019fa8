import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.commands import invoke
from tests.recorded.architectures import preset_from, recorded
from vramtui.core.schema.models import TransformerModel

PUBLIC: dict[str, dict[str, Any]] = {row["name"]: row["config"] for row in recorded("public")}
CARD = ["--gpu", "H200", "--json"]


def tokens(name: str, width: int, height: int) -> int:
    model = preset_from(PUBLIC[name]).model
    assert isinstance(model, TransformerModel)
    return model.image_tokens.count(width, height)


@pytest.mark.parametrize(("name", "size", "expected"), [
    # As `smart_resize` of transformers 5.23 makes them, a cell of 28 or 32 pixels each.
    ("qwen2.5-vl-32b-awq", (1920, 1080), 39 * 69),
    ("qwen2.5-vl-32b-awq", (9000, 7000), 112 * 145),
    ("qwen2-vl-2b", (40, 33), 6),
    ("qwen3-vl-4b", (1920, 1080), 34 * 60),
    ("qwen3-vl-4b", (224, 224), 64),
    # One size for every image.
    ("gemma-3-4b-it", (3000, 200), 256),
    ("llava-1.5-7b-hf", (640, 480), 576),
    ("paligemma2-3b-224", (640, 480), 256),
    ("blip2-opt-2.7b", (640, 480), 32),
    # Pixtral's: a token more at each row's end.
    ("pixtral-12b", (640, 480), 30 * (40 + 1)),
    ("mistral-small-3.1", (1920, 1080), 31 * (55 + 1)),
])  # fmt: skip
def test_tokens_of_an_image(name: str, size: tuple[int, int], expected: int) -> None:
    assert tokens(name, *size) == expected


@given(width=st.integers(1, 20_000), height=st.integers(1, 20_000))
def test_any_size_is_within_the_models_bounds(width: int, height: int) -> None:
    found = tokens("qwen2.5-vl-32b-awq", width, height)
    assert found >= 1
    if max(width, height) < 200 * min(width, height):
        assert found * 28 * 28 <= 12845056


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "150")
    path = tmp_path / "gemma" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(PUBLIC["gemma-3-4b-it"]))
    return str(path)


def _estimate(*arguments: str) -> dict[str, Any]:
    result = invoke("estimate", *arguments, *CARD)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_images_are_part_of_the_sequence_and_without_them_no_tower_runs(config: str) -> None:
    with_images = _estimate(config, "--image", "1024x768", "--image", "100")
    longer = _estimate(config, "--set", f"run.sequence_length={2048 + 256 + 100}")
    parts = {part["name"]: part["bytes"] for part in with_images["estimates"][0]["parts"]}
    beside = parts["tower inputs"] + parts["tower outputs"]
    assert parts["tower inputs"] == 16 * (256 + 100) * 588 * 4
    more = with_images["estimates"][0]["allocated"] - longer["estimates"][0]["allocated"]
    assert beside <= more < beside + parts["tower activations"]
    assert "256 + 100 of the sequence's tokens are images'" in json.dumps(with_images)
    names = {part["name"] for part in _estimate(config)["estimates"][0]["parts"]}
    assert not names & {"tower inputs", "tower activations", "tower outputs"}


def test_towers_have_names_and_adapters_keep_nothing_of_them(config: str) -> None:
    parts = {part["name"]: part["bytes"] for part in _estimate(config)["estimates"][0]["parts"]}
    assert parts["weights: vision"] == pytest.approx(2 * 416_866_032, rel=1e-3)
    assert parts["weights: projector"] == pytest.approx(2 * (1152 * 2560 + 1152), rel=1e-3)
    assert sum(size for name, size in parts.items() if name.startswith("weights")) == pytest.approx(
        2 * 4_300_079_472, rel=1e-3
    )
    train = ["--image", "1024", "--set", "run.kind=train", "--set", "run.precision=bf16"]
    whole = {part["name"]: part for part in _estimate(config, *train)["estimates"][0]["parts"]}
    lora = ["--set", "run.lora.rank=8", "--set", 'run.lora.target_modules=["q_proj"]']
    adapted = {part["name"]: part for part in _estimate(config, *train, *lora)["estimates"][0]["parts"]}
    patches, layers = 16 * 1024, 27
    kept = whole["tower activations"]["bytes"] / (patches * layers * 1152 * 2)
    assert 10 < kept < 40  # numbers of the stream's width that a block keeps of a patch
    assert adapted["tower activations"]["bytes"] < whole["tower activations"]["bytes"] / layers * 4
    assert adapted["tower activations"]["at_peak"] == 0


@pytest.mark.parametrize(("preset", "image", "sentence"), [
    ("", "huge", "--image huge is neither WIDTHxHEIGHT in pixels"),
    ("llama-3.1-8b-infer", "640x480", "how many tokens an image of 640x480 takes is not known of this model"),
    ("llama-3.1-8b-serve", "576", "they are part of run.max_model_len"),
    ("resnet-50-train", "576", "is of text"),
])  # fmt: skip
def test_what_cannot_be_is_told(config: str, preset: str, image: str, sentence: str) -> None:
    result = invoke("estimate", preset or config, "--image", image)
    assert result.exit_code == 2
    assert sentence in " ".join((result.output + result.stderr).split())
