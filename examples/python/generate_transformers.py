# SPDX-License-Identifier: Apache-2.0
"""A model of Hugging Face transformers on Quire: `generate` over pages, and `generate_batch`.

Runs anywhere, without a download: the model is a small Llama with random weights. With a checkpoint of your own, say
AutoModelForCausalLM.from_pretrained(name, attn_implementation="quire") instead.
"""

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

import quire.integrations.transformers

quire.integrations.transformers.register()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
config = LlamaConfig(
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
    initializer_range=0.1,
    bos_token_id=1,
    eos_token_id=None,
    pad_token_id=0,
)
model = LlamaForCausalLM(config).to(device).eval()

# Three prompts of different lengths, padded on the left. Padding takes no room in the pages.
prompts = [torch.randint(2, 1000, (length,)).tolist() for length in (90, 40, 7)]
ids = torch.tensor([[0] * (90 - len(prompt)) + prompt for prompt in prompts], device=device)
mask = torch.tensor([[0] * (90 - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
settings = GenerationConfig(max_new_tokens=16, do_sample=False, pad_token_id=0, return_dict_in_generate=True)

model.set_attn_implementation("quire")
out = model.generate(ids, attention_mask=mask, generation_config=settings)
cache = out.past_key_values
print(f"generate: {type(cache).__name__}, tokens {cache.lengths} in {cache.pages_in_use} pages of {cache.page_size}")

# The same requests by continuous batching, over the paged cache of transformers itself.
room = ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=256)
results = model.generate_batch(
    prompts, generation_config=settings, continuous_batching_config=room, progress_bar=False
)
batch = [result.generated_tokens for _, result in sorted(results.items())]

model.set_attn_implementation("sdpa")
theirs = model.generate(ids, attention_mask=mask, generation_config=settings).sequences[:, 90:].tolist()
print("first tokens:", [tokens[:5] for tokens in theirs])
print("same tokens as sdpa:", out.sequences[:, 90:].tolist() == theirs == batch)
