"""The GPT of `gpt.py` with six blocks under torch.compile, optimizer step and all of it by Inductor and Triton."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import gpt

gpt.LAYERS = 6
torch.manual_seed(1)
model = gpt.Gpt().to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
step = torch.compile(model)
for _ in range(4):
    tokens = torch.randint(0, gpt.VOCABULARY, (8, gpt.LENGTH + 1)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = step(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(loss.item())
