# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` with the plug-in answers over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import checkpoints
from engines import MINUTES, environment

PROMPT = [17, 300, 5, 99, 481, 33, 260, 7]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(address: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=MINUTES) as answer:
        text = answer.read()
    return json.loads(text) if text else {}


def wait_for(server: subprocess.Popen, address: str, log: Path) -> None:
    until = time.monotonic() + 5 * MINUTES
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text()
        try:
            ask(f"{address}/health")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(1)
    raise TimeoutError(log.read_text())


def test_completion_over_http(tmp_path):
    model, log = checkpoints.write(tmp_path / "model", "llama"), tmp_path / "log"
    checkpoints.write_tokenizer(model)
    port = free_port()
    command = [Path(sys.executable).with_name("vllm"), "serve", model, "--port", str(port)]
    command += ["--served-model-name", "small", "--attention-backend", "QUIRE"]
    command += ["--enforce-eager", "--dtype", "float32", "--max-model-len", "512"]
    variables = environment(True, VLLM_ENABLE_V1_MULTIPROCESSING="1")
    with log.open("w") as out, subprocess.Popen(command, env=variables, stdout=out, stderr=out) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(server, address, log)
            body = {"model": "small", "prompt": PROMPT, "return_token_ids": True}
            body |= {"max_tokens": 8, "temperature": 0.0, "ignore_eos": True}
            answer = ask(f"{address}/v1/completions", body)
        finally:
            server.terminate()
            server.wait(MINUTES)
    (choice,) = answer["choices"]
    assert choice["prompt_token_ids"] == PROMPT
    assert choice["text"].split() == [f"w{i}" for i in choice["token_ids"]] and len(choice["token_ids"]) == 8
    assert answer["usage"] == {**answer["usage"], "prompt_tokens": len(PROMPT), "completion_tokens": 8}
