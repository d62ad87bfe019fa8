"""Text of a Qwen3 0.6B of half its layers: prompts of unequal lengths, tokens drawn by top-k and top-p."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

config = Qwen3Config(
    hidden_size=1024, intermediate_size=3072, num_hidden_layers=14, num_attention_heads=16, num_key_value_heads=8,
    head_dim=128, vocab_size=151936, max_position_embeddings=4096, tie_word_embeddings=True,
)  # fmt: skip
torch.manual_seed(1)
with torch.device("cuda"):
    model = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
tokens = torch.randint(1, 151936, (8, 256))
mask = torch.ones_like(tokens)
mask[:4, :100] = 0
model.generation_config.eos_token_id = None
for _ in range(2):
    text = model.generate(
        tokens.to("cuda"), attention_mask=mask.to("cuda"), max_new_tokens=40, do_sample=True, top_k=50, top_p=0.9,
        pad_token_id=0,
    )  # fmt: skip
    print(tuple(text.shape))
