# SPDX-License-Identifier: Apache-2.0
"""The stub of the extension module says what the module has: every name, parameter and default, and no other."""

import ast
import re
from pathlib import Path

import pytest
import quire
from quire import _quire

STUB = ast.parse((Path(quire.__file__).parent / "_quire.pyi").read_text())


def names_of(body):
    """Functions, classes and constants of a stub, by name."""
    named = {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    constants = {node.target.id: node for node in body if isinstance(node, ast.AnnAssign)}
    return named | constants


def parameters_of(function):
    """[(name, default or None)] as the stub has them, without self."""
    arguments = function.args
    places = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(places) - len(arguments.defaults)) + arguments.defaults
    listed = list(zip(places, defaults)) + list(zip(arguments.kwonlyargs, arguments.kw_defaults))
    return [
        (argument.arg, None if default is None else ast.literal_eval(default))
        for argument, default in listed
        if argument.arg != "self"
    ]


def real_parameters(function):
    """The same of nanobind's own signature: "def f(dtype: str, width: int, scale: str = 'f32') -> …"."""
    signature, _, defaults = function.__nb_signature__[0]
    listed = re.findall(r"(?:\(|, )(\w+): [^,()]*?(?: = \\(\d+))?(?=[,)])", signature)
    return [
        (name, defaults[int(index)] if index else None) for name, index in listed if name != "self"
    ]


STUB_NAMES = names_of(STUB.body)
CLASSES = {name: node for name, node in STUB_NAMES.items() if isinstance(node, ast.ClassDef)}
OPS = {name for name in vars(_quire) if f"plan_{name}" in vars(_quire)}


def test_every_name_is_in_both():
    real = {name for name in vars(_quire) if not re.fullmatch(r"__\w+__", name) or name == "__version__"}
    plans = {f"{kind}_{op}" for op in OPS for kind in ("plan", "prepare")}
    assert OPS == set(quire.info()["ops"])
    assert real - OPS - plans == set(STUB_NAMES) - {"__getattr__"}


@pytest.mark.parametrize("name", CLASSES)
def test_class_has_the_members_of_its_stub(name):
    described = set(names_of(CLASSES[name].body)) - {"__init__"}
    real = {
        member
        for member in vars(getattr(_quire, name))
        if not member.startswith("_") or member in ("__bool__",)
    }
    assert real == described


def described_functions():
    for name, node in STUB_NAMES.items():
        if isinstance(node, ast.FunctionDef) and node.args.kwarg is None and name != "__getattr__":
            yield name, node, getattr(_quire, name)
    for class_name, body in CLASSES.items():
        for name, node in names_of(body.body).items():
            is_property = any(getattr(mark, "id", "") == "property" for mark in node.decorator_list)
            if not is_property and name != "__bool__":
                yield f"{class_name}.{name}", node, getattr(getattr(_quire, class_name), name)


DESCRIBED = {
    name: (node, function)
    for name, node, function in described_functions()
    if "**kwargs" not in function.__nb_signature__[0][0]  # read by name: the stub knows more than the signature
}


@pytest.mark.parametrize("name", DESCRIBED)
def test_parameters_and_defaults(name):
    node, function = DESCRIBED[name]
    assert parameters_of(node) == real_parameters(function)


def test_the_test_sees_parameters():
    assert real_parameters(_quire.RowFormat.scaled)[-1] == ("scale_dtype", "f32")
    assert len(DESCRIBED) > 8
