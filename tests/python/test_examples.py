# SPDX-License-Identifier: Apache-2.0
"""examples/python: the programs run as they are, and say that they are right. serve_vllm.py needs vLLM."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "python"


def test_call_the_ops(capsys):
    """It compares every result with numpy itself."""
    runpy.run_path(str(FOLDER / "call_the_ops.py"))
    said = capsys.readouterr().out
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "prefill", "decode", "kernel", "planned", "planned", "latent, FP8",
    ]  # fmt: skip


def test_call_the_ops_notices_a_wrong_result(monkeypatch):
    import quire

    whole = quire.flash_attention
    monkeypatch.setattr(quire, "flash_attention", lambda *args, **kwargs: 1.001 * whole(*args, **kwargs))
    with pytest.raises(AssertionError, match="prefill"):
        runpy.run_path(str(FOLDER / "call_the_ops.py"))


def test_generate_transformers(capsys):
    pytest.importorskip("transformers")
    runpy.run_path(str(FOLDER / "generate_transformers.py"))
    said = capsys.readouterr().out
    assert "PagedCache, tokens [105, 55, 22] in 4 pages" in said and "same tokens as sdpa: True" in said


@pytest.mark.parametrize("page", ["README.md", "docs/integrations.md"])
def test_every_example_is_named(page):
    text = (ROOT / page).read_text()
    assert [file.name for file in sorted(FOLDER.glob("*.py")) if file.name not in text] == []
