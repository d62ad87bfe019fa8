import msgspec
import pytest

from tests.tables import rows
from vramtui.core.estimate.assumptions import values_of
from vramtui.core.observation.readings import Gpu, Host, Process, Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.jobs import KnownPresets, matcher_of_library
from vramtui.presets import PresetLibrary
from vramtui.presets.importers.process_offers import is_served, with_command

LIBRARY = PresetLibrary()
LORA, FULL = "llama-3.1-8b-lora", "llama-3.1-8b-full"


def run(preset: str, command: str) -> tuple[dict[str, object], dict[str, str], tuple[str, ...]]:
    found = with_command(LIBRARY.get(preset), command)
    said = {known.key: known.words for known in found.known if known.origin == "command line"}
    return msgspec.to_builtins(found.preset.run), said, found.assumed


@pytest.mark.parametrize(
    ("preset", "command", "expected"),
    [
        (LORA, "python train.py --lora --batch 16 --seq-len 512", {"batch_size": 16, "sequence_length": 512}),
        (
            LORA,
            "python finetune.py --per_device_train_batch_size 8 --optim adafactor",
            {"batch_size": 8, "optimizer": "adafactor"},
        ),
        ("resnet-50-train", "python main.py -a resnet50 --batch-size 256", {"batch_size": 256}),
        ("resnet-50-train", "python main.py -a resnet50 -b 32", {"batch_size": 32}),
        (
            "gpt2-124m",
            "python train.py --batch_size=6 --block_size=512 --gradient_checkpointing",
            {"batch_size": 6, "sequence_length": 512, "checkpointing": "full"},
        ),
        ("llama-3.1-8b-serve", "vllm serve meta-llama/Llama-3.1-8B --max-model-len 8k", {"max_model_len": 8192}),
        ("llama-3.1-8b-llama-server", "llama-server -m a.gguf -c 0", {"max_model_len": 131072}),
        ("llama-3.1-8b-llama-server", "llama-server -m a.gguf -fit off", {"max_model_len": 131072}),
    ],
)
def test_flags_count(preset: str, command: str, expected: dict[str, object]) -> None:
    values, said, assumed = run(preset, command)
    assert {key: values[key] for key in expected} == expected
    assert said.keys() - {"run.lora"} == {f"run.{key}" for key in expected}
    assert ("run.precision" in assumed) == ("serve" not in preset), "a server takes its share anyhow"
    assert not {*said} & {*assumed}


def test_what_is_not_said_stays_and_two_jobs_of_one_preset_are_predicted_apart() -> None:
    values, said, assumed = run(LORA, "python train.py --bf16 --seq-len 512")
    plain = msgspec.to_builtins(LIBRARY.get(LORA).preset.run)
    assert values == plain | {"sequence_length": 512}
    assert said == {"run.precision": "--bf16", "run.sequence_length": "--seq-len 512"}
    assert assumed == ("run.batch_size", "run.lora", "run.lora.rank", "run.checkpointing")
    *_, assumed = run(LORA, "python train.py --bf16 --seq-len 512 --batch 3 --lora")
    assert assumed == ("run.lora.rank", "run.checkpointing"), "how large its adapters are is the preset's"
    *_, assumed = run(LORA, "python train.py --bf16 --seq-len 512 --batch 3 --lora-r 16 --gradient_checkpointing False")
    assert assumed == ()
    own = msgspec.structs.replace(LIBRARY.get(LORA), bundled=False)
    assert with_command(own, "python train.py") is own
    commands = ("python train_gpt2.py --size 124M --batch 2", "python train_gpt2.py --size 124M --batch 20")
    processes = tuple(Process(pid=pid, type="C", command=command) for pid, command in enumerate(commands, 10))
    sample = Sample(
        source="test",
        host=Host(name="h"),
        taken_at=0.0,
        gpus=(Gpu(index=0, uuid="u", name="H100", processes=processes),),
    )
    matched = matcher_of_library(LIBRARY).match(sample, {})
    assert {key.pid: (found.key, getattr(found.preset.run, "batch_size", None)) for key, found in matched.items()} == {
        10: ("gpt2-124m", 2),
        11: ("gpt2-124m", 20),
    }


@pytest.mark.parametrize(("preset", "flags", "rank", "assumed"), [
    (LORA, "--lora", 16, ("run.lora.rank",)),
    (LORA, "--lora --lora_r=64", 64, ()),
    (LORA, "--lora --lora-rank 16", 16, ()),
    (LORA, "--lora --lora_alpha 32", 16, ("run.lora.rank",)),
    (FULL, "--lora_r 32 --lora_target_modules q_proj,k_proj,v_proj", 32, ()),
    (FULL, "--lora_r 32", 32, ()),
    (FULL, "--lora", 8, ("run.lora.rank",)),
    (FULL, "--use_peft=True", 8, ("run.lora.rank",)),
    (FULL, "--use_peft=False", None, ()),
    (FULL, "", None, ("run.lora",)),
])  # fmt: skip
def test_adapters_count_where_the_preset_has_none_and_their_rank_is_assumed_where_it_is_not_said(
    preset: str, flags: str, rank: int | None, assumed: tuple[str, ...]
) -> None:
    sizes = "--per_device_train_batch_size 2 --bf16 --max_length 512 --gradient_checkpointing False"
    found = with_command(LIBRARY.get(preset), f"python train.py {sizes} {flags}")
    lora = getattr(found.preset.run, "lora", None)
    assert (None if lora is None else lora.rank, found.assumed) == (rank, assumed)
    if preset == LORA:
        assert values_of(found) == (("rank 16",) if assumed else ()), "the panel names it"
    else:
        own = msgspec.structs.replace(LIBRARY.get(preset), bundled=False)
        assert getattr(with_command(own, f"python train.py {flags}").preset.run, "lora", None) is None


def full_with(checkpointing: str) -> PresetFile:
    found = LIBRARY.get(FULL)
    run = msgspec.structs.replace(found.preset.run, checkpointing=checkpointing)
    return msgspec.structs.replace(found, preset=msgspec.structs.replace(found.preset, run=run))


def test_what_a_launcher_leaves_off_is_off() -> None:
    """The preset has checkpointing; a Trainer has none unless it is told."""
    checkpointed = full_with("full")
    command = "python run_clm.py --model_name_or_path meta-llama/Llama-3.1-8B --do_train --bf16 --block_size 1024"
    found = with_command(checkpointed, command)
    assert getattr(found.preset.run, "checkpointing", None) == "none"
    assert found.assumed == ()
    assert [known.key for known in found.known if known.origin == "launcher's default"] == [
        "run.batch_size", "run.checkpointing", "run.lora",
    ]  # fmt: skip
    assert getattr(found.preset.run, "batch_size", None) == 8
    on = with_command(checkpointed, f"{command} --gradient_checkpointing")
    assert getattr(on.preset.run, "checkpointing", None) == "full"
    elsewhere = with_command(checkpointed, "python train.py --batch 2 --bf16 --max_length 512 --lora_r 8")
    assert "run.checkpointing" in elsewhere.assumed, "nobody knows what a script of people's own does"


@pytest.mark.parametrize(("script", "checkpointing"), [
    ("run_clm.py", "none"),
    ("examples/pytorch/run_image_classification.py", "none"),
    ("trl/scripts/sft.py", None),
    ("run_sft.py", None),
    ("train.py", None),
    ("/env/bin/llamafactory-cli train", "full"),
    ("src/train.py --stage sft --finetuning_type lora", "full"),
])  # fmt: skip
def test_what_no_launcher_does_in_every_release_is_assumed(script: str, checkpointing: str | None) -> None:
    """TRL's configurations have checkpointing on from 0.22, and a script's flags do not tell whose they are."""
    other = "none" if checkpointing == "full" else "full"
    found = with_command(
        full_with(other), f"python {script} --do_train --per_device_train_batch_size 2 --bf16 --max_length 512"
    )
    assert getattr(found.preset.run, "checkpointing", None) == (checkpointing or other)
    assert ("run.checkpointing" in found.assumed) == (checkpointing is None)


@pytest.mark.parametrize("flag", ["--disable_gradient_checkpointing", "--disable_gradient_checkpointing True"])
def test_llamafactory_is_told_to_keep_activations(flag: str) -> None:
    command = f"llamafactory-cli train --do_train --bf16 --cutoff_len 512 --finetuning_type lora --stage sft {flag}"
    found = with_command(LIBRARY.get(LORA), command)
    assert getattr(found.preset.run, "checkpointing", None) == "none"
    assert "--disable_gradient_checkpointing" in {known.key: known.words for known in found.known}["run.checkpointing"]


@pytest.mark.parametrize(
    "command", ["", "--batch", "python x --batch -1 --batch 0 --seq-len 99999999999999", "'", "a=b" * 999]
)
def test_odd_command_lines_change_nothing(command: str) -> None:
    values, said, _ = run("gpt2-124m", command)
    assert said == {}
    assert values == msgspec.to_builtins(LIBRARY.get("gpt2-124m").preset.run)


@pytest.mark.parametrize(
    ("command", "served"), rows(__file__, "an_engine_is_not_predicted_by_a_preset_of_plain_inference")
)
def test_an_engine_is_not_predicted_by_a_preset_of_plain_inference(command: str, served: bool) -> None:
    assert is_served(LIBRARY.get("qwen-2.5-7b"), command) is served
    sample = Sample(
        source="test",
        host=Host(name="h"),
        taken_at=0.0,
        gpus=(Gpu(index=0, uuid="u", name="H100", processes=(Process(pid=10, type="C", command=command),)),),
    )
    matched = KnownPresets([LIBRARY.get("qwen-2.5-7b")]).matcher().match(sample, {})
    assert served is False or not matched


@pytest.mark.parametrize(("key", "flag", "sample"), [
    ("sdxl-lora", "--resolution=512", 64),
    ("sdxl-lora", "--resolution 1024", 128),
    ("sdxl-lora", "", 128),
    ("sdxl-lora", "--resolution 99999999999999999999", 128),
    ("llama-3.1-8b-lora", "--resolution 512", None),
])  # fmt: skip
def test_the_size_of_images_is_the_jobs_own(key: str, flag: str, sample: int | None) -> None:
    command = f"python train_text_to_image_lora_sdxl.py --pretrained_model_name_or_path a/b --train_batch_size 2 {flag}"
    read = with_command(PresetLibrary().get(key), command)
    assert getattr(read.preset.model, "sample_size", None) == sample
    assert {known.key: known.words for known in read.known}.get("model.sample_size") == (
        flag if flag and sample and len(flag) < 20 else None
    )


@pytest.mark.parametrize(
    ("said", "rank", "is_known"),
    [("", 8, True), ("--finetuning_type lora", 8, True), ("--finetuning_type lora --lora_rank 64", 64, True),
     ("--finetuning_type full", None, True), ("--finetuning_type freeze", None, False)],
)  # fmt: skip
def test_llamafactory_trains_adapters_by_default(said: str, rank: int | None, *, is_known: bool) -> None:
    """src/llamafactory/hparams/finetuning_args.py: finetuning_type lora, lora_rank 8, lora_target all."""
    command = f"llamafactory-cli train --stage sft --do_train --bf16 --cutoff_len 512 {said}"
    found = with_command(LIBRARY.get(FULL), command)
    lora = getattr(found.preset.run, "lora", None)
    assert (lora.rank if lora is not None else None) == rank
    assert ("run.lora" not in found.assumed) == is_known
    if rank == 8:
        assert lora.target_modules == ("all-linear",)
