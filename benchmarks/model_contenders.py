# SPDX-License-Identifier: Apache-2.0
"""Programs that run a GGUF file, each in a process of its own: benchmarks/model.py asks them in turns.

    python -m benchmarks.model_contenders NAME FILE THREADS LENGTH

A line of JSON comes when the model is loaded, and one for each line {"prompt": [ids], "new": N} on stdin: seconds until
the first token, and seconds of the N - 1 tokens after it. Nothing stops an answer early, and no prompt is remembered.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "python"
Seconds = tuple[float, float]


class QuireExample:
    """examples/python/llama."""

    def __init__(self, path: str, threads: int, length: int, activations: str) -> None:
        sys.path.insert(0, str(EXAMPLES))
        import quire
        from llama.engine import Engine
        from llama.gguf_file import GgufFile
        from llama.model import Llama

        model = Llama(GgufFile(path), activations=activations, threads=threads)
        self.engine = Engine(model, -1, batch=1, length=length, chunk=512)
        self.version = quire.__version__

    def run(self, prompt: list[int], new: int) -> Seconds:
        self.engine.manager.clear_cache()
        begin = time.perf_counter()
        request = self.engine.submit(prompt, new)
        while not request.answer:
            self.engine.step()
        first = time.perf_counter()
        self.engine.run()
        return first - begin, time.perf_counter() - first


class LlamaCpp:
    """Its server inside of this process (xllamacpp), which measures itself."""

    def __init__(self, path: str, threads: int, length: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = path
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_ctx, params.n_parallel, params.cache_ram_mib = length, 1, 0
        self.server = xllamacpp.Server(params)
        self.version = version("xllamacpp")

    def run(self, prompt: list[int], new: int) -> Seconds:
        asked = {"prompt": prompt, "n_predict": new, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False}
        answer = self.server.handle_completions(asked)
        timings = (answer if isinstance(answer, dict) else json.loads(answer))["timings"]
        if (timings["prompt_n"], timings["predicted_n"]) != (len(prompt), new):
            raise RuntimeError(f"llama.cpp computed other tokens than asked for: {timings}")
        return timings["prompt_ms"] / 1e3, timings["predicted_ms"] / 1e3


class OpenVino:
    """openvino-genai, which reads the file itself and keeps its own times."""

    def __init__(self, path: str, threads: int, length: int) -> None:
        import numpy
        import openvino
        import openvino_genai

        self.tensor = lambda ids: openvino.Tensor(numpy.array([ids], numpy.int64))
        self.config = openvino_genai.GenerationConfig()
        self.config.ignore_eos, self.config.do_sample = True, False
        settings = {"INFERENCE_NUM_THREADS": threads}
        if platform.machine() == "aarch64":  # its float16 there has no matmul for the first, empty, cache
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        self.pipeline = openvino_genai.LLMPipeline(path, "CPU", **settings)
        self.version = version("openvino-genai")

    def run(self, prompt: list[int], new: int) -> Seconds:
        self.config.max_new_tokens = self.config.min_new_tokens = new
        metrics = self.pipeline.generate(self.tensor(prompt), self.config).perf_metrics
        if metrics.get_num_generated_tokens() != new:
            raise RuntimeError(f"OpenVINO gave {metrics.get_num_generated_tokens()} tokens, not {new}")
        return metrics.get_ttft().mean / 1e3, metrics.get_tpot().mean / 1e3 * (new - 1)


CONTENDERS: dict[str, Any] = {
    "quire exact": lambda *where: QuireExample(*where, "exact"),
    "quire mixed": lambda *where: QuireExample(*where, "mixed"),
    "quire int8": lambda *where: QuireExample(*where, "int8"),
    "llama.cpp": LlamaCpp,
    "openvino": OpenVino,
}


def main() -> None:
    name, path, threads, length = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the programs print themselves is no answer
    try:
        contender = CONTENDERS[name](path, int(threads), int(length))
        out.write(json.dumps({"version": contender.version}) + "\n")
        for line in sys.stdin:
            asked = json.loads(line)
            out.write(json.dumps({"seconds": contender.run(asked["prompt"], asked["new"])}) + "\n")
    except Exception as error:  # whatever a peer throws belongs into the record
        text = " ".join(str(error).split())
        out.write(json.dumps({"error": f"{type(error).__name__}: {text[-200:]}"}) + "\n")


if __name__ == "__main__":
    main()
