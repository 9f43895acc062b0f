# SPDX-License-Identifier: Apache-2.0
"""The snippets of the README and of docs/engine.md: Python runs, C++ is an excerpt of an example that CTest runs."""

import re
import warnings
from pathlib import Path

import pytest
import quire

ROOT = Path(__file__).resolve().parents[2]


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def block(language: str) -> str:
    found = blocks(language, "README.md")
    assert len(found) == 1, f"README.md has {len(found)} {language} blocks"
    return found[0]


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


def test_the_engines_snippets_run():
    torch = pytest.importorskip("torch")
    torch.manual_seed(7)
    names: dict = {}
    loop, call, planned, operator = blocks("python", "docs/engine.md")
    engine: dict = {}
    exec(compile(loop, "docs/engine.md", "exec"), engine)
    assert engine["lengths"].tolist() == [40, 0, 0, 0] and engine["manager"].tokens(engine["sequence"]).tolist()[-1] == 7
    assert engine["out"].shape == (8, 8, 64) and (engine["out"] == 1).all()
    exec(compile(call, "docs/engine.md", "exec"), names)
    assert names["out"].shape == (4, 8, 128)
    assert (names["out"] == 0).all()  # the mean of V rows that are zero

    exec(compile(planned, "docs/engine.md", "exec"), names)
    assert names["out"].shape == (4, 8, 128)
    assert (names["out"] == 0).all()

    exec(compile(operator, "docs/engine.md", "exec"), names)
    cache = names["cache"]
    cache.blocks.normal_()

    def step(q):
        where = (names["row_offsets"], cache.blocks, cache.cache_lengths, cache.page_table, 0)
        return names["attention"](2 * q, *where) + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(names["q"]), step(names["q"]))


def test_torch_compile_goes_around_a_call():
    torch = pytest.importorskip("torch")
    states, lses = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4)

    def merge(states, lses):
        return quire.merge_states(2 * states, lses) + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Dynamo says that it does not know the module
        compiled = torch.compile(merge, backend="eager")(states, lses)
    assert torch.equal(compiled, merge(states, lses))


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
