"""Run many short scripts, each in a fork of one process that has loaded torch, and write down their peaks.

    python benchmarks/differential_run.py SCRIPTS.json PEAKS.json [--cuda [--loaded]]

SCRIPTS.json holds `[[device, text], ...]`, PEAKS.json `[[allocated, reserved] or words, ...]`. With `--cuda` the
scripts run as they are, under a CUDA build of PyTorch whose card or driver the environment provides (FAKECUDA_CC names
the capability of a driver that is not there); otherwise they are traced. `--loaded` loads what the recorded jobs
import, too.
"""

import gc
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch._dynamo
import torch._inductor.config
import torch.utils.checkpoint

CAPABILITIES = {"H200": "9.0", "A100-80GB": "8.0", "T4": "7.5", "RTX3090": "8.6", "RTX4090": "8.9"}


def on_cuda(device: str, text: str) -> list[int]:
    """The peaks of a script that runs."""
    os.environ["FAKECUDA_CC"] = CAPABILITIES[device]
    exec(compile(text, "script", "exec"), {"__name__": "__main__"})  # noqa: S102 - the script is the bench's own
    return [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]


def traced(device: str, text: str) -> list[int]:
    """The peaks of a script that is traced."""
    from vramtui.core.estimate.devices import card  # noqa: PLC0415 - the CUDA build's environment has no vramtui
    from vramtui.dryrun.fake.child import trace_here  # noqa: PLC0415 - as above
    from vramtui.dryrun.result import TraceRequest  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(text, encoding="utf-8")
        result = trace_here(TraceRequest(path=str(path), device=card(device), steps=2), lambda _progress: None)
    return [result.peak_allocated, result.peak_reserved]


def in_a_fork(device: str, text: str, *, cuda: bool) -> Any:  # noqa: ANN401 - peaks, or words
    """What a script of its own process answers: its peaks, or why there are none."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer: object = (on_cuda if cuda else traced)(device, text)
        except BaseException as error:  # noqa: BLE001 - it is the answer
            answer = f"{type(error).__name__}: {error}"[:300]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else "it ended without a word"


def main(arguments: list[str]) -> None:
    """Run what is asked for."""
    cuda = "--cuda" in arguments
    source, target = (Path(name) for name in arguments if not name.startswith("--"))
    if "--loaded" in arguments:
        from benchmarks.saver_jobs import load_libraries  # noqa: PLC0415 - the tracer's environment need not have them

        load_libraries()
    if not cuda:
        import vramtui.dryrun.fake.session  # noqa: F401,PLC0415 - loaded once for all forks
    gc.collect()
    gc.freeze()  # a fork that looked through torch for garbage would copy its pages
    scripts = json.loads(source.read_text(encoding="utf-8"))
    peaks: list[Any] = []
    for device, text in scripts:
        peaks.append(in_a_fork(device, text, cuda=cuda))
        target.write_text(json.dumps(peaks), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
