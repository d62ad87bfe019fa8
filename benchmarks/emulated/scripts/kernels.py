"""An operator of the script's own twice: in CUDA C++, compiled by nvcc as an extension, and in Triton."""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>
__global__ void square_kernel(const float* x, float* y, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i];
}
torch::Tensor square(torch::Tensor x) {
  auto y = torch::empty_like(x), scratch = torch::zeros({x.size(0)}, x.options());
  square_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
extension = load_inline("square_extension", "torch::Tensor square(torch::Tensor x);", CUDA, functions=["square"])


@triton.jit
def swish_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value * tl.sigmoid(value), mask=at < n)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        swish_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, given: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        sigmoid = torch.sigmoid(x)
        return given * (sigmoid * (1 + x * (1 - sigmoid)))


torch.manual_seed(1)
layers = torch.nn.ModuleList(torch.nn.Linear(4096, 4096) for _ in range(4)).cuda()
optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3, momentum=0.9)
for _ in range(3):
    x = torch.randn(1024, 4096, device="cuda")
    for layer in layers:
        x = Swish.apply(layer(x))
    weight = extension.square(x.detach())
    loss = (x * weight).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
