# SPDX-License-Identifier: Apache-2.0
"""The snippets of the README and of docs/engine.md: Python runs, C++ is an excerpt of an example that CTest runs."""

import re
from pathlib import Path

import pytest
import quire

ROOT = Path(__file__).resolve().parents[2]


def block(language: str, page: str = "README.md") -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"{page} has {len(blocks)} {language} blocks"
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


def test_the_engines_snippet_runs():
    torch = pytest.importorskip("torch")
    torch.manual_seed(7)
    names: dict = {}
    exec(compile(block("python", "docs/engine.md"), "docs/engine.md", "exec"), names)
    assert names["out"].shape == (4, 8, 128)
    assert (names["out"] == 0).all()  # the mean of V rows that are zero


def test_cpp_snippet_is_in_the_example():
    example = [line.strip() for line in (ROOT / "examples" / "paged_attention.cpp").read_text().splitlines()]
    position = 0
    for line in filter(None, map(str.strip, block("cpp").splitlines())):
        assert line in example[position:], f"'{line}' is not in examples/paged_attention.cpp, or not in this order"
        position = example.index(line, position) + 1


@pytest.mark.parametrize("page", ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))])
def test_links_lead_somewhere(page):
    text = re.sub(r"`[^`]*`", "", (ROOT / page).read_text())  # what is code is no link
    for target in sorted(set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text))):
        assert ((ROOT / page).parent / target).exists(), target


def test_every_op_has_its_step():
    text = (ROOT / "docs" / "engine.md").read_text()
    assert [op for op in quire.info()["ops"] if f"`{op}" not in text] == []
