"""llama.cpp's buffers, beside those that it reports itself when it loads."""

import pytest

from tests.estimators.serving.models import LLAMA_2_7B, LLAMA_8B, QWEN_7B
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun, Stored, Workload
from vramtui.estimators.analytic import ANALYTIC


def serve(model: TransformerModel, run: ServeRun, parallel: Parallel | None = None) -> Estimate:
    return ANALYTIC.estimate(Workload(model=model, run=run, parallel=parallel), card("RTX4090"))


def size(estimate: Estimate, name: str) -> float:
    return next((part.bytes for part in estimate.parts if part.name == name), 0) / MIB


def run(context: int = 8192, **more: object) -> ServeRun:
    return ServeRun(engine="llama.cpp", precision="fp16", max_model_len=context, **more)  # type: ignore[arg-type] # of any key


def test_buffers_of_llama_3_8b() -> None:
    """Reported: CUDA0 model buffer 4403.49 MiB, KV buffer 1024.00 MiB, CUDA0 compute buffer 258.50 MiB."""
    estimate = serve(LLAMA_8B, run(quantization="q4_k_m"))
    assert size(estimate, "weights") == pytest.approx(4403.49, abs=0.05)
    assert size(estimate, "kv cache") == 1024
    assert size(estimate, "compute buffer") == 258.5
    assert sum(part.at_peak for part in estimate.parts) == estimate.process


@pytest.mark.parametrize(("model", "reported"), [(LLAMA_2_7B, 70.5), (QWEN_7B, 304.0)])
def test_compute_buffers(model: TransformerModel, reported: float) -> None:
    assert size(serve(model, run(512)), "compute buffer") == pytest.approx(reported, abs=0.01)


def test_layers_go_to_the_card_one_by_one() -> None:
    sizes = [serve(LLAMA_8B, run(quantization="q4_k_m", gpu_layers=count)).process for count in range(34)]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 34
    none = serve(LLAMA_8B, run(gpu_layers=0))
    assert size(none, "weights") == size(none, "kv cache") == 0
    assert sizes[33] == serve(LLAMA_8B, run(quantization="q4_k_m")).process
    assert any("32 of 32 layers" in note for note in serve(LLAMA_8B, run(gpu_layers=32)).assumptions)


def test_what_is_not_on_the_card_is_in_host_memory() -> None:
    def held(layers: int) -> float:
        estimate = serve(LLAMA_8B, run(gpu_layers=layers))
        return size(estimate, "weights") + size(estimate, "kv cache")

    (note,) = [note for note in serve(LLAMA_8B, run(gpu_layers=16)).assumptions if "in host memory" in note][:1]
    assert f"{(held(33) - held(16)) / 1024:.1f} GiB of blocks, output layer and cache" in note


def test_the_cache_in_fewer_bits() -> None:
    half, quarter = (size(serve(LLAMA_8B, run(kv_cache=kind)), "kv cache") for kind in ("int8", "int4"))
    assert (half, quarter) == (544, 288)


def test_a_file_that_was_looked_at_is_believed() -> None:
    stored = Stored(embedding=7 << 20, blocks=320 << 20, output=40 << 20)
    assert size(serve(LLAMA_8B, run(stored=stored)), "weights") == 360
    assert size(serve(LLAMA_8B, run(stored=stored, gpu_layers=8)), "weights") == 80


def test_ranks_are_refused() -> None:
    with pytest.raises(UserError, match=r"describe one card of it with run\.gpu_layers"):
        serve(LLAMA_8B, run(), Parallel(tensor=2))
