import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.app import scenes
from tests.commands import invoke
from tests.tables import rows
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import COMPARED


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))


def document(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = invoke("fit", *arguments, "--json")
    return done.exit_code, json.loads(done.stdout)


def process(preset: str, *settings: str, gpu: str = "RTX4090", method: str | None = None) -> int:
    chosen = [part for setting in settings for part in ("--set", setting)]
    chosen += ["--method", method] if method else []
    done = invoke("estimate", preset, *chosen, "--gpu", gpu, "--json")
    size: int = json.loads(done.stdout)["estimates"][0]["process"]
    return size


def test_the_edge_is_that_of_the_estimate_with_the_longest_sequence_beside_it() -> None:
    code, read = document("gpt2-124m", "--gpu", "RTX4090")
    assert (code, read["schema"], read["fits"], read["vary"]) == (0, 1, True, "run.batch_size")
    largest, room = read["largest"], read["device"]["total_memory"]
    assert process("gpt2-124m", f"run.batch_size={largest}") == read["process_at_largest"] <= room
    assert process("gpt2-124m", f"run.batch_size={largest + 1}") == read["process_beyond"] > room
    assert read["cheapest"] == {"levers": [], "changes": {}, "process": read["process"]}
    _, read = document("gpt2-124m", "--gpu", "T4")
    (other,) = read["also"]
    assert other["vary"] == "run.sequence_length"
    assert other["largest"] >= 1
    assert other["reason"]
    code, read = document("llama-3.1-70b-infer", "--gpu", "H100", "--gpus", "4")
    assert (code, read["gpus"], read["fits"]) == (0, 4, True)
    spread = document("llama-3.1-70b-infer", "--gpu", "H100", "--set", "parallel.tensor=4")[1]
    assert spread["process"] == read["process"], "it is said with what setting"
    code, read = document("llama-3.1-8b-serve", "--gpu", "RTX4090")
    assert (code, read["fits"], read["vary"]) == (1, False, "run.max_model_len")
    assert f"the longest that fits is {read['largest']:,}" in read["refusal"]
    at_most = f"run.max_model_len={read['largest']}"
    assert document("llama-3.1-8b-serve", "--gpu", "RTX4090", "--set", at_most)[0] == 0
    one_more = f"run.max_model_len={read['largest'] + 1}"
    assert document("llama-3.1-8b-serve", "--gpu", "RTX4090", "--set", one_more)[0] == 1


@pytest.mark.slow
def test_what_does_not_fit_is_told_how_it_would_and_another_key_can_be_varied() -> None:
    code, read = document("llama-3.2-3b-lora", "--gpu", "RTX4090")
    assert (code, read["fits"]) == (1, False)
    assert read["spare"] < 0
    assert read["cheapest"]["process"] <= read["device"]["total_memory"]
    assert {mitigation["name"] for mitigation in read["levers"]} >= set(read["cheapest"]["levers"])
    for mitigation in read["levers"]:
        assert mitigation["frees"] == read["process"] - mitigation["process"]
        assert mitigation["fits"] == (mitigation["process"] <= read["device"]["total_memory"])
    _, read = document("mistral-7b", "--memory", "40GiB", "--vary", "run.new_tokens")
    assert read["vary"] == "run.new_tokens"
    assert read["largest"] > 512
    whole, short = (document("gpt2-124m", "--gpu", "T4", "--vary", key) for key in ("run.batch_size", "batch_size"))
    assert whole == short
    lora, full = (
        invoke("fit", name, "--gpu", gpu).stdout.partition("CHANGE")[2]
        for name, gpu in (("llama-3.1-8b-lora", "RTX4090"), ("llama-3.1-8b-full", "H100"))
    )
    assert "full checkpointing" in lora
    assert "fused optimizer" not in lora
    assert "costs nothing: one kernel for each step" in " ".join(full.split())
    _, read = document("gpt-j-6b-lora", "--seq-len", "4096", "--gpu", "H100")
    (note,) = read["notes"]
    assert note.startswith("run.sequence_length = 4,096 is beyond the 2,048 tokens")
    assert "beyond the 2,048 tokens" in invoke("fit", "gpt-j-6b-lora", "--seq-len", "4096", "--gpu", "H100").stdout
    assert document("gpt-j-6b-lora", "--gpu", "H100")[1]["notes"] == []
    arguments = ["gpt2-1.5b", "--set", "run.precision=fp16-mixed", "--set", "run.batch_size=32", "--gpu"]
    old, new = (invoke("fit", *arguments, card).stdout for card in ("V100-32GB", "A100-40GB"))
    assert "pure fp16" in old
    assert "pure bf16" not in old
    assert "pure bf16" in new
    assert not re.search(r" -\d", old)  # nothing that would take more memory


@pytest.mark.slow
@pytest.mark.parametrize("asked", [
    ["qwen-2.5-0.5b-full", "--gpu", "T4"],
    ["sdxl-pipeline", "--gpu", "RTX4090", "--set", "run.batch_size=4"],
    ["flux-dev-pipeline", "--gpu", "RTX4090"],
], ids=lambda asked: asked[0])  # fmt: skip
def test_the_printed_settings_do_what_they_say(asked: list[str]) -> None:
    done = invoke("fit", *asked)
    assert done.exit_code == 1
    (settings,) = [line for line in done.stdout.splitlines() if line.strip().startswith("--set")]
    again = invoke("fit", *asked, *shlex.split(settings))
    assert again.exit_code == 0, again.stdout
    assert "No change needed." in again.stdout


@pytest.mark.parametrize(("arguments", "sentence"), rows(__file__, "bad_input_is_one_sentence"))
def test_bad_input_is_one_sentence(arguments: list[str], sentence: str) -> None:
    done = invoke("fit", *arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("preset", "gpus", "said"), rows(__file__, "a_number_of_cards_is_never_ignored"))
def test_a_number_of_cards_is_never_ignored(preset: str, gpus: str, said: str) -> None:
    sizes = set()
    for command in ("fit", "estimate"):
        done = invoke(command, preset, "--gpu", "H200", "--gpus", gpus, "--json")
        assert said in done.stderr
        assert (done.exit_code == 2) == ("cannot" in said)
        if done.exit_code != 2:
            read = json.loads(done.stdout)
            sizes.add(read["process"] if command == "fit" else read["estimates"][0]["process"])
    assert len(sizes) <= 1, "one answer"


OVER = ("--over", "run.batch_size=1:8", "--over", "run.sequence_length=256:1024:256")


def test_a_map_over_two_numbers() -> None:
    code, read = document("gpt2-124m", "--gpu", "T4", *OVER)
    assert code == 0
    assert read["across"] == {"key": "run.batch_size", "values": list(range(1, 9))}
    assert read["down"] == {"key": "run.sequence_length", "values": [256, 512, 768, 1024]}
    settings = ("run.batch_size=4", "run.sequence_length=512")
    assert read["process"][1][3] == process("gpt2-124m", *settings, gpu="T4", method="analytic")
    assert read["quick"]  # `estimate` simulates that job
    room = read["device"]["total_memory"]
    assert read["fits"] == [[size <= room for size in row] for row in read["process"]]
    code, read = document("gpt2-124m", "--memory", "1GiB", *OVER)
    assert (code, any(any(row) for row in read["fits"])) == (1, False)
    short = [text.removeprefix("run.") for text in OVER]
    assert document("gpt2-124m", "--gpu", "T4", *short) == document("gpt2-124m", "--gpu", "T4", *OVER)
    done = invoke("fit", "gpt2-124m", "--gpu", "T4", "--over", "batch_size=1:8")
    ready = "vramtui: a map needs --over twice: --over batch_size=1:8 --over sequence_length=512:8192:512\n"
    assert done.stderr == ready
    done = invoke("fit", "gpt2-124m", "--memory", "4GiB", *OVER)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].endswith("[in brackets] is over 4.0 GiB")
    first, last = lines[-4].split(), lines[-1].split()
    assert (first[0], last[0]) == ("256", "1,024")
    assert int(first[-1]) > int(last[-1])
    assert last[-2].startswith("[")
    done = invoke("fit", "gpt2-124m", "--gpu", "T4", "--plot")
    assert "process by run.batch_size, · T4, GiB" in done.stdout
    assert len(done.stdout.partition("process by")[2].splitlines()) > 12


@pytest.mark.slow
def test_the_smallest_card_comes_before_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    lines = invoke("fit", "llama-3.1-8b-lora").stdout.splitlines()
    assert lines[0].startswith("smallest card that fits: data centre H800, workstation RTXPRO6000, consumer none")


@pytest.mark.slow
def test_without_a_card_every_card_is_answered() -> None:
    code, read = document("llama-3.1-8b-serve")
    (only,) = read["presets"]
    cards = {one["card"]: one for one in only["cards"]}
    assert code == 0
    assert set(cards) == {device.name for device in COMPARED}
    assert cards["RTX4090"]["group"] == "consumer"
    assert cards["A10"]["verdict"] == "does not fit"
    assert (cards["H100"]["verdict"], cards["H100"]["vary"]) == ("fits", "run.max_model_len")
    assert cards["H100"]["largest"] == document("llama-3.1-8b-serve", "--gpu", "H100")[1]["largest"]
    _, _, printed = invoke("fit", "llama-3.1-8b-serve").stdout.partition("\n")  # the answer
    assert ">131,072" in printed
    assert (
        printed.index("data centre") < printed.index("A100-80GB") < printed.index("consumer") < printed.index("RTX4090")
    )


def test_lines_for_slurm_have_the_smallest_allocation_of_a_type_that_is_one() -> None:
    def lines(*arguments: str) -> list[str]:
        done = invoke("fit", *arguments, "--sbatch")
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    alone = lines("gpt2-124m", "--gpu", "H100")
    assert alone[0].startswith("# gpt2-124m on H100: ")
    assert alone[1:] == ["#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1", "#SBATCH --gres=gpu:1"]
    shared = lines("llama-3.1-8b-full", "--gpu", "H100", "--gres-type", "h100")
    assert "76.1 GiB" in shared[0], "as `fit` has it: the larger figure of another method booked two"
    assert shared[1:] == ["#SBATCH --nodes=1", "#SBATCH --ntasks-per-node=1", "#SBATCH --gres=gpu:h100:1"]
    spread = lines("llama-3.1-70b-fsdp", "--gpu", "H100", "--per-node", "4")  # the preset's own 64 ranks
    assert spread[1:] == ["#SBATCH --nodes=16", "#SBATCH --ntasks-per-node=4", "#SBATCH --gres=gpu:4"]
    tight = lines("llama-3.1-8b-lora", "--gpu", "H100")
    assert tight[3] == "#SBATCH --gres=gpu:1", "as `fit` says without it: four were booked for a job that one holds"
    assert "76.3 GiB" in tight[0]
    assert "tensor parallel over 2" in lines("llama-3.1-70b-infer", "--gpu", "H100")[0]
    for wrong in (
        ["--sbatch"],
        ["--gpu", "H100", "--sbatch", "--json"],
        ["--gpu", "H100", "--sbatch", "--gres-type", "x\ny"],
    ):
        assert invoke("fit", "gpt2-124m", *wrong).exit_code == 2
    none = ("llama-3.1-8b-full", "--memory", "2GiB", "--sbatch")
    done = invoke("fit", *none)
    assert (done.exit_code, done.stdout) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "job", "columns"), [
    ((), "llama.cpp", ("Q4_K_M", "Q6_K", "Q8_0", "F16")),
    (("--serve", "vllm", "--gpus", "2"), "vLLM over 2 GPUs", ("4 BITS", "FP8", "PUBLISHED")),
    (("--qlora", "--checkpointing", "--context", "2k"), "QLoRA", ("NF4",)),
    (("--quant", "q5_k_m", "--context", "32k"), "llama.cpp", ("Q5_K_M",)),
])  # fmt: skip
def test_the_models_that_fit_do_by_estimate(asked: tuple[str, ...], job: str, columns: tuple[str, ...]) -> None:
    """Largest first, each with the context that `estimate` says fits, and of which a step more does not."""
    code, read = document("--gpu", "24GB", *asked)
    (gpu,) = read["gpus"]
    assert (code, read["job"], gpu["gpu"], gpu["more"], len(gpu["models"])) == (0, job, "a card of 24GB", True, 20)
    sizes = [model["parameters"] for model in gpu["models"]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(tuple(model["contexts"]) == columns and any(model["contexts"].values()) for model in gpu["models"])
    quants = {"Q4_K_M": "q4_k_m", "4 BITS": "int4", "NF4": "none"}
    limited = (one for one in gpu["models"] if one["contexts"][columns[0]] not in {None, one["own_context"]})
    model = next(limited)
    more = [] if job == "QLoRA" or "--quant" in asked else ["--quant", quants[columns[0]]]
    kind = ["--serve", "llama.cpp"] if job == "llama.cpp" else []
    words = [word for word in asked if word not in {"--context", "2k", "32k"}]
    for tokens, expected in ((model["contexts"][columns[0]], 0), (model["contexts"][columns[0]] + 1024, 1)):
        arguments = ["estimate", model["model"], *kind, *words, *more, "--seq-len", str(tokens), "--gpu", "24GB"]
        assert invoke(*arguments).exit_code in ({expected, 2} if expected else {0}), tokens


@pytest.mark.slow
def test_the_table_of_models_for_several_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = invoke("fit", "--gpu", "1GB,8GB", "--context", "8k")
    assert done.exit_code == 0
    first, small, large = done.stdout.split("\n\n")
    assert first.startswith("llama.cpp, room for 8,192 tokens or more.")
    assert small.startswith("a card of 1GB, 953.7 MiB")
    assert [line.split()[:4] for line in large.splitlines()[:2]] == [
        ["a", "card", "of", "8GB,"],
        ["MODEL", "PARAMETERS", "NEEDS", "GiB"],
    ]
    assert "--all lists them" in large
    assert "--all" not in small
    none = invoke("fit", "--memory", "256MiB")
    assert (none.exit_code, none.stdout.splitlines()[-1]) == (1, "a card of 256MiB, 256.0 MiB: no model fits")


def test_the_models_for_the_free_memory_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = scenes.usual(trained=79 * GIB)
    monkeypatch.setattr("vramtui.cli.pick.sample_here", lambda: sample)
    done = invoke("fit", "--serve", "vllm", "--json")
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert done.stderr == "vramtui: the one of 2 GPUs with the most free memory; --gpu names others\n"
    assert gpu["memory"] == sample.gpus[1].memory.free
    assert gpu["models"]
    assert all(model["needs"] > 0.95 * gpu["memory"] for model in gpu["models"]), "0.9 of the GPU is more than is free"
