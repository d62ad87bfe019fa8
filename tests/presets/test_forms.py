from pathlib import Path
from typing import get_args

import pytest

from vramtui.core.schema.models import Model
from vramtui.core.schema.workload import Run
from vramtui.presets.draft import FROM_FILES, FormField, FormGroup, fields_of, form_of, helps_of, summary_of

TEXT = """\
# how we train
name = "Small"

[model]
kind = "transformer"
hidden_size = 64            # as published
num_hidden_layers = 2
num_attention_heads = 4
vocab_size = 100

[run]
kind = "train"
batch_size = 1_000
precision = 'fp32'
lora = { rank = 4, target_modules = ["q_proj",
  "v_proj"] }

[match]
gpu = 'H100'
"""


def _tags(union: object) -> list[str]:
    return [str(kind.__struct_config__.tag) for kind in get_args(union)]


def _field(text: str, key: str) -> FormField:
    return fields_of(form_of(text))[key]


def _kinds() -> list[str]:
    models = [f'[model]\nkind = "{tag}"' for tag in _tags(Model)]
    runs = [f'[run]\nkind = "{tag}"' for tag in _tags(Run)]
    drafts = [f'[run]\nkind = "infer"\n[run.draft]\nkind = "{tag}"' for tag in _tags(Model)]
    return [*models, *runs, *drafts]


@pytest.mark.parametrize("text", _kinds(), ids=lambda text: text.replace("\n", " "))
def test_a_kind_shows_all_of_its_own_keys_with_a_sentence_of_help(text: str) -> None:
    form = form_of(text)
    for field in fields_of(form).values():
        assert field.help.endswith("."), field.key
        assert field.help[0].isupper() or field.help[0] in "`0123456789", field
        assert len(field.help.split()) > 1, field
    assert all(group.title for group in form)
    table = text.rsplit("[", maxsplit=1)[-1].partition("]")[0]
    tag = text.split('"')[-2]
    (struct,) = {kind for union in (Model, Run) for kind in get_args(union) if kind.__struct_config__.tag == tag}
    shown = {key.removeprefix(f"{table}.").split(".")[0] for key in fields_of(form) if key.startswith(table)}
    from_file = {name for group, name in FROM_FILES if group == table}
    assert set(struct.__struct_fields__) - from_file <= shown
    assert not shown & from_file


def test_the_form_follows_types_and_kinds() -> None:
    groups = [group.key for group in form_of(TEXT)]
    assert groups == ["", "model", "run", "run.lora", "parallel", "match", "measured"]
    titles = {group.key: group.title for group in form_of(TEXT)}
    assert titles[""] == "Preset"
    assert titles["run.lora"] == "Lora"
    form = form_of(TEXT)
    assert (_group(form, "model").required, _group(form, "model").line) == (True, 4)
    assert (_group(form, "run.lora").required, _group(form, "run.lora").line) == (False, 15)
    assert (_group(form, "parallel").required, _group(form, "parallel").line) == (False, None)
    assert _group(form, "parallel").help.startswith("Ranks along each dimension")
    draft = _group(form_of(TEXT.replace('"train"', '"infer"')), "run.draft")
    assert draft.help == "A smaller model that proposes tokens (speculative decoding)."
    assert [field.key for field in draft.fields] == ["run.draft.kind"]
    serving = form_of(TEXT.replace('"train"', '"serve"'))
    assert "run.gpu_memory_utilization" in fields_of(serving)
    assert "run.optimizer" not in fields_of(serving)
    unknown = fields_of(form_of(TEXT.replace('"train"', '"trian"')))
    assert [key for key in unknown if key.startswith("run.")] == ["run.kind"]
    assert unknown["run.kind"].value == "trian"
    assert [field.key for field in form_of("")[1].fields] == ["model.kind"]
    assert _field(TEXT.replace("1_000", '"many"'), "run.batch_size").value == '"many"'
    assert _field(TEXT.replace("'fp32'", "32"), "run.precision").value == "32"
    tables = TEXT + '[[measured]]\nwhere = "here"\n'
    assert fields_of(form_of(tables))["measured.where"].value is None
    text = '[model]\nkind = "sequential"\ninput_shape = [4]\n[[model.layers]]\ntype = "linear"\nout_features = 2\n'
    layers = _field(text, "model.layers")
    assert (layers.kind, layers.settable, layers.line) == ("table", False, 4)
    assert _field(text, "model.input_shape").kind == "list"


def _group(form: tuple[FormGroup, ...], key: str) -> FormGroup:
    return next(group for group in form if group.key == key)


@pytest.mark.parametrize(("key", "kind", "value", "line"), [
    ("name", "text", "Small", 2),
    ("model.kind", "choice", "transformer", 5),
    ("model.hidden_size", "int", "64", 6),
    ("run.batch_size", "int", "1000", 13),
    ("run.precision", "choice", "fp32", 14),
    ("run.lora.rank", "int", "4", 15),
    ("run.lora.target_modules", "list", '["q_proj", "v_proj"]', 15),
    ("match.gpu", "text", "H100", 19),
    ("run.optimizer", "choice", None, None),
    ("run.lora.use_dora", "bool", None, None),
    ("run.max_grad_norm", "float", None, None),
    ("measured.where", "text", None, None),
])  # fmt: skip
def test_values_are_as_the_text_has_them(key: str, kind: str, value: str | None, line: int | None) -> None:
    field = _field(TEXT, key)
    assert (field.kind, field.value, field.line) == (kind, value, line)


def test_what_a_type_says_of_a_key() -> None:
    batch = _field(TEXT, "run.batch_size")
    assert (batch.minimum, batch.minimum_excluded, batch.default, batch.required) == (1, False, "1", False)
    assert batch.range == "at least 1"
    norm = _field(TEXT, "run.max_grad_norm")
    assert (norm.minimum, norm.minimum_excluded, norm.default, norm.range) == (0.0, True, None, "more than 0")
    assert _field(TEXT, "model.attention_dropout").range == "at least 0, less than 1"
    assert _field(TEXT, "run.sequence_length").unit == "tokens"
    assert _field(TEXT, "measured.process").unit == "bytes"
    assert _field(TEXT, "parallel.bucket_cap_mb").unit == "MiB"
    assert _field(TEXT, "run.attention").choices == ("eager", "flash", "efficient", "cudnn")
    assert _field(TEXT, "run.checkpointing").default == "none"
    assert _field(TEXT, "run.kind").choices == ("train", "infer", "serve")
    assert _field(TEXT, "run.kind").choice_helps[0] == "One training job."
    assert _field(TEXT, "parallel.reshard_after_forward").default == "true"
    assert _field(TEXT, "run.lora.rank").required
    assert not _field(TEXT, "measured.where").required  # until the table is begun
    assert _field(TEXT + "[measured]\nprocess = 1\n", "measured.where").required


@pytest.mark.parametrize("text", ["", "\ufeff", "[", "[[[[", '"""', "a = " + "[" * 5000, "\x00", "=\n" * 200])
def test_any_text_has_a_form(text: str) -> None:
    assert fields_of(form_of(text))["name"].value is None


def test_a_models_file_fills_the_form(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100, "n_positions": 32}
    (tmp_path / "config.json").write_text(str(config | {"architectures": ["GPT2LMHeadModel"]}).replace("'", '"'))
    text = '[model]\nconfig = "config.json"\nnum_hidden_layers = 3\n[run]\nkind = "train"\n'
    fields = fields_of(form_of(text, tmp_path))
    assert fields["model.kind"].default == "transformer"
    assert not fields["model.kind"].required
    assert (fields["model.hidden_size"].default, fields["model.hidden_size"].required) == ("64", False)
    assert (fields["model.num_hidden_layers"].value, fields["model.num_hidden_layers"].default) == ("3", "2")
    assert fields["model.config"].value == "config.json"
    unread = [key for key in fields_of(form_of(text)) if key.startswith("model.")]
    assert unread == ["model.kind", "model.config"]
    (tmp_path / "config.json").write_text(
        str(config | {"architectures": ["GPT2LMHeadModel"], "n_embd": 128}).replace("'", '"')
    )
    assert fields_of(form_of(text, tmp_path))["model.hidden_size"].default == "128"


class _Documented:
    """One thing, as Nobody et al. 1999 have it. `third` is named here.

    Attributes:
        first: the first; `second` the second.
        fourth: long enough
            for two lines.
    """


def test_help_is_read_from_docstrings() -> None:
    assert summary_of(_Documented) == "One thing, as Nobody et al. 1999 have it."
    assert helps_of(_Documented) == {
        "first": "The first; `second` the second.",
        "second": "`second` the second.",
        "third": "`third` is named here.",
        "fourth": "Long enough for two lines.",
    }
