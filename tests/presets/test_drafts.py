import difflib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import NOTED
from tests.properties import examples
from tests.tables import rows
from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import TrainRun
from vramtui.presets import PresetLibrary, bundled_folder, preset_files
from vramtui.presets import draft as drafts
from vramtui.presets.named_presets import preset_named

SHIPPED = preset_files(bundled_folder())


def _another(field: drafts.FormField) -> str:
    now = field.value if field.value is not None else field.default
    if field.kind == "int":
        number = int(now or field.minimum or 0) + 1
        return str(number if field.maximum is None or number <= field.maximum else int(field.minimum or 0))
    others = {
        "float": "0.5" if now != "0.5" else "0.25",
        "bool": "false" if now == "true" else "true",
        "choice": next((choice for choice in field.choices if choice != now), ""),
        "list": '["fc_one"]' if "modules" in field.key or field.key.endswith("arguments") else "[3, 5]",
        "text": f"{now or ''} changed.*",
    }
    return others[field.kind]


def _comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


def test_opening_and_saving_keeps_every_byte_that_is_easily_lost(tmp_path: Path) -> None:
    wrong = []
    for path in SHIPPED:
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        draft = drafts.Draft.at(copy)
        for field in drafts.fields_of(draft.form).values():
            if field.value is not None:
                draft.set_value(field.key, field.value)
        draft.set_text(draft.text)
        if (draft.is_changed, draft.problems, draft.undo(), draft.difference()) != (False, (), False, ""):
            wrong.append(path.name)
        draft.save()
        if copy.read_bytes() != path.read_bytes():
            wrong.append(path.name)
    assert wrong == []
    text = NOTED.replace("\n", "\r\n").replace("batch_size = 2", "batch_size\t=  2_0 ") + "  \t\r\n\r\n# the end"
    path = tmp_path / "small.toml"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    draft = drafts.Draft.at(path)
    assert draft.text == text
    draft.set_value("run.batch_size", "20")
    assert not draft.is_changed
    draft.set_value("run.batch_size", "21")
    draft.set_value("run.sequence_length", "5")
    draft.save()
    added = b"batch_size\t=  21  # more does not fit\r\nsequence_length = 5\r\n"
    assert path.read_bytes() == b"\xef\xbb\xbf" + text.encode().replace(
        b"batch_size\t=  2_0  # more does not fit\r\n", added
    )
    assert drafts.Draft.at(path).problems == ()


@pytest.mark.slow
def test_an_edit_of_any_bundled_preset_changes_one_line_and_keeps_comments() -> None:
    wrong, done = [], set[str]()
    for path in SHIPPED:
        text = path.read_text(encoding="utf-8")
        fields = [
            field
            for field in drafts.fields_of(drafts.form_of(text)).values()
            if field.settable and field.kind != "table"
        ]
        new = [field for field in fields if field.key not in done]
        set_ones = [field for field in fields if field.value is not None]
        for field in {field.key: field for field in (*new[:8], *set_ones[:1], *set_ones[-1:], *fields[-1:])}.values():
            done.add(field.key)
            draft = drafts.Draft(text, path.stem)
            raw = _another(field)
            draft.set_value(field.key, raw)
            changes = [one for one in difflib.ndiff(text.splitlines(), draft.text.splitlines()) if one[0] in "+-"]
            removed = [one for one in changes if one[0] == "-"]
            added = [one for one in changes if one[0] == "+" and one[1:].strip()]
            value: object = toml.loads(draft.text)
            for part in field.key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            wanted = raw if field.kind in {"text", "choice"} and not raw.isdecimal() else toml.loads(f"v = {raw}")["v"]
            few = len(added) == len(removed) == 1 if field.value is not None else not removed and len(added) <= 2
            if value != wanted or not few or _comments(draft.text) != _comments(text):
                wrong.append((path.name, field.key, changes))
            draft.undo()
            assert draft.text == text
    assert wrong == []


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_a_text_field_that_makes_line_ends_the_same(end: str) -> None:
    mixed = f"# one\r\n# two\n{NOTED}# \u2028 \x85 last{end}"
    draft = drafts.Draft(mixed, "small")
    for newline in ("\n", "\r\n"):
        draft.set_text(newline.join(mixed.splitlines()) + (newline if end else ""))
        assert draft.text == mixed
        draft.set_text(newline.join(mixed.replace("= 2 #", "= 3 #").splitlines()) + (newline if end else ""))
        assert draft.text == mixed.replace("= 2 #", "= 3 #")
        draft.undo()
        assert draft.text == mixed


def test_both_sides_see_one_text_also_while_it_is_looked_at() -> None:
    draft = drafts.Draft(NOTED, "small")
    draft.set_value("run.batch_size", "8")
    assert draft.text == NOTED.replace("= 2 #", "= 8 #")
    assert isinstance(draft.preset.run if draft.preset else None, TrainRun)
    draft.set_text(draft.text.replace("= 8 #", "= 16 #"))
    assert drafts.fields_of(draft.form)["run.batch_size"].value == "16"

    def heads(preset: Preset) -> None:
        raise UserError(f"model.num_attention_heads does not suit {preset.name}")

    draft = drafts.Draft(NOTED, "small", try_out=heads)
    assert [(problem.line, problem.key) for problem in draft.problems] == [(8, "model.num_attention_heads")]
    assert not draft.is_current


def test_a_wrong_value_is_marked_and_the_refusal_is_over_with_the_next_value() -> None:
    draft = drafts.Draft(NOTED, "small")
    good = draft.preset
    draft.set_text(NOTED.replace("= 2 #", "= 0 #"))
    wrong = [(problem.line, problem.sentence) for problem in draft.problems]
    assert wrong == [(13, "run.batch_size is 0; it must be at least 1")]
    assert draft.preset is good
    assert not draft.is_current
    draft.undo()
    assert (draft.problems, draft.is_current, draft.preset) == ((), True, good)
    draft = drafts.Draft(NOTED, "small")
    draft.set_value("run.batch_size", "x")
    draft.set_value("run.batch_size", "2")
    assert (draft.problems, draft.text) == ((), NOTED)
    draft.set_value("run.batch_size", "x")
    draft.unset("run.batch_size")
    assert draft.problems == ()
    assert draft.text == NOTED.replace("batch_size = 2 # more does not fit\n", "")
    draft = drafts.Draft(NOTED, "small")
    for raw in ("3", "32", "32x"):
        draft.set_value("run.batch_size", raw)
    assert (draft.text, draft.refused) == (NOTED, {"run.batch_size": "32x"})
    with pytest.raises(UserError, match="'32x'; a whole number is needed"):
        draft.save()
    for raw, number in (("2k", 2048), ("1M", 1 << 20), ("32,768", 32768)):
        draft.set_value("run.batch_size", raw)
        assert draft.text == NOTED.replace("= 2 #", f"= {number} #")
    draft.undo()
    assert (draft.text, draft.undo()) == (NOTED, False)


@pytest.mark.parametrize(("key", "raw", "reason"), rows(__file__, "what_cannot_stand_in_toml_is_refused"))
def test_what_cannot_stand_in_toml_is_refused(key: str, raw: str, reason: str) -> None:
    draft = drafts.Draft(NOTED, "small")
    draft.set_value(key, raw)
    assert draft.text == NOTED
    assert [(problem.key, problem.sentence) for problem in draft.problems] == [(key, reason)]
    assert draft.is_current
    draft.set_text(NOTED)  # as a text field says what it was given
    assert len(draft.problems) == 1
    draft.undo()
    assert not draft.problems


def test_lists_and_texts_as_people_type_them_and_what_needs_the_text_is_said() -> None:
    draft = drafts.Draft(NOTED, "small")
    draft.set_value("run.lora.rank", "4")
    draft.set_value("run.lora.target_modules", "q_proj, v_proj")
    draft.set_value("notes", 'He said "8\\8"\n\x7f')
    draft.set_value("match.gpu", "H\\100")
    assert draft.problems == ()
    assert 'target_modules = ["q_proj", "v_proj"]' in draft.text
    assert draft.preset.notes == 'He said "8\\8"\n\x7f'
    assert draft.preset.match.gpu == "H\\100"
    listed = "target_modules = [\n  'q_proj', # first\n  'v_proj',\n]\n"
    draft = drafts.Draft(f"{NOTED}[run.lora]\nrank = 4\n{listed}", "small")
    assert not drafts.fields_of(draft.form)["run.lora.target_modules"].settable
    draft.set_value("run.lora.target_modules", "[]")
    assert listed in draft.text
    assert draft.problems[0].sentence == "run.lora.target_modules spans several lines; change it in the text (F6)"


def test_what_is_not_toml_or_of_another_kind_is_said_with_what_to_correct() -> None:
    draft = drafts.Draft(NOTED, "small")
    broken = NOTED.replace("num_hidden_layers = 2", "num_hidden_layers = = 2")
    draft.set_text(broken)
    assert drafts.fields_of(draft.form)["model.num_hidden_layers"].value == "2"
    draft.set_value("run.batch_size", "3")
    draft.unset("run.batch_size")
    draft.set_value("run.batch_size", "3")
    assert draft.text == broken
    assert [problem.sentence for problem in draft.problems] == [
        "not valid TOML: invalid value",
        "line 7 of the text is not valid TOML; correct it there first (F6)",
    ]
    draft.set_text(NOTED)
    assert (draft.is_current, draft.problems) == (True, ())
    draft = drafts.Draft(NOTED + "[run.lora]\nrank = 4\ntarget_modules = []\n", "small")
    draft.set_value("run.kind", "serve")
    assert {problem.key for problem in draft.problems} == {"run.batch_size", "run.lora"}
    assert draft.drop_unknown() == ("run.batch_size", "run.lora")
    assert draft.problems == ()
    assert draft.text == NOTED.replace('"train"', '"serve"').replace("batch_size = 2 # more does not fit\n", "")
    draft.undo()
    draft.undo()
    assert draft.text.endswith("[run.lora]\nrank = 4\ntarget_modules = []\n")
    assert draft.drop_unknown() == ()


def test_typing_in_one_place_is_one_step_and_form_and_text_share_one_history() -> None:
    draft = drafts.Draft(NOTED, "small")
    for raw in ("1", "12", "128"):
        draft.set_value("run.batch_size", raw)
    draft.set_value("run.sequence_length", "5")
    draft.set_value("run.sequence_length", "51")
    draft.undo()
    assert draft.text == NOTED.replace("= 2 #", "= 128 #")
    draft.undo()
    assert draft.text == NOTED
    assert not draft.undo()
    draft.redo()
    draft.redo()
    assert "sequence_length = 51" in draft.text
    assert not draft.redo()
    draft.set_value("run.batch_size", "1")
    draft.end_step()
    draft.set_value("run.batch_size", "3")
    draft.undo()
    assert "batch_size = 1 #" in draft.text
    draft = drafts.Draft(NOTED, "small")
    texts = [NOTED]
    draft.set_value("run.batch_size", "4")
    texts.append(draft.text)
    draft.set_text(draft.text + "# one")
    draft.set_text(draft.text + " more")  # the same line: one step
    texts.append(draft.text)
    draft.set_text(draft.text + "\n")
    draft.set_text(draft.text + "# two")
    texts += [texts[-1] + "\n", draft.text]
    draft.set_value("run.batch_size", "8")
    texts.append(draft.text)
    back = []
    while draft.undo():
        back.append(draft.text)
    assert back == texts[-2::-1]
    forth = []
    while draft.redo():
        forth.append(draft.text)
    assert forth == texts[1:]


def test_back_to_what_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(NOTED)
    draft = drafts.Draft.at(path)
    draft.set_value("run.batch_size", "4")
    assert draft.is_changed
    assert draft.difference().splitlines()[2:] == [
        "@@ -10,4 +10,4 @@",
        " ",
        " [run]",
        ' kind = "train"',
        "-batch_size = 2 # more does not fit",
        "+batch_size = 4 # more does not fit",
    ]
    draft.revert()
    assert (draft.text, draft.is_changed) == (NOTED, False)
    draft.undo()
    assert draft.is_changed
    new = drafts.Draft(NOTED, "new")
    new.set_value("run.batch_size", "4")
    new.revert()
    assert (new.text, new.is_changed) == (NOTED, True)


@pytest.mark.parametrize(
    ("text", "lines"), [("a", "+a\n\\ No newline at end of file\n"), ("# a\x85b\u2028c\r\n", "+# a\x85b\u2028c\r\n")]
)
def test_a_difference_takes_only_line_feeds_for_line_ends(text: str, lines: str) -> None:
    assert drafts.Draft(text, "new").difference() == f"--- saved\n+++ draft\n@@ -0,0 +1 @@\n{lines}"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "user"))
    return tmp_path / "user" / "presets"


def _bundled(name: str) -> PresetFile:
    return PresetLibrary(Path("/nowhere")).get(name)


def test_a_bundled_preset_is_saved_as_ones_own(user: Path) -> None:
    found = _bundled("gpt2-124m")
    before = Path(found.path).read_bytes()
    draft = drafts.Draft.open(found)
    assert draft.bundled
    draft.set_value("run.batch_size", "7")
    assert draft.save() == user / "gpt2-124m.toml"
    assert (draft.path, draft.bundled, draft.is_changed) == (user / "gpt2-124m.toml", False, False)
    assert Path(found.path).read_bytes() == before
    draft.set_value("run.batch_size", "9")
    draft.save()
    assert "batch_size = 9" in (user / "gpt2-124m.toml").read_text()
    again = drafts.Draft.open(found)
    with pytest.raises(drafts.NameTakenError, match=r"gpt2-124m\.toml exists already") as taken:
        again.save()
    assert taken.value.path == user / "gpt2-124m.toml"
    again.name = "other"
    assert again.save() == user / "other.toml"
    with pytest.raises(UserError, match="is a bundled preset and cannot be deleted"):
        drafts.Draft.open(found).delete()


def test_new_ones_from_a_copy_and_from_a_models_file(user: Path, tmp_path: Path) -> None:
    copied = drafts.draft_copy(_bundled("gpt2-124m"), "mine")
    assert (copied.path, copied.is_changed, copied.problems) == (None, True, ())
    assert copied.text == Path(_bundled("gpt2-124m").path).read_text(encoding="utf-8")
    copied.save()
    with pytest.raises(drafts.NameTakenError):
        drafts.draft_copy(_bundled("gpt2-355m"), "mine").save()
    with pytest.raises(UserError, match="is not a valid preset name"):
        drafts.draft_copy(_bundled("gpt2-124m"), "../mine")
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4,'
        ' "vocab_size": 100, "n_positions": 32}'
    )
    made = drafts.draft_from_model(str(folder))
    assert (made.name, made.problems) == ("my-model", ())
    assert made.save() == user / "my-model.toml"
    assert drafts.Draft.open(preset_named(str(folder), PresetLibrary(user))).problems == ()


def test_a_broken_file_can_be_opened_and_mended_and_is_not_saved(user: Path, tmp_path: Path) -> None:
    draft = drafts.Draft("name = 1", "broken")
    with pytest.raises(UserError, match=r"broken\.toml:1: name is 1"):
        draft.save()
    assert not user.exists()
    path = tmp_path / "small.toml"
    path.write_text(NOTED.replace("= 2 #", "= 0 #"))
    draft = drafts.Draft.at(path)
    assert draft.preset is None
    draft.set_value("run.batch_size", "1")
    draft.save()
    assert drafts.Draft.at(path).is_current


def test_deleting(user: Path) -> None:
    path = user / "small.toml"
    user.mkdir(parents=True)
    path.write_text(NOTED)
    draft = drafts.Draft.at(path)
    draft.delete()
    assert not path.exists()
    assert (draft.path, draft.text, draft.is_changed) == (None, NOTED, True)
    assert draft.save() == path


def test_changes_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(NOTED)
    draft = drafts.Draft.at(path)
    assert not draft.changed_on_disk()
    path.write_text(NOTED)
    assert not draft.changed_on_disk()  # written anew, and the same
    draft.set_value("run.batch_size", "4")
    path.write_text(NOTED + "# theirs\n")
    assert draft.changed_on_disk()
    assert draft.disk_text == NOTED + "# theirs\n"
    with pytest.raises(drafts.ChangedOnDiskError, match="was changed by another program"):
        draft.save()
    draft.take_disk()
    assert (draft.text, draft.is_changed, draft.changed_on_disk()) == (NOTED + "# theirs\n", False, False)
    draft.undo()
    assert draft.text == NOTED.replace("= 2 #", "= 4 #")
    path.write_text("name = 1")
    draft.keep_mine()
    assert "-name = 1" in draft.difference()
    draft.save()
    assert path.read_text() == draft.text
    path.unlink()
    assert draft.changed_on_disk()
    assert draft.disk_text is None
    draft.take_disk()
    assert draft.text
    with pytest.raises(drafts.ChangedOnDiskError):
        draft.save()
    draft.save(replace=True)
    assert path.exists()


KEYS = ("run.batch_size", "run.sequence_length", "run.lora.rank", "name", "match.gpu", "parallel.data", "run.kind")
EDITS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(KEYS), st.text("0123xy'\"\\ é", max_size=4)),
    st.tuples(st.just("unset"), st.sampled_from((*KEYS, "run.lora", "match")), st.just("")),
    st.tuples(st.just("text"), st.text("ab=[]\"'#\n\r", max_size=4), st.integers(0, 400)),
    st.tuples(st.sampled_from(["undo", "redo", "revert", "end_step", "drop_unknown"]), st.just(""), st.just("")),
)


@examples(60)
@given(st.sampled_from([NOTED, NOTED.replace("\n", "\r\n"), ""]), st.lists(EDITS, max_size=12))
def test_everything_can_be_undone_and_done_again(text: str, edits: list[tuple[str, str, Any]]) -> None:
    draft = drafts.Draft(text, "small")
    for what, first, second in edits:
        if what == "set":
            draft.set_value(first, second)
        elif what == "unset":
            draft.unset(first)
        elif what == "text":
            draft.set_text(draft.text[:second] + first + draft.text[second + 2 :])
        else:
            getattr(draft, what)()
        assert list(drafts.form_of(draft.text))
    after = draft.text
    while draft.undo():
        pass
    assert draft.text == text
    while draft.redo():
        pass
    if not any(what == "undo" for what, _, _ in edits):
        assert draft.text == after
