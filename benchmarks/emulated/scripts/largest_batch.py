"""Doubles a batch until the card is full, as batch finders do, then trains with the last that fitted."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(1)
layer = nn.TransformerEncoderLayer(2048, 16, 8192, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def step(batch: int) -> None:
    x = torch.randn(batch, 1024, 2048, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = functional.mse_loss(model(x), x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


batch = 8
while True:
    try:
        step(batch)
        batch *= 2
    except torch.OutOfMemoryError as error:
        print(str(error)[:200])
        optimizer.zero_grad()
        break
torch.cuda.empty_cache()
step(batch // 2)
print("largest batch", batch // 2)
