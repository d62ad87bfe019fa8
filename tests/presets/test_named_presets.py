import pytest

from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.models.stores.resolve import POPULAR, NameKind, known_names, resolve
from vramtui.presets import PresetLibrary
from vramtui.presets.named_presets import MOST, names_like, preset_named

LIBRARY = PresetLibrary()
SHORT = tuple(name for name in known_names() if "/" not in name)


@pytest.mark.parametrize("name", POPULAR)
def test_each_name_that_is_offered_is_known(name: str) -> None:
    assert resolve(name, LIBRARY.keys()).kind not in {NameKind.UNKNOWN, NameKind.REPOSITORY}


@pytest.mark.parametrize(("word", "first"), rows(__file__, "a_family_is_three_to_five_names"))
def test_a_family_is_three_to_five_names(word: str, first: str) -> None:
    names = names_like(word, LIBRARY.keys(), SHORT)
    assert names[0] == first
    assert 3 <= len(names) <= MOST
    with pytest.raises(UserError, match=f"did you mean {first}, "):
        preset_named(word, LIBRARY)


def test_a_name_of_no_family_or_of_no_model_gets_the_ways_on() -> None:
    with pytest.raises(UserError, match=r"--hub.*config\.json.*vramtui dry-run SCRIPT\.py"):
        preset_named("yolov8", LIBRARY)
    with pytest.raises(UserError, match="4090 is a card: `vramtui estimate MODEL --gpu 4090`"):
        preset_named("4090", LIBRARY)
    with pytest.raises(UserError, match=r"of that family GLM-4\.5-Air, .* are known.*--hub"):
        preset_named("glm-4.8", LIBRARY)
    run = preset_named("t5-large", LIBRARY).preset.run
    assert getattr(run, "sequence_length", None) == 512
