"""DistributedDataParallel over NCCL in a group of one, as a script under torchrun with one process does it."""

import tempfile

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

with tempfile.NamedTemporaryFile() as file:
    distributed.init_process_group("nccl", init_method=f"file://{file.name}", rank=0, world_size=1)
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(8))).cuda()
    model = DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        x = torch.randn(256, 4096, device="cuda")
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        distributed.all_reduce(loss)
        print(loss.item())
    distributed.destroy_process_group()
