"""The command that runs a traced script on an emulated card, where that knows its memory better than a trace does."""

import shlex
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramtui.estimators.traced.process.interpreters import Interpreter
    from vramtui.estimators.traced.process.results import TraceRequest

WITHOUT_CUDA = ", with PyTorch's CUDA build in the job's environment,"


def emulated_command(request: "TraceRequest", interpreter: "Interpreter") -> str:
    """The script of `request` under `vramtui run --on`, as a shell takes it; empty for what is no script as a whole."""
    if not request.path or request.function is not None:
        return ""
    ranks = max(request.ranks, 1)
    device = request.device.name if ranks == 1 else f"{ranks}x{request.device.name}"
    settings = [f"PYTORCH_CUDA_ALLOC_CONF={request.alloc_conf}"] if request.alloc_conf else []
    keep_files = ["--keep-files"] if request.keep_files else []
    python = str(interpreter.path)
    if interpreter.cuda is None or python == shutil.which("python"):
        python = "python"
    launcher = [python] if ranks == 1 else [python, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    own = [*settings, "vramtui", "run", "--on", device, "--steps", str(request.steps), *keep_files]
    return shlex.join([*own, "--", *launcher, request.path, *request.arguments])


def better_emulated(command: str, better: tuple[str, ...], interpreter: "Interpreter") -> str:
    """What the command, in a line of its own, knows better; empty where it knows nothing better, or there is none."""
    if not command or not better:
        return ""
    needs = WITHOUT_CUDA if interpreter.cuda is None else ""
    return f"note: an emulated card{needs} knows more of {', '.join(better)}:\n  {command}"


def way_out(command: str, interpreter: "Interpreter") -> str:
    """What to do where a trace cannot follow the script; empty where there is no command."""
    needs = WITHOUT_CUDA if interpreter.cuda is None else ""
    return f"; `{command}`{needs} runs it on an emulated card" if command else ""
