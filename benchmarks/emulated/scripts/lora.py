"""Adapters of rank 16 beside a frozen Llama of three billion parameters in bf16, padded batches, checkpointed."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    hidden_size=3072, intermediate_size=8192, num_hidden_layers=28, num_attention_heads=24, num_key_value_heads=8,
    vocab_size=128256, max_position_embeddings=8192, tie_word_embeddings=True, use_cache=False,
)  # fmt: skip
torch.manual_seed(1)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16)
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=1e-4)
for length in (1024, 1024, 2048):
    tokens = torch.randint(0, 128256, (4, length))
    mask = torch.ones_like(tokens)
    mask[0, length // 2 :] = 0
    labels = tokens.masked_fill(mask == 0, -100)
    loss = model(input_ids=tokens.to("cuda"), attention_mask=mask.to("cuda"), labels=labels.to("cuda")).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
