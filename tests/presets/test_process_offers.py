import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from tests.tables import rows
from vramtui.core.base.text import printable
from vramtui.core.observation.matcher import matches
from vramtui.core.observation.readings import Gpu, Process
from vramtui.presets import PresetLibrary, find_problems
from vramtui.presets.draft import fields_of, form_of
from vramtui.presets.importers.command_lines import read_command_line
from vramtui.presets.importers.derived import derived_preset
from vramtui.presets.importers.flags import FLAGS
from vramtui.presets.importers.job_files import Offer
from vramtui.presets.importers.process_offers import draft_from_process, family_of, start_from

LIBRARY = PresetLibrary(Path("/nowhere"))
COMMANDS = {name: (command, dict(said)) for name, command, said in rows(__file__, "commands")}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_line_says(name: str) -> None:
    command, said = COMMANDS[name]
    offers = draft_from_process(command, LIBRARY)
    assert {offer.key: offer.value for offer in offers} == said
    assert len(offers) == len(said)
    for offer in offers:
        assert offer.flag
        assert all(part in command for part in re.split(r"[ =]", offer.flag)), offer


@pytest.mark.parametrize("name", [name for name, (_, said) in COMMANDS.items() if "preset" in said])
def test_a_draft_from_what_was_taken(name: str) -> None:
    command, said = COMMANDS[name]
    draft = start_from(draft_from_process(command, LIBRARY), LIBRARY, "my-job")
    assert draft.problems == ()
    assert (draft.name, draft.path) == ("my-job", None)
    fields = fields_of(draft.form)
    assert fields["name"].value == "my-job"
    assert {key: fields[key].value for key in said if key != "preset"} == {
        key: value for key, value in said.items() if key != "preset"
    }
    assert draft.preset.match is not None
    gpu = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100")
    assert matches(draft.preset.match, gpu, Process(pid=1, type="C", command=command))


def test_only_what_was_taken_is_in_the_draft_and_it_says_what_is_missing() -> None:
    offers = draft_from_process(COMMANDS["vLLM"][0], LIBRARY)
    draft = start_from(tuple(offer for offer in offers if offer.key in {"preset", "run.max_num_seqs"}), LIBRARY, "a")
    known = LIBRARY.get("llama-3.1-70b-serve")
    changed = {line for line in draft.text.splitlines() if line not in Path(known.path).read_text().splitlines()}
    assert changed == {'name = "a"', "max_num_seqs = 64"}
    draft = start_from(draft_from_process(COMMANDS["Megatron"][0], LIBRARY), LIBRARY, "mine")
    assert [problem.sentence for problem in draft.problems] == [
        "model.vocab_size is missing; a transformer model needs it"
    ]
    draft.set_value("model.vocab_size", "50304")
    assert draft.is_current
    command = "/usr/bin/python3 /usr/local/bin/trtllm-serve serve meta-llama/Llama-3.1-70B-Instruct --tp_size 4"
    assert draft_from_process(command, LIBRARY) == ()
    assert derived_preset(command, None) is None


def test_a_models_file_that_is_there_is_offered_before_a_preset(tmp_path: Path) -> None:
    folder = tmp_path / "2Cd" / "gpt2"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4,'
        ' "vocab_size": 100, "n_positions": 32}'
    )
    offers = draft_from_process(f"python train.py --model_name_or_path {folder} --lr 1", LIBRARY)
    assert [(offer.key, offer.value) for offer in offers[:2]] == [
        ("model.config", str(folder)),
        ("preset", "gpt2-124m"),
    ]
    draft = start_from(offers, LIBRARY, "mine")
    assert draft.problems == ()
    assert fields_of(draft.form)["model.hidden_size"].value == "64"
    assert fields_of(draft.form)["run.kind"].value == "train"


@pytest.mark.parametrize(("command", "script"), rows(__file__, "the_script_of_a_command"))
def test_the_script_of_a_command(command: str, script: str) -> None:
    assert read_command_line(command).script == script


@pytest.mark.parametrize("name", COMMANDS)
def test_families(name: str) -> None:
    words = {"vLLM as a module": "vllm", "TRL with torchrun": "trainer", "llama.cpp": "llama.cpp"}
    words["TGI's server, which holds the memory"] = "tgi"
    expected = words.get(name, name.lower() if name.lower() in FLAGS else "trainer")
    assert family_of(read_command_line(COMMANDS[name][0])) == expected


FLAG_NAMES = sorted({flag for table in FLAGS.values() for flag in table})
VALUES = st.one_of(
    st.text(max_size=8), st.sampled_from(["8", "bf16", "True", "q_proj,k_proj", "1e99", "-1", "9" * 30, "nan"])
)
WORDS = st.one_of(
    st.sampled_from(
        ["python", "vllm", "serve", "tune run", "llama-server", "train.py", "-m", "x.gguf", "sglang", "'", "\\"]
    ),
    st.builds(lambda flag, value: f"--{flag}={value}", st.sampled_from(FLAG_NAMES), VALUES),
    st.builds(lambda flag, value: f"--{flag.replace('_', '-')} {value}", st.sampled_from(FLAG_NAMES), VALUES),
    st.text(max_size=6),
)


@examples(150)
@given(st.lists(WORDS, max_size=8).map(" ".join))
def test_any_command_line_gives_values_that_a_preset_may_have(command: str) -> None:
    for offer in draft_from_process(command, LIBRARY):
        assert printable(offer.flag) == offer.flag
        if offer.key in {"preset", "model.config"}:
            continue
        assert _is_allowed(offer), offer


def _is_allowed(offer: Offer) -> bool:
    table = offer.key.split(".")[0]
    for kind in ("train", "infer", "serve"):
        text = f'name = "x"\n[model]\nkind = "transformer"\n[run]\nkind = "{kind}"\n[match]\n[parallel]\n'
        field = fields_of(form_of(text)).get(offer.key)
        if field is None:
            continue
        quoted = field.kind in {"text", "choice"}
        value = "'" + offer.value + "'" if quoted and "'" not in offer.value else offer.value
        if quoted and "'" in offer.value:
            return True
        name = offer.key.removeprefix(f"{table}.")
        line = f"{name} = {value}"
        said = text.replace(f"[{table}]", f"[{table}]\n{line}") if name != "kind" else text
        if not any(problem.key == offer.key for problem in find_problems(said)):
            return True
    return offer.key == "model.sample_size"
