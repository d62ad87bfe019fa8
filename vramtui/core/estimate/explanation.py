"""An estimate told as chapters: what each part of the memory is, what moves it, and its arithmetic here."""

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import CATEGORIES, PHASE_TITLES, TITLES, Estimate, Line, Part


class Words(msgspec.Struct, frozen=True):
    """A line of the Ledger in words: what it is, what makes it larger or smaller, and how sure its figure is."""

    what: str
    changed_by: str
    sure: str


class Chapter(msgspec.Struct, frozen=True):
    """One line of the Ledger with the parts that make it up; `at_peak` bytes are alive at the peak of allocated."""

    line: Line
    words: Words
    at_peak: int
    parts: tuple[Part, ...]

    @property
    def title(self) -> str:
        return TITLES[self.line]


ORDER: tuple[Line, ...] = (*CATEGORIES, "cached", "context", "other", "process")
WORDS: dict[Line, Words] = {
    "weights": Words(
        "The model's parameters and buffers, on the card from the build to the end. Each tensor takes whole blocks of"
        " 512 bytes in PyTorch's allocator.",
        "Fewer bytes for each (bf16, or quantised for inference and QLoRA), or each card only its share (tensor"
        " parallel, FSDP and ZeRO-3).",
        "Exact where the shapes are known.",
    ),
    "gradients": Words(
        "One number for each trained parameter, in the parameter's type. They appear one by one in the backward pass"
        " and go when zero_grad sets them to None: so in the first forward pass there are none yet.",
        "Train less (LoRA, frozen layers), or share them out (ZeRO-2 and up).",
        "Exact.",
    ),
    "optimizer": Words(
        "What the optimizer remembers between steps: two numbers a parameter for Adam, one for SGD with momentum, rows"
        " and columns only for Adafactor. They are made in the first step, not before. That is why a job that survived"
        " its first forward and backward pass can still die in its first step.",
        "8-bit or paged states, another optimizer, sharing them out (ZeRO-1 and up), or training fewer parameters.",
        "Exact for the optimizers of torch.optim; after published code for the others.",
    ),
    "master_weights": Words(
        "A second copy of the weights in 32 bits, which mixed precision with a 16-bit model keeps for the update."
        " torch.autocast keeps none: there the weights themselves are 32 bits.",
        "Share them out (ZeRO), or train in bf16 with an optimizer that needs none.",
        "Exact.",
    ),
    "activations": Words(
        "What the forward pass leaves behind for the backward pass: autograd keeps the inputs that each operator's"
        " derivative needs, and nothing else. They grow with every layer and are freed from the last layer to the"
        " first while gradients come back.",
        "Smaller batch or sequence (they go with both), checkpointing (keeps each layer's input and computes the rest"
        " again), flash attention (no table of scores), fused cross-entropy (no copies of the logits).",
        "Operator by operator, as PyTorch's derivatives have it; the README's table says how far off against recorded"
        " runs.",
    ),
    "kv_cache": Words(
        "Keys and values of every token so far, for every layer: 2 x layers x batch x tokens x KV heads x head size x"
        " bytes. Growing it by concatenation needs old and new at once; an engine such as vLLM takes one pool for all.",
        "Shorter contexts, fewer sequences at once, grouped-query attention, or an 8-bit cache.",
        "Exact for the length that is named.",
    ),
    "inputs": Words(
        "The batch itself: token ids, labels, images. The next one is usually made while the last is still alive.",
        "The batch.",
        "Exact.",
    ),
    "workspaces": Words(
        "Room that cuBLAS is given once for each thread and stream that multiplies matrices: the main thread's and the"
        " one of autograd. Up to PyTorch 2.14 it stays; from 2.15 on it is given"
        " back after each product.",
        "CUBLAS_WORKSPACE_CONFIG; there is seldom a reason.",
        "Exact for the default setting; cuDNN's own workspaces are not in it.",
    ),
    "temporaries": Words(
        "What lives for one operator or one phase: gradients of activations on their way back, copies of weights under"
        " autocast, what the optimizer's step needs for all parameters at once (foreach).",
        "fused=True or foreach=False for the optimizer; smaller batches for the rest.",
        "Followed through the phases; at the peak only what is alive at that moment counts.",
    ),
    "cached": Words(
        "Reserved, less allocated: PyTorch takes memory from the driver in segments (2 MiB, 20 MiB, or the size asked"
        " for) and keeps what was freed for the next request. Nobody else can have it until empty_cache.",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        "The least certain part: a share of what comes and goes, learned from recorded runs. A dry run simulates it.",
    ),
    "context": Words(
        "CUDA's own: kernels, stacks and tables that the driver loads for the process before the first tensor. PyTorch"
        " does not count it, nvidia-smi does.",
        "Not much: lazy loading (CUDA_MODULE_LOADING=LAZY, the default since CUDA 12.2), fewer libraries.",
        "From public measurements by compute capability; it differs by driver and by what a job loads.",
    ),
    "other": Words(
        "Libraries that take memory from the driver past PyTorch: NCCL's buffers, CUDA graphs, paged states.",
        "NCCL_BUFFSIZE and fewer communicators for NCCL.",
        "A few public figures; the size depends on the machine's links.",
    ),
    "process": Words("Figures of a rule that only speaks of the whole.", "See the rule's source.", "As published."),
}
TREE = (
    "process = CUDA context + reserved + other libraries: what nvidia-smi shows.",
    "reserved = allocated + cached: torch.cuda.memory_reserved().",
    "allocated = everything else: torch.cuda.memory_allocated().",
)


# What is otherwise where nothing is trained.
WORDS_OF_INFERENCE: dict[Line, Words] = {
    "weights": Words(
        WORDS["weights"].what,
        "Fewer bytes for each (bf16, or quantised), or each card only its share (tensor parallel).",
        WORDS["weights"].sure,
    ),
    "activations": Words(
        "What one forward pass holds between its operators: inputs and results of the one under way. Nothing is kept"
        " for a backward pass, so each layer reuses the room of the one before.",
        "Fewer tokens in one pass (batch, prompt, or chunked prefill), flash attention (no table of scores).",
        "Operator by operator, as PyTorch frees them.",
    ),
    "workspaces": Words(
        "Room that cuBLAS is given once for each thread and stream that multiplies matrices. It is PyTorch's own memory"
        " and stays.",
        WORDS["workspaces"].changed_by,
        WORDS["workspaces"].sure,
    ),
    "temporaries": Words(
        "What lives for one operator: results on their way, scores of attention where they are spelt out, weights that"
        " are unpacked for a product.",
        "Smaller batches, fewer tokens in one pass.",
        WORDS["temporaries"].sure,
    ),
}
TRAINS: tuple[Line, ...] = ("gradients", "optimizer", "master_weights")


def chapters(estimate: Estimate) -> tuple[Chapter, ...]:
    """The lines that the estimate has parts for, in the Ledger's order."""
    phases = {estimate.peak_phase, *(moment.phase for moment in estimate.timeline)}
    trains = "backward" in phases or "step" in phases or any(part.line in TRAINS for part in estimate.parts)
    lines = []
    for line in ORDER:
        parts = tuple(part for part in estimate.parts if part.line == line)
        if not parts:
            continue
        words = WORDS[line] if trains else WORDS_OF_INFERENCE.get(line, WORDS[line])
        if estimate.method.startswith("rules:"):
            words = msgspec.structs.replace(words, sure="As the rule has it; its error is unknown.")
        lines.append(Chapter(line, words, sum(part.at_peak for part in parts), parts))
    return tuple(lines)


def peak_sentence(estimate: Estimate) -> str:
    """When allocated peaks, and the three totals at their own peaks."""
    step = "" if estimate.peak_step is None else f", step {estimate.peak_step + 1}"
    totals = [f"allocated {format_bytes(estimate.ledger.allocated, 2)}"] if estimate.ledger.allocated else []
    if estimate.reserved is not None:
        totals.append(f"reserved {format_bytes(estimate.reserved, 2)}")
    if estimate.process:
        totals.append(f"process {format_bytes(estimate.process, 2)}")
    return f"Peak: {PHASE_TITLES[estimate.peak_phase]}{step}; {', '.join(totals)}."


def arithmetic(part: Part) -> str:
    """A part in one line: its size, its formula, and how much of it is alive at the peak where that is less."""
    alive = ""
    if part.at_peak != part.bytes:
        alive = f" ({format_bytes(part.at_peak, 2) if part.at_peak else 'none of it'} at the peak)"
    return f"{part.name}: {format_bytes(part.bytes, 2)}{alive} = {part.formula}"
