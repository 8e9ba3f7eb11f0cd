from __future__ import annotations

import json
import re

import pytest

from foretell.support import errors
from foretell.support.errors import ForetellError, InvalidNode, UnsupportedOperators

TREE = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ForetellError)]

CODES = {
    "ForetellError": "FT000",
    "UsageError": "FT001",
    "ModelError": "FT100",
    "UnreadableModel": "FT101",
    "InvalidModel": "FT102",
    "CyclicGraph": "FT103",
    "DuplicateName": "FT104",
    "InvalidNode": "FT105",
    "InvalidShape": "FT106",
    "InvalidTensor": "FT107",
    "UnsupportedModel": "FT110",
    "UnsupportedOperators": "FT111",
    "UnsupportedOpset": "FT112",
    "UnsupportedType": "FT113",
    "NotNative": "FT114",
    "LimitExceeded": "FT200",
    "FileTooLarge": "FT201",
    "TooManyNodes": "FT202",
    "RankTooHigh": "FT203",
    "TensorTooLarge": "FT204",
    "ConstantTooLarge": "FT205",
    "NestingTooDeep": "FT206",
    "ShapeTooComplex": "FT207",
    "TooManyOperands": "FT208",
    "NameTooLong": "FT209",
    "UnsafeExternalData": "FT301",
    "BadExternalData": "FT302",
    "InputError": "FT401",
    "EvaluationError": "FT402",
    "TargetError": "FT501",
    "ArtifactError": "FT600",
    "NotAnArtifact": "FT601",
    "DamagedArtifact": "FT602",
    "NewerArtifact": "FT603",
    "UnsavableModel": "FT604",
}
"""Published: a code never changes its meaning. A new error adds a line."""


def test_codes_are_stable() -> None:
    assert {kind.__name__: kind.code for kind in TREE} | CODES == CODES


@pytest.mark.parametrize("kind", TREE)
def test_codes_are_unique_and_well_formed(kind: type[ForetellError]) -> None:
    assert re.fullmatch(r"FT\d{3}", kind.code)
    assert [other for other in TREE if other.code == kind.code] == [kind]


def test_message_is_three_lines() -> None:
    error = InvalidNode("axis is out of range", where="node 'soft'", expected="-2..1", got="7", hint="export it again")
    assert str(error) == (
        "FT105: axis is out of range (at node 'soft')\n  expected -2..1; got 7\n  hint: export it again"
    )


def test_lines_without_facts_are_left_out() -> None:
    assert str(ForetellError("no")) == "FT000: no"
    assert str(ForetellError("no", got="1")) == "FT000: no\n  expected something else; got 1"
    assert str(ForetellError("no", hint="yes")) == "FT000: no\n  hint: yes"


def test_to_json_has_every_fact() -> None:
    error = InvalidNode("a", where="b", expected="c", got="d", hint="e")
    assert json.loads(json.dumps(error.to_json())) == {
        "code": "FT105",
        "error": "InvalidNode",
        "what": "a",
        "where": "b",
        "expected": "c",
        "got": "d",
        "hint": "e",
    }


def test_unsupported_operators_reports_all_and_shows_five() -> None:
    nodes = tuple((f"node {index}", "no such operator") for index in range(7))
    error = UnsupportedOperators(nodes)
    assert str(error).startswith("FT111: 7 node(s)")
    assert "node 4: no such operator; and 2 more" in str(error)
    assert len(str(error).splitlines()) == 3
    assert error.to_json()["nodes"] == [{"where": where, "reason": why} for where, why in nodes]
