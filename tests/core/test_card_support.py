"""What cards cannot do: refused by every method, and what PyTorch emulates is said."""

import msgspec
import pytest
from typer.testing import CliRunner

import vramtui
from vramtui.cli.main import program
from vramtui.core.estimate.devices import CannotStartError, card
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import METHODS, estimates_by
from vramtui.estimators.planner.card_table import card_fits
from vramtui.presets import PresetLibrary

PRESET = "gpt2-124m"
WORKLOAD = PresetLibrary().get(PRESET).preset.workload
FP8 = msgspec.structs.replace(WORKLOAD, run=msgspec.structs.replace(WORKLOAD.run, precision="fp8-mixed"))
COMPILED = msgspec.structs.replace(WORKLOAD, run=msgspec.structs.replace(WORKLOAD.run, compile=True))


@pytest.mark.parametrize("method", [None, *(name for name in METHODS if name != "rules:ID")])
@pytest.mark.parametrize(
    ("workload", "name", "needs"),
    [(FP8, "T4", "8.9"), (FP8, "A100", "8.9"), (COMPILED, "GTX1080Ti", "7.0"), (COMPILED, "P100", "7.0")],
)
def test_every_method_refuses_what_the_card_cannot(
    method: str | None, workload: Workload, name: str, needs: str
) -> None:
    with pytest.raises(CannotStartError, match=rf"does not start on {card(name).name}: .* capability {needs}.*\.py"):
        estimates_by(method, workload, card(name))


def test_from_the_least_capability_on_it_is_estimated() -> None:
    for workload, names in ((FP8, ("L4", "H100", "RTX5090")), (COMPILED, ("V100", "T4", "A100"))):
        for name in names:
            assert ANALYTIC.estimate(workload, card(name)).process


@pytest.mark.parametrize("command", ["estimate", "fit"])
@pytest.mark.parametrize("setting", ["run.precision=fp8-mixed", "run.compile=true"])
def test_commands_end_with_no(command: str, setting: str) -> None:
    done = CliRunner().invoke(program(), [command, PRESET, "--set", setting, "--gpu", "GTX1080Ti"])
    assert done.exit_code == 1
    assert done.stderr.startswith("vramtui: does not start on GTX1080Ti: ")
    assert "fits" not in done.stdout


def test_the_table_of_cards_has_no_size_there() -> None:
    old, new = card_fits(ANALYTIC, FP8, (card("T4"), card("H100")))
    assert old.fit is None
    assert old.spare_label.endswith("not possible")
    assert old.reason.startswith("does not start on T4")
    assert new.fit is not None


@pytest.mark.parametrize(("name", "emulated"), [("GTX1080Ti", True), ("V100", True), ("T4", True), ("A100", False)])
def test_emulated_bf16_is_said(name: str, emulated: bool) -> None:
    one = vramtui.estimate(PRESET, gpu=name, precision="bf16-mixed")
    assert one.fit is not None
    assert ("is emulated" in one.fit.note) is emulated
    assert any("is emulated" in line for line in one.assumptions) is emulated
    half = vramtui.estimate(PRESET, gpu=name, precision="fp16-mixed")
    assert not any("is emulated" in line for line in half.assumptions)


@pytest.mark.torch
def test_the_facts_are_those_of_the_installed_pytorch() -> None:
    """Fails where another release moves a limit: the constants and their sources are to be looked at then."""
    interface = pytest.importorskip("torch._dynamo.device_interface")
    inspect = pytest.importorskip("inspect")
    torch = pytest.importorskip("torch")
    assert "major >= 7" in inspect.getsource(interface.CudaInterface.is_triton_capable)
    assert "major >= 8" in inspect.getsource(torch.cuda.is_bf16_supported)
