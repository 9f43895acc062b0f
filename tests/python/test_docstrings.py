# SPDX-License-Identifier: Apache-2.0
"""Every public function says what it does and shows it; the examples run."""

import doctest
import inspect

import numpy as np
import pytest
import quire

FUNCTIONS = {
    name: getattr(quire, name)
    for name in quire.__all__
    if inspect.isfunction(getattr(quire, name)) or name in ("Mask", "PagedKVCache", "Quant")
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_runs(name):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    tests = [t for t in finder.find(FUNCTIONS[name], name, globs={"np": np, "quire": quire}) if t.examples]
    assert tests, f"{name} has no example"
    for test in tests:
        output = []
        result = runner.run(test, out=output.append)
        assert result.failed == 0, "".join(output)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if inspect.isfunction(f)])
def test_signature_is_typed(name):
    signature = inspect.signature(FUNCTIONS[name])
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name


def test_all_is_complete():
    public = {name for name, value in vars(quire).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert public == set(quire.__all__) - {"__version__"}
