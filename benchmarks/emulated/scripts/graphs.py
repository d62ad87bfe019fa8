"""A perceptron's whole step in a CUDA graph, with segments that expand."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 8192), nn.GELU(), nn.Linear(8192, 16)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
x, y = torch.randn(512, 2048, device="cuda"), torch.randint(0, 16, (512,), device="cuda")


def step() -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(5):
    x.copy_(torch.randn(512, 2048))
    graph.replay()
print(loss.item())
