"""Write operators.md beside this file: which ONNX operators run and how, judged by ONNX's own node tests.

python docs/generate_operators.py                       # operators.md
python docs/generate_operators.py --expected-failures   # and the list that tests/e2e holds the suite to
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, defs, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnx.defs import OpSchema

from foretell.frontend.import_onnx import import_onnx
from foretell.frontend.operators import IMPORTERS
from foretell.frontend.opsets import NEWEST_OPSET
from foretell.frontend.reference_node import has_reference
from foretell.integrations import onnx_backend
from foretell.report.check import STATUSES
from foretell.support.errors import ForetellError, NotNative, UnsupportedOperators, UnsupportedType

ROOT = Path(__file__).parents[1]
OPERATORS_PAGE = ROOT / "docs" / "operators.md"
EXPECTED_FAILURES = ROOT / "tests" / "e2e" / "onnx_backend_expected_failures.txt"

Operator = tuple[str, str]
"""Domain and name."""
GROUPS: dict[str, str] = {
    "strings": "Tensors of strings are not numbers.",
    "sequences": "Sequences of tensors are not tensors.",
    "optionals": "Optional values are not tensors.",
    "training": "Gradients and optimisers are left to training frameworks.",
    "image decoder": "Decoding needs Pillow, which foretell does not depend on; these cases are not run.",
    "random": "The result is random, and no seed gives the expected one; these cases are not run.",
    "other": "",
}
"""Why cases fail. Under `other` each case has a reason of its own."""
NOT_RUN: dict[str, str] = {"ImageDecoder": "image decoder", "Bernoulli": "random"}
"""Operators whose outcome depends on the machine or on chance, and the group that says so."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one case of the suite came to. `reason` is empty if it passed."""

    name: str
    operator: Operator
    statuses: Mapping[str, int]
    """What became of the nodes that use the operator; none do in the expanded form of a case."""
    group: str = ""
    reason: str = ""
    is_native: bool = False
    """Whether compiled code passes it too, without the reference."""

    @property
    def passed(self) -> bool:
        return not self.reason


# --- running the suite ---------------------------------------------------------------------------------------


@cache
def load_cases() -> dict[str, TestCase]:
    """The node cases of the onnx package by name, in alphabetical order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    return {case.name: case for case in sorted(cases, key=lambda case: case.name)}


def run_case(case: TestCase) -> Outcome:
    """Run one case through the backend, on the evaluator: the operators' definitions, and the reference for others."""
    operator = operator_of(case)
    group = NOT_RUN.get(operator[1], "")
    if group:
        return Outcome(case.name, operator, Counter(["reference"]), group, GROUPS[group])
    try:
        reason = _try_mismatch(case, onnx_backend.prepare(model_of(case), engine="evaluator"))
    except UnsupportedOperators as error:
        reason = error.nodes[0][1]
    except ForetellError as error:
        reason = str(error).splitlines()[0]
    return Outcome(case.name, operator, _statuses(case), _group(model_of(case)) if reason else "", reason)


def try_native_failure(case: TestCase) -> str | None:
    """Why compiled code alone does not pass a case, empty if it does; None if it takes the reference."""
    if operator_of(case)[1] in NOT_RUN:
        return None
    try:
        return _try_mismatch(case, onnx_backend.prepare(model_of(case), native_only=True))
    except (NotNative, UnsupportedOperators, UnsupportedType):
        return None
    except ForetellError as error:
        return str(error).splitlines()[0]


def model_of(case: TestCase) -> ModelProto:
    assert case.model is not None
    return case.model


def operator_of(case: TestCase) -> Operator:
    """The operator that a case tests; `..._expanded` tests the function body of the case it is named after."""
    tested = model_of(load_cases()[case.name.split("_expanded")[0]]).graph.node[0]
    return tested.domain, tested.op_type


def _statuses(case: TestCase) -> Counter[str]:
    """What became of the nodes that use the operator a case tests; nothing for an expanded case."""
    tested = operator_of(case)
    try:
        uses = import_onnx(model_of(case)).operators
    except UnsupportedType:
        return Counter(["unsupported"])
    return Counter(use.status for use in uses if (use.domain, use.op_type) == tested and "_expanded" not in case.name)


def _try_mismatch(case: TestCase, prepared: onnx_backend.ForetellRep) -> str:
    """Why the results are not the expected ones; empty if they are."""
    assert case.data_sets is not None
    for inputs, expected in case.data_sets:
        results = prepared.run([_as_array(value) for value in inputs])
        try:
            Runner.assert_similar_outputs([_as_array(value) for value in expected], results, case.rtol, case.atol)
        except AssertionError:
            return "the results differ from those expected"
    return ""


def _as_array(value: Any) -> Any:
    """Cases hold arrays, tensors, and lists of them, whatever their annotations say."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _group(model: ModelProto) -> str:
    """The kind of values or operators that put a case out of reach."""
    if any(node.domain == "ai.onnx.preview.training" for node in model.graph.node):
        return "training"
    types = [info.type for info in (*model.graph.input, *model.graph.output)]
    if any(type.HasField("optional_type") for type in types):
        return "optionals"
    if any(type.HasField("sequence_type") for type in types):
        return "sequences"
    return "strings" if any(type.tensor_type.elem_type == TensorProto.STRING for type in types) else "other"


# --- operators without a case --------------------------------------------------------------------------------


def untested_status(schema: OpSchema) -> str:
    """What would become of an operator that the suite does not test."""
    body: Any = schema  # onnx's stubs leave out what schemas say about functions
    if not all(_has_tensors(schema, formal) for formal in (*schema.inputs, *schema.outputs)):
        return "unsupported"
    if (schema.domain, schema.name) in IMPORTERS:
        return "native"
    if body.has_function or body.has_context_dependent_function:
        return "decomposed"
    return "reference" if has_reference(schema.domain, schema.name, schema.since_version) else "unsupported"


def _has_tensors(schema: OpSchema, formal: OpSchema.FormalParameter) -> bool:
    """Whether a parameter may be a tensor of numbers."""
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    types = allowed.get(formal.type_str, [formal.type_str])
    return any(type.startswith("tensor(") and type != "tensor(string)" for type in types)


# --- the page ------------------------------------------------------------------------------------------------


def operators_page(outcomes: Sequence[Outcome]) -> str:
    """The whole of operators.md."""
    return "\n".join([*_summary(outcomes), *_operator_tables(outcomes), *_failures(outcomes)]) + "\n"


def _summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    passed = [outcome for outcome in outcomes if outcome.passed]
    yield "# Operators"
    yield ""
    yield f"Written by `make docs` from the {len(outcomes):,} node tests of onnx {onnx.__version__}, each run through"
    yield "`foretell.integrations.onnx_backend`: once by the operators' definitions (or the reference), once as native"
    yield "code alone. Do not edit."
    yield ""
    yield "| result | cases |"
    yield "| --- | ---: |"
    yield f"| passed | {len(passed)} |"
    yield f"| passed by native code alone | {sum(outcome.is_native for outcome in outcomes)} |"
    yield f"| failed | {len(outcomes) - len(passed)} |"
    yield ""
    yield "What becomes of a node:"
    yield ""
    for status, (_, meaning) in STATUSES.items():
        if status != "blocked":
            yield f"- {status}: {meaning}"


def _operator_tables(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield ""
    yield "Where nodes of one operator fare differently, the number of cases is given. An operator without cases is not"
    yield "tested by the suite; its status is what its definition tells."
    by_operator: dict[Operator, list[Outcome]] = {}
    for outcome in outcomes:
        by_operator.setdefault(outcome.operator, []).append(outcome)
    schemas = {(schema.domain, schema.name): schema for schema in _schemas()}
    for domain in sorted({domain for domain, _ in schemas}):
        yield ""
        yield f"## Domain {domain or 'ai.onnx'}"
        yield ""
        yield "| operator | versions | status | passed | native |"
        yield "| --- | --- | --- | ---: | ---: |"
        for key in sorted(key for key in schemas if key[0] == domain):
            yield _operator_row(schemas[key], by_operator.get(key, []))


def _schemas() -> list[OpSchema]:
    """The newest version of each operator that the newest opset we read knows."""
    return [schema for schema in defs.get_all_schemas() if schema.since_version <= NEWEST_OPSET]


def _operator_row(schema: OpSchema, outcomes: Sequence[Outcome]) -> str:
    versions = ", ".join(str(version) for version in _versions(schema))
    found = Counter(status for outcome in outcomes for status in outcome.statuses)
    kinds = [status for status in STATUSES if found[status]]
    status = ", ".join(kind if len(kinds) == 1 else f"{kind} ({found[kind]})" for kind in kinds)
    passed = f"{sum(outcome.passed for outcome in outcomes)}/{len(outcomes)}" if outcomes else ""
    native = str(sum(outcome.is_native for outcome in outcomes)) if outcomes else ""
    deprecated = " (deprecated)" if schema.deprecated else ""
    return f"| {schema.name}{deprecated} | {versions} | {status or untested_status(schema)} | {passed} | {native} |"


@cache
def _all_versions() -> Mapping[Operator, list[int]]:
    found: dict[Operator, list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return found


def _versions(schema: OpSchema) -> list[int]:
    return sorted(version for version in _all_versions()[schema.domain, schema.name] if version <= NEWEST_OPSET)


def _failures(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield ""
    yield "## Cases that fail"
    for group, why in GROUPS.items():
        failed = [outcome for outcome in outcomes if not outcome.passed and outcome.group == group]
        if failed:
            yield ""
            yield f"### {group.capitalize()} ({len(failed)})"
            yield ""
            yield from [why, ""] if why else []
            yield from (f"- {outcome.name}" + ("" if why else f": {outcome.reason}") for outcome in failed)


# --- the list for the tests ----------------------------------------------------------------------------------


def expected_failures_text(outcomes: Sequence[Outcome]) -> str:
    """A line per failing case: its name, a tab, and why."""
    lines = [f"# onnx {onnx.__version__}; written by: python docs/generate_operators.py --expected-failures"]
    for outcome in outcomes:
        if not outcome.passed:
            lines.append(f"{outcome.name}\t{outcome.reason if outcome.group == 'other' else outcome.group}")
    return "\n".join(lines) + "\n"


def read_expected_failures() -> dict[str, str]:
    """Reasons by the names of cases."""
    lines = EXPECTED_FAILURES.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("\t") for line in lines if not line.startswith("#"))
    return {name: reason for name, _, reason in pairs}


def expected_version() -> str:
    """The version of onnx whose suite the list is for."""
    return EXPECTED_FAILURES.read_text(encoding="utf-8").split("onnx ", 1)[1].split(";", 1)[0]


def main(arguments: Sequence[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [replace(run_case(case), is_native=try_native_failure(case) == "") for case in load_cases().values()]
    OPERATORS_PAGE.write_text(operators_page(outcomes), encoding="utf-8")
    if "--expected-failures" in arguments:
        EXPECTED_FAILURES.write_text(expected_failures_text(outcomes), encoding="utf-8")
    native = sum(outcome.is_native for outcome in outcomes)
    print(f"{sum(outcome.passed for outcome in outcomes)} of {len(outcomes)} cases pass, {native} by native code alone")


if __name__ == "__main__":
    main(sys.argv[1:])
