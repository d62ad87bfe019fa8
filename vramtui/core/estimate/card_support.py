"""What a card's compute capability rules out, and what PyTorch emulates there: asked before anything is estimated."""

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.workload import InferRun, TrainRun, Workload

# check_fp8_support, below which its autocast raises: "Device compute capability 8.9 or higher required".
FP8 = (8, 9)
FP8_SOURCE = "Transformer Engine 2, transformer_engine/pytorch/quantization.py: check_fp8_support"
# GPUTooOldForTriton: "Triton only supports devices of CUDA Capability >= 7.0".
TRITON = (7, 0)
TRITON_SOURCE = "PyTorch 2.13, torch/_dynamo/device_interface.py: CudaInterface.is_triton_capable"
# is_bf16_supported(including_emulation=False); with emulation, the default, it is True on every card.
BF16 = (8, 0)
BF16_SOURCE = "PyTorch 2.13, torch/cuda/__init__.py: is_bf16_supported"


class CannotStartError(UserError):
    """The job ends before it takes any memory worth estimating, whatever the card holds."""

    exit_code = 1  # it is an answer: no


def check_card(workload: Workload, device: Device) -> None:
    """See that the card can do what the run asks of it.

    Raises:
        CannotStartError: it cannot, and no other kernel is taken instead; the sentence names the key, and in which
            source file the job would end.
    """
    run = workload.run
    asked, least, source = "", (0, 0), ""
    if run.precision == "fp8-mixed":
        asked, least, source = "run.precision = 'fp8-mixed'", FP8, FP8_SOURCE
    elif isinstance(run, TrainRun) and run.compile:
        asked, least, source = "run.compile = true", TRITON, TRITON_SOURCE
    if device.capability < least:
        raise CannotStartError(
            f"does not start on {device.name}: {asked} needs compute capability {_dotted(least)}, and it has "
            f"{_dotted(device.capability)} ({source})"
        )


def emulation_note(workload: Workload, device: Device) -> str:
    """What PyTorch emulates on this card, in a sentence without a full stop; empty where nothing."""
    run = workload.run
    if not isinstance(run, (TrainRun, InferRun)) or device.capability >= BF16 or not run.precision.startswith("bf16"):
        return ""
    return (
        f"bf16 is emulated below compute capability {_dotted(BF16)}: it runs, slowly, and a number takes two bytes "
        f"as elsewhere ({BF16_SOURCE})"
    )


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
