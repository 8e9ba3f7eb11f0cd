"""The import rules of the tree: this dict is the whole architecture."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest

import foretell.support

ROOT = Path(foretell.support.__file__).parents[1]
LEVEL_0 = {"support", "ir", "target"}
STAGES = {"frontend", "graph", "loops", "schedule", "cost", "search", "partition", "codegen", "runtime"}
ALLOWED: dict[str, set[str]] = {
    "support": set(),
    "ir": {"support"},
    "target": {"support", "ir"},
    "graph": {"support", "ir"},
    "frontend": {"support", "ir", "graph"},
    "loops": {"graph"} | LEVEL_0,
    "schedule": {"loops"} | LEVEL_0,
    "cost": {"graph", "loops", "schedule", "codegen"} | LEVEL_0,
    "search": {"graph", "loops", "schedule", "cost"} | LEVEL_0,
    "partition": {"loops", "search"} | LEVEL_0,
    "codegen": {"loops"} | LEVEL_0,
    "runtime": {"support", "ir", "target"},
    "link_program": STAGES | LEVEL_0,
    "compiler": {"link_program"} | STAGES | LEVEL_0,
    "tune": {"compiler"} | STAGES | LEVEL_0,
    "calibrate": STAGES | LEVEL_0,
    "report": {"compiler"} | STAGES | LEVEL_0,
    "__init__": {"compiler", "runtime"} | LEVEL_0,
    "integrations": {"__init__", "compiler"} | STAGES | LEVEL_0,
    "cli": {"__init__", "compiler", "tune", "calibrate", "report", "integrations"} | STAGES | LEVEL_0,
    "__main__": {"cli"},
}
ONLY_IN = {
    "onnx": ("frontend/", "integrations/", "graph/reference.py"),
    "google": ("frontend/",),
    "torch": (),
}
FREE_DOCSTRING = {"tune", "calibrate", "integrations", "report", "cli"}
FILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))


def imports_of(file: str) -> set[tuple[str, ...]]:
    """Every module a file imports, also inside functions, as a path of names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {tuple(name.split(".")) for name in found}


def package_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def test_allowed_imports_have_no_ring() -> None:
    graphlib.TopologicalSorter(ALLOWED).prepare()


@pytest.mark.parametrize("file", FILES)
def test_imports_follow_the_tree(file: str) -> None:
    package = package_of(file)
    for root, *rest in imports_of(file):
        if root == "foretell":
            target = rest[0] if rest and rest[0] in ALLOWED else "__init__"
            assert target in ALLOWED[package] | {package}, f"{file} imports {target}"
        assert file.startswith(ONLY_IN.get(root, "")), f"{file} imports {root}"


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith("/__init__.py")])
def test_packages_say_what_they_are(file: str) -> None:
    docstring = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8"))) or ""
    named = package_of(file) in FREE_DOCSTRING or re.match(r"(Stage [1-9]|Level 0): ", docstring)
    assert docstring and named, f"{file} must begin with its stage"
