"""A Llama of 1.1 billion parameters of transformers in bf16, its blocks checkpointed, with AdamW."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
    vocab_size=32000, max_position_embeddings=2048, use_cache=False,
)  # fmt: skip
torch.manual_seed(1)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for _ in range(3):
    tokens = torch.randint(0, 32000, (4, 2048)).to("cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
