import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.estimators.serving.models import LLAMA_8B
from tests.presets.test_derived import Host
from tests.recorded.gguf_files import GOLDEN, write_gguf
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.assumptions import range_of, values_of
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import Parallel, ServeRun, Stored, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.importers.derived import derive

REPORTED = json.loads(GOLDEN.read_text(encoding="utf-8"))


def serve(model: TransformerModel, run: ServeRun, parallel: Parallel | None = None) -> Estimate:
    return ANALYTIC.estimate(Workload(model=model, run=run, parallel=parallel), card("RTX4090"))


def size(estimate: Estimate, name: str) -> float:
    return next((part.bytes for part in estimate.parts if part.name == name), 0) / MIB


def run(context: int = 8192, **more: object) -> ServeRun:
    return ServeRun(engine="llama.cpp", precision="fp16", max_model_len=context, **more)  # type: ignore[arg-type] # of any key


@pytest.mark.parametrize("golden", [pytest.param(one, id=one["name"]) for one in REPORTED["models"]])
def test_buffers_are_those_that_llama_cpp_reports(golden: dict[str, Any], tmp_path: Path) -> None:
    """Its own code reported these on a simulated H100, for the same file and flags."""
    path, host = tmp_path / "model.gguf", Host(tmp_path)
    write_gguf(path, golden["shapes"])
    for pid, row in enumerate(golden["rows"], 100):
        derived = derive(pid, host.start(pid, "llama-server", "-m", str(path), *row["flags"].split()), host.proc)
        estimate = ANALYTIC.estimate(derived.preset.workload, card("H100"))
        assert size(estimate, "weights") == pytest.approx(row["model"], abs=0.05), row["flags"]
        assert size(estimate, "kv cache") == sum(row["kv"]), row["flags"]
        roughly = "num_experts" in golden["shapes"] or "-ngl 99" not in row["flags"]
        assert any("give or take a quarter" in note for note in estimate.assumptions) == roughly
        expected = pytest.approx(row["compute"], rel=0.25) if roughly else pytest.approx(row["compute"], abs=0.6)
        assert size(estimate, "compute buffer") == expected, row["flags"]


def test_layers_go_to_cards_one_by_one_by_each_build() -> None:
    sizes = [serve(LLAMA_8B, run(quantization="q4_k_m", gpu_layers=count)).process for count in range(34)]
    assert len(set(sizes)) == 34
    none = serve(LLAMA_8B, run(gpu_layers=0))
    assert size(none, "weights") == size(none, "kv cache") == 0
    assert sizes[33] == serve(LLAMA_8B, run(quantization="q4_k_m")).process
    assert any("31 of 32 layers" in note for note in serve(LLAMA_8B, run(gpu_layers=32)).assumptions)

    def held(layers: int) -> float:
        estimate = serve(LLAMA_8B, run(gpu_layers=layers))
        return size(estimate, "weights") + size(estimate, "kv cache")

    (note,) = [note for note in serve(LLAMA_8B, run(gpu_layers=16)).assumptions if "in host memory" in note][:1]
    assert f"{(held(33) - held(16)) / 1024:.1f} GiB of blocks, output layer and cache" in note
    half, quarter = (size(serve(LLAMA_8B, run(kv_cache=kind)), "kv cache") for kind in ("int8", "int4"))
    assert (half, quarter) == (544, 288)
    stored = Stored(embedding=7 << 20, blocks=320 << 20, output=40 << 20)
    assert size(serve(LLAMA_8B, run(stored=stored)), "weights") == 360
    assert size(serve(LLAMA_8B, run(stored=stored, gpu_layers=9)), "weights") == 80 + 40
    # Reported by one of 2024, with a context of 8,192 tokens: CUDA0 compute buffer 258.50 MiB.
    notes = serve(LLAMA_8B, run(quantization="q4_k_m")).assumptions
    assert any("before June 2026 takes 258.5 MiB as compute buffer" in note for note in notes)
    off = size(serve(LLAMA_8B, run(attention="eager")), "compute buffer")
    assert off == pytest.approx(512 * 4 * (33 * 8192 + 3 * 4096) / MIB + 8, abs=0.1)
    old, new = (serve(LLAMA_8B, run(gpu_layers=5, engine_version=build)) for build in ("b5466", "b9842"))
    assert [size(one, "kv cache") for one in (old, new)] == [160, 128]
    assert size(serve(LLAMA_8B, run(engine_version="b5466")), "compute buffer") > 250
    with pytest.raises(UserError, match=r"'0\.3' is not a build of llama\.cpp; write it as b9842"):
        serve(LLAMA_8B, run(engine_version="0.3"))
    # 32 layers and the output: the fullest GPU is the answer (alike, the one with the output); all are listed.
    whole = serve(LLAMA_8B, run(quantization="q4_k_m"))
    alike = serve(LLAMA_8B, run(quantization="q4_k_m"), Parallel(pipeline=2))
    uneven = serve(LLAMA_8B, run(quantization="q4_k_m", tensor_split="3,1"), Parallel(pipeline=2))
    assert [size(one, "kv cache") for one in (whole, alike, uneven)] == [1024, 32 * 15, 32 * 25]
    lines = [note for note in uneven.assumptions if note.startswith("CUDA")]
    assert [line.partition(":")[0] for line in lines] == ["CUDA0", "CUDA1"]
    assert "KV 800.00" in lines[0]
    assert "KV 224.00" in lines[1]
    assert "bytes of one card of 2: CUDA0, the fullest" in uneven.assumptions


@pytest.mark.parametrize(("build", "gpu", "sequences", "tokens"), [
    ("b3900", "RTX4090", None, 131_072), ("b7000", "RTX4090", None, 4096), (None, "RTX4090", None, 131_072),
    (None, "RTX4060", None, 15_360), (None, "RTX4060", 4, 16_384), (None, "GTX1060", None, 4096),
])  # fmt: skip
def test_a_context_that_is_not_given_follows_build_and_gpu(
    build: str | None, gpu: str, sequences: int | None, tokens: int
) -> None:
    """Newer builds cut the model's longest until 1 GiB of the GPU is free, but not below 4,096 (common/fit.cpp)."""
    model = msgspec.structs.replace(LLAMA_8B, max_position_embeddings=131_072)
    bare = ServeRun(engine="llama.cpp", quantization="q4_k_m", max_num_seqs=sequences, engine_version=build)
    estimate = ANALYTIC.estimate(Workload(model=model, run=bare), card(gpu))
    assert estimate.assumptions[0].startswith(f"a context of {tokens:,} tokens")
    if 4096 * (sequences or 1) < tokens < 131_072:
        assert 0.8 * GIB < card(gpu).total_memory - estimate.process < 1.1 * GIB


@pytest.mark.parametrize(("own", "words"), [(8192, "context 8192"), (None, "the server's own context")])
def test_a_server_without_a_context_is_a_range_of_what_its_releases_take(own: int | None, words: str) -> None:
    model = msgspec.structs.replace(LLAMA_8B, max_position_embeddings=131_072)
    preset = Preset(name="own", model=model, run=ServeRun(engine="llama.cpp", quantization="q4_k_m", max_model_len=own))
    found = PresetFile(key="own", path="", bundled=True, preset=preset, assumed=("run.max_model_len",))
    span = range_of(found, card("RTX4090"), ANALYTIC.estimate)
    assert span is not None
    assert not span.is_prediction
    assert span.sentence == "cannot be predicted: context is not on the command line"
    assert values_of(found) == (words,)
