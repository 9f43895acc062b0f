# SPDX-License-Identifier: Apache-2.0
"""The snippets of the README: the Python one runs, the C++ one is an excerpt of an example that CTest runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def block(language: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"the README has {len(blocks)} {language} blocks"
    return blocks[0]


def test_python_snippet_runs():
    torch = pytest.importorskip("torch")
    torch.manual_seed(7)
    names: dict = {}
    exec(compile(block("python"), "README.md", "exec"), names)

    out, lse, cache = names["out"], names["lse"], names["cache"]
    assert out.shape == (8, names["heads"], names["head_dim"])
    assert out.isfinite().all() and lse.isfinite().all()
    # The prefill's first token sees only itself, so its output is its own V row, as the projection stored it.
    page = int(cache.page_table[1, 0])
    group = names["heads"] // names["kv_heads"]
    own = names["blocks"][page, 1, 0, 0].repeat_interleave(group, dim=0)
    assert own.abs().max() > 0
    assert torch.equal(out[1], own)


def test_cpp_snippet_is_in_the_example():
    example = [line.strip() for line in (ROOT / "examples" / "paged_attention.cpp").read_text().splitlines()]
    position = 0
    for line in filter(None, map(str.strip, block("cpp").splitlines())):
        assert line in example[position:], f"'{line}' is not in examples/paged_attention.cpp, or not in this order"
        position = example.index(line, position) + 1


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())))
)
def test_link_leads_somewhere(target):
    assert (ROOT / target).exists(), target
