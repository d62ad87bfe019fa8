"""Which kernel `torch.nn.functional.scaled_dot_product_attention` takes on a card.

The order and the conditions are those of ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.h in PyTorch
2.13 built for CUDA 13 with cuDNN 9.20; `tests/golden/torch_facts.json` holds answers of that build. From 2.14 on the
memory-efficient kernel takes shared key/value heads, and cuDNN's takes wide heads on 10.x too, in training of 129 to
255 none: answers of the CUDA builds of 2.14 and 2.15 (`tests/golden/releases.json`; capabilities 7.5 to 10.0).

Letters: b batch, n heads, s tokens, d width of a head.
"""

from typing import Literal, NamedTuple

import msgspec

from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.releases import RULES

SdpaBackend = Literal["cudnn", "flash", "efficient", "math"]
HALF_TYPES = frozenset({"fp16", "bf16"})
NARROW_HEAD, WIDEST_HEAD = 128, 256
TURING, AMPERE = (7, 0), (8, 0)
# The first release whose memory-efficient kernel takes them; the choice of cuDNN's changed with it. Its backward makes
# gradients for each query head and sums them into those of the shared ones as well. Without dropout its forward
# has two empty seeds of 8 bytes on the card from then on (measured on the CUDA builds of 2.13 to 2.15).
SHARED_HEADS_SINCE = (2, 14)


class AttentionCall(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of the choice; shapes are (b, n, s, d)."""

    dtype: str  # of queries, keys and values: `fp32`, `fp16`, `bf16` or another, which no fused kernel takes
    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    masked: bool = False  # an `attn_mask` is given
    trained_mask: bool = False  # and wants a gradient
    dropout: float = 0.0  # the probability; cuDNN takes multiples of 1/16 (`check_cudnn_dropout`)
    causal: bool = False  # `is_causal`
    grouped: bool = False  # `enable_gqa`
    training: bool = False  # queries, keys or values want a gradient
    deterministic: bool = False  # `torch.use_deterministic_algorithms(True)`
    release: tuple[int, int] = RULES


def backend_order(capability: tuple[int, int]) -> tuple[SdpaBackend, ...]:
    """The order in which kernels are tried (`check_prefer_cudnn_attention`): cuDNN's first on 9.x and 10.x only."""
    if capability[0] in (9, 10):
        return ("cudnn", "flash", "efficient", "math")
    return ("flash", "efficient", "math", "cudnn")


def can_use(backend: SdpaBackend, call: AttentionCall, capability: tuple[int, int]) -> bool:
    """Return whether the kernel takes the call (`check_tensor_shapes`, `check_nonzero_sequence_lengths_dense`)."""
    if backend == "math":
        return True
    dense = all(len(shape) == 4 for shape in (call.query, call.key, call.value))
    return (
        dense
        and 0 not in (call.query[2], call.key[2])
        and {"cudnn": _cudnn, "flash": _flash, "efficient": _efficient}[backend](call, capability)
    )


def choose_backend(call: AttentionCall, capability: tuple[int, int]) -> SdpaBackend:
    """The first kernel of `backend_order` that takes the call, with every kernel allowed."""
    return next(backend for backend in backend_order(capability) if can_use(backend, call, capability))


def _heads_match(call: AttentionCall, *, grouped_too: bool) -> bool:
    """Compare heads as `check_batch_size_and_num_heads_dense` does."""
    q, k, v = call.query, call.key, call.value
    shared = grouped_too and call.grouped and k[1] == v[1] and q[1] % k[1] == 0
    return q[0] == k[0] == v[0] and (q[1] == k[1] == v[1] or shared)


def _cudnn(call: AttentionCall, capability: tuple[int, int]) -> bool:
    """`check_cudnn_tensor_shapes`: widths are multiples of 8, up to 256 on 9.0, and 192 over 128 (MLA) on 10.x.

    From 2.14 on 256 on 10.x too, and in training 128 or 256 itself.
    """
    query, value = call.query[3], call.value[3]
    widest, newer = max(query, value), call.release >= SHARED_HEADS_SINCE
    limit = WIDEST_HEAD if capability == (9, 0) or (newer and capability[0] == 10) else NARROW_HEAD
    takes_widths = query % 8 == 0 and value % 8 == 0 and widest <= limit
    if newer and call.training and NARROW_HEAD < widest < WIDEST_HEAD:
        takes_widths = False
    return (
        AMPERE <= capability <= (12, 1)
        and call.dtype in HALF_TYPES
        and (takes_widths or (capability[0] == 10 and (query, value) == (192, 128)))
        and call.key[2] != 1
        and call.query[2] != 1
        and (call.dropout * 16).is_integer()
        and _heads_match(call, grouped_too=True)
        and not call.deterministic
        and not call.trained_mask
    )


def _flash(call: AttentionCall, capability: tuple[int, int]) -> bool:
    width = call.query[3]
    consumer = (8, 6) <= capability <= (8, 9) or (12, 0) <= capability <= (12, 1)
    if call.training and consumer and (192 < width <= 224 or (width > 224 and call.dropout)):
        return False
    return (
        AMPERE <= capability <= (12, 1)
        and not call.masked
        and call.dtype in HALF_TYPES
        and width == call.key[3] == call.value[3]
        and width <= WIDEST_HEAD
        and not (call.causal and call.query[2] != call.key[2])
        and _heads_match(call, grouped_too=True)
    )


def _efficient(call: AttentionCall, capability: tuple[int, int]) -> bool:
    query, value = call.query[3], call.value[3]
    half, ampere = call.dtype in HALF_TYPES, capability >= AMPERE
    # `minimum_gemm_alignment`, in elements.
    tensor_cores = 128 // (16 if half else 32) if ampere or (capability >= TURING and half) else 1
    alignment = max(4 if ampere else 1, tensor_cores)
    return (
        call.dtype in ({"fp32", "fp16", "bf16"} if ampere else {"fp32", "fp16"})
        and capability <= (12, 1)
        and query == call.key[3]
        and query % alignment == 0
        and value % alignment == 0
        and _heads_match(call, grouped_too=call.release >= SHARED_HEADS_SINCE)
    )


FLOAT = 4
# Of these the shared memory is too small for blocks of 128 x 128 (kernels/cutlassB.h, by capability).
_SMALL_SHARED_MEMORY = frozenset({(7, 5), (8, 6), (8, 9)})
_KEY_BLOCK = 64
_MOST_HEADS, _MOST_SPLITS = 256, 200


def fused_backward_bytes(b: int, n: int, s: int, d: int) -> int:
    """Flash's and cuDNN's: the gradient of (b, n, s, d) queries in fp32, with one number for each row of scores."""
    return rounded(b * n * s * (d + 1) * FLOAT)


class EfficientKernel(NamedTuple):
    """Inputs of the choice of memory-efficient kernel: fp16 or bf16, the card, and whether there is dropout."""

    half: bool
    capability: tuple[int, int]
    dropout: bool = False


def _tile(widest: int, kernel: EfficientKernel) -> tuple[int, int, int]:
    """The block of the kernel of kernels/cutlassB.h that takes heads so wide, as measured over widths, types and cards.

    Rows and columns of the queries' gradient; partial gradients of keys and values are in multiples of the third
    number, 0 if they stay in registers.
    """
    small = kernel.capability in _SMALL_SHARED_MEMORY
    if not kernel.half:
        return (128 if widest > 64 and kernel.capability >= (8, 0) and not small else 64), 64, 0
    if widest <= 64:
        return 64, 64, 0
    if widest > 128:
        return 128, 64, 128
    if not small:
        return 128, 128, 0
    return (128, 64, 0) if kernel.capability == (7, 5) or (widest <= 96 and not kernel.dropout) else (64, 64, 64)


def efficient_staging_bytes(heads: int, s: int, t: int, widths: tuple[int, int], kernel: EfficientKernel) -> int:
    """The memory-efficient kernel's own buffer, for partial gradients that do not fit in registers.

    `AttentionBackwardKernel::Params::workspace_size` of transformers/cuda/mem_eff_attention/kernel_backward.h
    (PyTorch 2.13): `heads` is b x n, of `s` queries and `t` keys, whose `widths` are d and e.
    """
    d, e = widths
    rows, columns, keys_width = _tile(max(d, e), kernel)
    numbers = -(-s // rows) * -(-d // columns) * (rows * columns + 4)
    if keys_width:
        splits = -(-t // _KEY_BLOCK)
        if heads >= _MOST_HEADS and t <= 2 * _KEY_BLOCK:
            splits = 1
        splits = max(1, min(splits, _MOST_SPLITS // heads))
        numbers += splits * _KEY_BLOCK * (_up(d, keys_width) + _up(e, keys_width))
    return heads * _up(numbers, 4) * FLOAT


def efficient_backward_bytes(heads: int, s: int, t: int, widths: tuple[int, int], kernel: EfficientKernel) -> int:
    """The most that the memory-efficient kernel's backward takes at once, in whole blocks.

    One number for each row of scores, in fp32 out of a product made before; then the staging buffer.
    """
    rows = rounded(heads * s * FLOAT)
    staged = rows + rounded(efficient_staging_bytes(heads, s, t, widths, kernel))
    return staged if kernel.half else max(staged, 2 * rows + rounded(heads * s * widths[1] * FLOAT))


def _up(number: int, to: int) -> int:
    return -(-number // to) * to
