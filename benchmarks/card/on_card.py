"""What a real card says: `python benchmarks/card/on_card.py OUT [SECTION …] [--checkouts FOLDER]`.

Each section writes OUT/SECTION.json as soon as it has something, so that a call that is cut off leaves what it had.
Needs torch, transformers, torchvision, peft, diffusers, nvidia-ml-py and what vramtui itself needs; no network.

| section | what it writes |
|---|---|
| `monitor` | what `ps`, `snapshot`, `doctor` and NVML itself say of a card on which a process holds a known amount |
| `context` | NVML's figure of a process less torch's reserved after each kind of kernel, loaded lazily and eagerly |
| `context_steps` | the same of one thing a process: what a product, a transform or Triton adds |
| `beside` | jobs.py: the figures of the GPU and those of `vramtui dry-run` on the same model of GPU |
| `sdpa` | which kernel scaled_dot_product_attention takes, over types, widths, masks and dropout |
| `dashboards` | vramtui and nvitop in a pty beside a job: processor, bytes, memory, last screen |
| `jobs` | jobs.py under `vramtui run`: torch's counters, NVML, and what the report says |
| `scripts` | the same of public scripts in `--checkouts` |
| `probe` | steps a second with the probe and without it, in turns |
"""

import argparse
import fcntl
import importlib
import itertools
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.card.jobs import JOBS  # noqa: E402 - works from a checkout that is not installed
from benchmarks.scripts.data import MAKERS  # noqa: E402 - as above
from vramtui.core.base import toml  # noqa: E402 - as above

HERE = Path(__file__).resolve().parent
SCRIPTS = (
    "nanoGPT train.py", "minGPT chargpt", "examples mnist", "examples vae", "examples imagenet resnet18",
    "examples word_language_model Transformer", "examples word_language_model LSTM", "examples dcgan",
    "PyTorch-GAN gan.py", "PyTorch-GAN wgan_gp.py", "makemore makemore.py", "Pytorch-UNet train.py --amp",
)  # fmt: skip
"""Of the public list: those that need nothing but torch, torchvision and made-up data."""


class Notes:
    """The answers of one section, on disk at each addition."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.folder = path.parent
        self._known: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401 - a document
        self._known[name] = value
        self._path.write_text(json.dumps(self._known, indent=1), encoding="utf-8")


def run(
    command: list[str], folder: Path = ROOT, extra: dict[str, str] | None = None, seconds: float = 200
) -> dict[str, Any]:
    """What a command says, how it ends and how long it takes."""
    start = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment |= extra or {}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"code": None, "out": "", "err": f"no answer in {seconds:g} s"}
    wall = round(time.monotonic() - start, 1)
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr[-4000:], "seconds": wall}


def last_json(text: str) -> dict[str, Any]:
    """The last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


HOLDER = (
    "import time, torch; x = torch.empty(3 * 2**30, dtype=torch.uint8, device='cuda'); x.zero_();"
    " torch.cuda.synchronize(); print('ready', flush=True); time.sleep(600)"
)


RAW = """
import json, pynvml as n
n.nvmlInit(); card = n.nvmlDeviceGetHandleByIndex(0); told = {}
def ask(name, *arguments):
    try: told[name + str(arguments)] = str(getattr(n, name)(card, *arguments))
    except Exception as error: told[name + str(arguments)] = repr(error)
for kind in (0, 1): ask("nvmlDeviceGetPcieThroughput", kind)
for link in (0, 1): ask("nvmlDeviceGetNvLinkState", link)
for name in ("EncoderUtilization", "DecoderUtilization", "RemappedRows", "MigMode", "SupportedClocksEventReasons",
             "CurrentClocksEventReasons", "SupportedEventTypes", "TotalEnergyConsumption", "PcieReplayCounter",
             "GpuFabricInfo", "MemoryBusWidth", "NumFans", "FanSpeed", "PerformanceState", "PersistenceMode",
             "VirtualizationMode", "ProcessUtilization", "RetiredPagesPendingStatus", "GspFirmwareVersion"):
    ask("nvmlDeviceGet" + name, *((0,) if name == "ProcessUtilization" else ()))
for field in (29, 30, 31, 138, 139, 142, 143, 144, 160, 161, 197, 198, 82, 83):
    for scope in (0, 0xFFFFFFFF):
        try:
            value = n.nvmlDeviceGetFieldValues(card, [(field, scope)])[0]
            told[f"field {field} {scope}"] = [value.nvmlReturn, value.valueType, value.value.ullVal]
        except Exception as error: told[f"field {field} {scope}"] = repr(error)
print(json.dumps(told))
"""


def monitor(notes: Notes) -> None:
    """The program on a real driver, beside nvidia-smi and NVML."""
    notes["nvidia-smi"] = run(["nvidia-smi", "-q"])
    program = [sys.executable, "-m", "vramtui"]
    notes["before"] = run([*program, "ps", "--json"])
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        notes["holder"] = holder.pid
        for name, words in {
            "ps": ["ps"],
            "ps json": ["ps", "--json"],
            "snapshot": ["snapshot", "--format", "json", "--folder", str(notes.folder)],
            "doctor": ["doctor"],
            "once": ["--once"], "pick": ["pick"], "export": ["ps", "--csv"],
        }.items():  # fmt: skip
            notes[name] = run([*program, *words], extra={"COLUMNS": "160"}, seconds=60)
        notes["raw"] = last_json(run([sys.executable, "-c", RAW])["out"])
        notes["smi processes"] = run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv"])
        notes["smi memory"] = run(
            ["nvidia-smi", "--query-gpu=memory.total,memory.used,memory.free,memory.reserved", "--format=csv"]
        )
        recording = notes.folder / "card.recording.jsonl"
        notes["record"] = run([*program, "record", str(recording), "--duration", "5"], seconds=60)
    finally:
        holder.kill()


CONTEXT = """
import json, os, time, pynvml, torch
from torch.nn import functional
pynvml.nvmlInit(); card = pynvml.nvmlDeviceGetHandleByIndex(0); rows = []
def look(after):
    torch.cuda.synchronize(); time.sleep(0.05)
    held = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card) if p.pid == os.getpid()]
    rows.append([after, held[0] if held else None, torch.cuda.memory_reserved()])
x = torch.zeros(1, device="cuda"); look("first tensor")
x = torch.randn(1024, 1024, device="cuda"); look("random numbers")
y = x @ x; look("fp32 product")
y = x.bfloat16() @ x.bfloat16(); look("bf16 product")
w = torch.nn.Linear(1024, 1024, device="cuda"); w(x).sum().backward(); look("linear, backward")
o = torch.optim.AdamW(w.parameters()); o.step(); look("AdamW")
q = torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward(); look("attention, backward")
c = torch.nn.Conv2d(3, 64, 3, device="cuda"); c(torch.randn(8, 3, 64, 64, device="cuda")).sum().backward()
look("convolution, backward")
r = torch.nn.LSTM(64, 64, device="cuda"); r(torch.randn(8, 4, 64, device="cuda"))[0].sum().backward()
look("LSTM, backward")
torch.fft.rfft(x); look("FFT"); torch.linalg.cholesky(x @ x.T + 4096 * torch.eye(1024, device="cuda")); look("Cholesky")
print(json.dumps({"rows": rows, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                  "card": torch.cuda.get_device_name(0), "driver": str(pynvml.nvmlSystemGetDriverVersion())}))
"""


def context(notes: Notes) -> None:
    """What lies outside torch's allocator, lazily and eagerly loaded."""
    for loading in ("LAZY", "EAGER"):
        notes[loading.lower()] = last_json(
            run([sys.executable, "-c", CONTEXT], extra={"CUDA_MODULE_LOADING": loading})["out"]
        )


STEPS_OF_CONTEXT = {
    "init": "torch.cuda.init(); torch.cuda.current_stream().synchronize()",
    "empty": "x = torch.empty(1, device='cuda')",
    "first tensor": "x = torch.zeros(1, device='cuda')",
    "random numbers": "x = torch.randn(1024, device='cuda')",
    "elementwise": "x = torch.ones(1024, device='cuda'); y = (x * 2 + x.exp()).softmax(0).sum()",
    "sort": "x = torch.ones(4096, device='cuda').sort()",
    "index": "x = torch.ones(64, 64, device='cuda'); y = x[torch.arange(9, device='cuda')].nonzero()",
    "fp32 product": "x = torch.ones(1024, 1024, device='cuda'); y = x @ x",
    "bf16 product": "x = torch.ones(1024, 1024, device='cuda', dtype=torch.bfloat16); y = x @ x",
    "fp32 and bf16 product": "x = torch.ones(1024, 1024, device='cuda'); y = x @ x; z = x.bfloat16() @ x.bfloat16()",
    "batched product": "x = torch.ones(8, 512, 512, device='cuda'); y = torch.bmm(x, x)",
    "linear with bias": "x = torch.ones(64, 512, device='cuda'); y = torch.nn.Linear(512, 512, device='cuda')(x)",
    "linear, backward": "x = torch.ones(64, 512, device='cuda');"
    " torch.nn.Linear(512, 512, device='cuda')(x).sum().backward()",
    "fused AdamW": "w = torch.ones(512, device='cuda', requires_grad=True); w.sum().backward();"
    " torch.optim.AdamW([w], fused=True).step()",
    "AdamW": "w = torch.ones(512, device='cuda', requires_grad=True); w.sum().backward();"
    " torch.optim.AdamW([w]).step()",
    "fp32 convolution": "c = torch.nn.Conv2d(3, 64, 3, device='cuda'); y = c(torch.ones(8, 3, 64, 64, device='cuda'))",
    "fp32 convolution, backward": "c = torch.nn.Conv2d(3, 64, 3, device='cuda');"
    " c(torch.ones(8, 3, 64, 64, device='cuda')).sum().backward()",
    "fp16 convolution, backward": "c = torch.nn.Conv2d(32, 64, 3, device='cuda').half();"
    " c(torch.ones(8, 32, 64, 64, device='cuda').half()).sum().backward()",
    "batch norm": "c = torch.nn.BatchNorm2d(8, device='cuda'); y = c(torch.ones(8, 8, 64, 64, device='cuda'))",
    "flash attention": "q = torch.ones(2, 8, 256, 64, device='cuda', dtype=torch.bfloat16);"
    " y = functional.scaled_dot_product_attention(q, q, q, is_causal=True)",
    "flash attention, backward": "q = torch.ones(2, 8, 256, 64, device='cuda', dtype=torch.bfloat16,"
    " requires_grad=True); functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()",
    "LSTM": "r = torch.nn.LSTM(64, 64, device='cuda'); y = r(torch.ones(8, 4, 64, device='cuda'))",
    "FFT": "y = torch.fft.rfft(torch.ones(1024, device='cuda'))",
    "Cholesky": "y = torch.linalg.cholesky(torch.eye(512, device='cuda'))",
    "QR": "y = torch.linalg.qr(torch.eye(512, device='cuda'))",
    "sparse product": "x = torch.eye(512, device='cuda'); y = torch.sparse.mm(x.to_sparse_csr(), x)",
    "compiled": "x = torch.ones(1024, device='cuda'); y = torch.compile(lambda x: (x * 2 + x.exp()).softmax(0))(x)",
    "CUDA graph": "x = torch.ones(9, device='cuda'); g = torch.cuda.CUDAGraph();\nwith torch.cuda.graph(g): y = x * 2",
    "two streams": "s = torch.cuda.Stream();\nwith torch.cuda.stream(s): x = torch.ones(1024, device='cuda')",
    "NCCL": "import torch.distributed as d;"
    " d.init_process_group('nccl', init_method='tcp://127.0.0.1:0', rank=0, world_size=1);"
    " x = torch.ones(1024, device='cuda'); d.all_reduce(x)",
    "printf": "x = torch.ones(8, device='cuda'); x.cumsum(0); torch.cuda._sleep(10)",
}
ONE_STEP = """
import json, os, time, pynvml, torch
from torch.nn import functional
{}
torch.cuda.synchronize(); time.sleep(0.1); pynvml.nvmlInit(); card = pynvml.nvmlDeviceGetHandleByIndex(0)
held = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card) if p.pid == os.getpid()]
print(json.dumps([held[0] if held else None, torch.cuda.memory_reserved()]))
"""


def context_steps(notes: Notes) -> None:
    """Process and reserved bytes of a process that does one thing, for each of `STEPS_OF_CONTEXT`."""
    notes["columns"] = ["process", "reserved"]
    for name, line in STEPS_OF_CONTEXT.items():
        said = run([sys.executable, "-c", ONE_STEP.format(line)], seconds=90)
        notes[name] = json.loads(said["out"].splitlines()[-1]) if said["code"] == 0 else said["err"][-300:]


def beside(notes: Notes) -> None:
    """Run each job on the GPU and, at the same time, on a simulated GPU of the same model with the same Python."""
    card = os.environ["CARD"]
    asked = [(name, [str(HERE / "jobs.py"), name], ROOT, dict[str, str]()) for name in JOBS]
    only = os.environ.get("BESIDE", "").split(",")
    asked = [one for one in asked if only == [""] or one[0] in only]

    def real(words: list[str], folder: Path, extra: dict[str, str]) -> dict[str, Any]:
        paths = os.pathsep.join(filter(None, [extra.get("PYTHONPATH"), os.environ.get("PYTHONPATH")]))
        said = run([sys.executable, str(HERE / "three_steps.py"), *words], folder, {"PYTHONPATH": paths})
        return last_json(said["out"]) or {"why": said["err"][-500:]}

    def emulated(words: list[str], folder: Path, extra: dict[str, str]) -> dict[str, Any]:
        paths = os.pathsep.join(filter(None, [extra.get("PYTHONPATH"), str(ROOT), os.environ.get("PYTHONPATH")]))
        own = [
            sys.executable,
            "-m",
            "vramtui",
            "dry-run",
            "--engine",
            "cuda",
            "--gpu",
            card,
            "--steps",
            "3",
            "--json",
            "--keep-files",
        ]
        said = run([*own, sys.executable, *words], folder, {"PYTHONPATH": paths}, seconds=300)
        out = said["out"]
        try:
            found: dict[str, Any] = json.loads(out[out.find("{") :])
        except ValueError:
            return {"why": said["err"][-500:], "code": said["code"]}
        first = found["cards"][0] if found.get("cards") else found
        keep = {key: value for key, value in first.items() if not isinstance(value, (list, dict))}
        return (
            keep
            | {"code": said["code"], "seconds": said["seconds"]}
            | ({"why": said["err"][-500:]} if said["code"] else {})
        )

    answers: dict[str, dict[str, Any]] = {name: {} for name, *_ in asked}

    def both(at: int, side: str, call: Callable[..., dict[str, Any]]) -> None:
        name, words, folder, extra = asked[at]
        answers[name][side] = call(words, folder, extra)
        notes[name] = answers[name]
        print(name, side, answers[name][side].get("why"), flush=True)

    with ThreadPoolExecutor(4) as on_card, ThreadPoolExecutor(6) as in_place:
        calls = [on_card.submit(both, at, "card", real) for at in range(len(asked))]
        calls += [in_place.submit(both, at, "emulated", emulated) for at in range(len(asked))]
        for call in calls:
            call.result()


def sdpa(notes: Notes) -> None:
    """The backend by torch's own choice function: 0 math, 1 flash, 2 efficient, 3 cuDNN."""
    import torch  # noqa: PLC0415 - the other sections do without

    rows = []
    for dtype, width, mask, dropout, causal, length, grad in itertools.product(
        ("float32", "float16", "bfloat16"), (32, 64, 80, 96, 128, 192, 256, 512), (None, "bool", "add"),
        (0.0, 0.1), (False, True), (1, 128, 1024), (False, True),
    ):  # fmt: skip
        if mask and causal:
            continue
        kind = getattr(torch, dtype)
        q = torch.empty(2, 4, length, width, device="cuda", dtype=kind, requires_grad=grad)
        bias = (
            None
            if mask is None
            else torch.zeros(length, length, device="cuda", dtype=torch.bool if mask == "bool" else kind)
        )
        try:
            choice: int | str = int(torch._fused_sdp_choice(q, q, q, bias, dropout, causal))  # noqa: SLF001 - torch's own answer
        except RuntimeError as error:
            choice = str(error)[:100]
        rows.append([dtype, width, mask, dropout, causal, length, grad, choice])
    notes["columns"] = ["dtype", "width", "mask", "dropout", "causal", "length", "grad", "backend"]
    notes["rows"] = rows


DASHBOARDS = {
    "vramtui": ["-m", "vramtui"],
    "vramtui --monitor": ["-m", "vramtui", "--monitor"],
    "nvitop": ["-m", "nvitop"],
}


def dashboards(notes: Notes, seconds: int = 60) -> None:
    """Each in a pty of 120x35 beside a job: processor, bytes written, resident memory, and its last screen."""
    pyte = importlib.import_module("pyte")
    job = subprocess.Popen([sys.executable, "-c", STEPS.replace("go(400)", "go(10**9)"), "train.py"])
    time.sleep(8)
    try:
        for name, words in DASHBOARDS.items():
            start = time.monotonic()
            pid, terminal = pty.fork()
            if pid == 0:
                os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
                os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
                time.sleep(0.2)
                os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - no shell is wanted
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 35, 120, 0, 0))
            screen = pyte.Screen(120, 35)
            stream, written, first = pyte.ByteStream(screen), 0, None
            steady: tuple[float, int, float] | None = None
            while (now := time.monotonic() - start) < seconds:
                if select.select([terminal], [], [], 0.2)[0]:
                    data = os.read(terminal, 65536)
                    written += len(data)
                    stream.feed(data)
                if first is None and any("H200" in line or "H100" in line for line in screen.display):
                    first = now - 0.2
                if steady is None and now > 10:
                    steady = (now, written, _processor(pid))
            assert steady is not None
            watched = time.monotonic() - start - steady[0]
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            notes[name] = {
                "first GPU seconds": first,
                "processor percent": 100 * (_processor(pid) - steady[2]) / watched,
                "bytes a second": (written - steady[1]) / watched,
                "resident": next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")),
                "screen": screen.display,
            }
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)
    finally:
        job.kill()


def _processor(pid: int) -> float:
    """Seconds of user and system time of a process."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def jobs(notes: Notes) -> None:
    """Each of jobs.py under `vramtui run`."""
    for name in os.environ.get("JOBS", " ".join(JOBS)).split():
        notes[name] = _observe([str(HERE / "jobs.py"), name], ROOT)


def scripts(notes: Notes, checkouts: Path) -> None:
    """Each of `SCRIPTS` under `vramtui run`."""
    listed = toml.loads((ROOT / "benchmarks" / "scripts" / "corpus.toml").read_text(encoding="utf-8"))["script"]
    for script in listed:
        if script["name"] in SCRIPTS:
            root = checkouts / script["repository"].replace("/", "+")
            MAKERS[script.get("data", "")](root)
            extra = {}
            if "path" in script:
                extra = {
                    "PYTHONPATH": os.pathsep.join(
                        [str(root / script["path"]), str(ROOT), os.environ.get("PYTHONPATH", "")]
                    )
                }
            words = [str(root / script["file"]), *script.get("truth_arguments", script.get("arguments", []))]
            folder = root / script.get("folder", ".")
            notes[script["name"]] = _observe(words, folder, extra)


def _observe(words: list[str], folder: Path, extra: dict[str, str] | None = None) -> dict[str, Any]:
    """Torch's own figures, NVML's, and the report of `vramtui run`, of one and the same run."""
    job = [sys.executable, str(HERE / "three_steps.py"), *words]
    said = run([sys.executable, "-m", "vramtui", "run", "--", *job], folder, extra)
    answer = last_json(said["out"])
    print(words[-1], answer.get("why"), said["seconds"], flush=True)
    return {"truth": answer, "report": said["err"], "code": said["code"], "seconds": said["seconds"]}


STEPS = """
import sys, time, torch
from torch import nn
net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(24)]).cuda()
steps = torch.optim.AdamW(net.parameters(), fused=True)
x = torch.randn(64, 512, device="cuda")
def go(n):
    torch.cuda.synchronize(); start = time.perf_counter()
    for _ in range(n):
        net(x).square().mean().backward(); steps.step(); steps.zero_grad()
    torch.cuda.synchronize(); return n / (time.perf_counter() - start)
go(300); print('{"steps_a_second": %.2f}' % max(go(400) for _ in range(4)), flush=True)
"""


def probe(notes: Notes) -> None:
    """Five pairs of the same job, with the probe and without it."""
    job = [sys.executable, "-c", STEPS]
    pairs = []
    for _ in range(5):
        plain = last_json(run(job)["out"])
        probed = last_json(run([sys.executable, "-m", "vramtui", "run", "--", *job])["out"])
        pairs.append([plain["steps_a_second"], probed["steps_a_second"]])
        notes["pairs"] = pairs


def main() -> None:
    """The sections that are asked for, in the order given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("sections", nargs="*", default=["monitor", "context", "sdpa", "jobs"])
    parser.add_argument("--checkouts", type=Path)
    options = parser.parse_args()
    known: dict[str, Callable[..., None]] = {
        "monitor": monitor, "context": context, "sdpa": sdpa, "dashboards": dashboards,
        "jobs": jobs, "probe": probe, "context_steps": context_steps,
    }  # fmt: skip
    for section in options.sections:
        start = time.monotonic()
        notes = Notes(options.out / f"{section}.json")
        try:
            if section == "scripts":
                scripts(notes, options.checkouts.resolve())
            elif section == "beside":
                beside(notes)
            else:
                known[section](notes)
        except Exception as error:  # noqa: BLE001 - the next section is worth a try
            notes["error"] = repr(error)
        print(f"{section}: {time.monotonic() - start:.0f} s", flush=True)


main()
