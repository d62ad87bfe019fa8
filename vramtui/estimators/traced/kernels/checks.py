"""What PyTorch's operators refuse and its own shape functions let pass: the same error, before anything is taken.

Of the errors that `op_db` of `torch.testing._internal` (2.13) lists, those that CUDA's kernels raise as well. What only
a kernel on the card finds in values (an index out of bounds) ends a job there without an error that code could catch.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch

from vramtui.estimators.traced.kernels.registry import check

_MOST_CATEGORIES = 1 << 24  # that a float counts


@check("uniform", "uniform_")
def refuse_empty_range(given: dict[str, Any]) -> Iterator[str]:
    """Refuse a range that ends before it begins (ATen/native/DistributionTemplates.h, uniform_impl_)."""
    low, high = given["from"], given["to"]
    if low > high:
        yield f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}"


@check("complex", "complex.out")
def refuse_parts_unlike(given: dict[str, Any]) -> Iterator[str]:
    """Refuse parts of other types (ATen/native/TensorFactories.cpp, complex_check_dtype)."""
    real, imag, out = given["real"], given["imag"], given.get("out")
    if not all(part.dtype in {torch.half, torch.float, torch.double} for part in (real, imag)):
        yield f"Expected both inputs to be Half, Float or Double tensors but got {real.dtype} and {imag.dtype}"
    elif real.dtype != imag.dtype:
        yield f"Expected object of scalar type {real.dtype} but got scalar type {imag.dtype} for second argument"
    elif out is not None and out.dtype != real.dtype.to_complex():
        yield f"Expected object of scalar type {real.dtype.to_complex()} but got {out.dtype} for argument 'out'"


@check("masked_scatter", "masked_scatter_")
def refuse_mask_of_numbers(given: dict[str, Any]) -> Iterator[str]:
    """Refuse a mask that is not of conditions (ATen/native/cuda/IndexKernel.cpp, masked_scatter__cuda)."""
    if given["mask"].dtype != torch.bool:
        yield f"masked_scatter_ only supports boolean masks, but got mask with dtype {given['mask'].dtype}"


@check("masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Scalar", "masked_fill_.Tensor")
def refuse_numbers_for_conditions(given: dict[str, Any]) -> Iterator[str]:
    """Refuse a mask of bytes (ATen/native/cuda/Indexing.cu, masked_fill__cuda)."""
    if given["mask"].dtype != torch.bool:
        yield f"masked_fill only supports boolean masks, but got dtype {given['mask'].dtype}"


@check("native_layer_norm")
def refuse_other_shapes(given: dict[str, Any]) -> Iterator[str]:
    """Refuse weights of another shape than what is normalized (ATen/native/layer_norm.h, _check_layer_norm_inputs)."""
    shape = list(given["normalized_shape"])
    if not shape:
        yield f"Expected normalized_shape to be at least 1-dimensional, but got normalized_shape = {shape}"
    for name in ("weight", "bias"):
        tensor = given[name]
        if tensor is not None and list(tensor.shape) != shape:
            yield f"Expected {name} to be of same shape as normalized_shape, but got {list(tensor.shape)} and {shape}"


@check("gelu", "gelu_")
def refuse_unknown_form(given: dict[str, Any]) -> Iterator[str]:
    """Refuse another approximation (ATen/native/Activation.h, get_gelutype_enum)."""
    if given["approximate"] not in {"none", "tanh"}:
        yield "approximate argument must be either none or tanh."


@check("index_add", "index_add_")
def refuse_source_unlike(given: dict[str, Any]) -> Iterator[str]:
    """Refuse a source that does not fit (ATen/native/TensorAdvancedIndexing.cpp, index_func_meta_impl)."""
    tensor, source, dim = given["self"], given["source"], given["dim"]
    shapes = [list(one.shape) for one in (tensor, source)]
    for shape in shapes:
        del shape[dim : dim + 1 or None]
    if tensor.dim() and source.dim() and shapes[0] != shapes[1]:
        yield (
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            f"{list(tensor.shape)} source.shape = {list(source.shape)}"
        )


@check("multinomial")
def refuse_what_cannot_be_drawn(given: dict[str, Any]) -> Iterator[str]:
    """Refuse what has no probabilities, or too few (ATen/native/Distributions.cpp, multinomial)."""
    tensor, samples = given["self"], given["num_samples"]
    if not tensor.is_floating_point():
        yield f"multinomial only supports floating-point dtypes for input, got: {tensor.dtype}"
    elif samples <= 0:
        yield "cannot sample n_sample <= 0 samples"
    elif not given["replacement"] and samples > tensor.size(-1):
        yield "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
    elif tensor.size(-1) > _MOST_CATEGORIES:
        yield "number of categories cannot exceed 2^24"


@check("bucketize.Tensor")
def refuse_boundaries_of_many(given: dict[str, Any]) -> Iterator[str]:
    """Refuse boundaries of many dimensions (ATen/native/BucketizationUtils.h, searchsorted_pre_check)."""
    if given["boundaries"].dim() != 1:
        yield f"boundaries tensor must be 1 dimension, but got dim({given['boundaries'].dim()})"


@check("as_strided_scatter")
def refuse_places_beyond(given: dict[str, Any]) -> Iterator[str]:
    """Refuse places that the copy does not have (ATen/native/Resize.h, checkInBoundsForStorage)."""
    size, stride, tensor = given["size"], given["stride"], given["self"]
    start = given["storage_offset"] or 0
    last = start + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True)) + 1
    if math.prod(size) and last > tensor.numel():
        yield f"setStorage: sizes {list(size)}, strides {list(stride)} are out of bounds for {tensor.numel()} numbers"


@check("amax", "amin", "aminmax", error=IndexError)
def refuse_nothing_to_reduce(given: dict[str, Any]) -> Iterator[str]:
    """Refuse to reduce over nothing (ATen/native/ReduceOpsUtils.h, zero_numel_check_dims).

    Without a dimension the error is another.
    """
    tensor, dims = given["self"], given["dim"]
    dims = [dims] if isinstance(dims, int) else dims or []
    for dim in dims:
        if not tensor.numel() and tensor.dim() and not tensor.size(dim):
            yield f"Expected reduction dim {dim} to have non-zero size."


@check("aminmax.out")
def refuse_results_unlike(given: dict[str, Any]) -> Iterator[str]:
    """Refuse results of another type (ATen/native/ReduceOps.cpp, aminmax's meta function)."""
    for out in (given["min"], given["max"]):
        if out.dtype != given["self"].dtype:
            yield f"Expected out tensor to have dtype {given['self'].dtype}, but got {out.dtype} instead"


@check("linalg_lstsq")
def refuse_vectors(given: dict[str, Any]) -> Iterator[str]:
    """Refuse what is no matrix (ATen/native/BatchLinearAlgebra.cpp, linalg_lstsq_out)."""
    if given["self"].dim() < 2:
        yield "torch.linalg.lstsq: input must have at least 2 dimensions."
    elif given["b"].dim() < 1:
        yield "torch.linalg.lstsq: other must have at least 1 dimension."


def as_from_kernel(error: Exception) -> Exception:
    """Give the error of a shape function in Python as a kernel in C++ raises it, which asserts nothing."""
    is_pythons = isinstance(error, AssertionError) or str(error).startswith(("list ", "tuple "))
    return RuntimeError(str(error)) if is_pythons else error
