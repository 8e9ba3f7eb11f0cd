"""Every error a user can cause, as one tree.

A message is three lines: what and where; expected and got; what to do. Codes are stable: scripts may match
on `error.code`, and `--json` prints `error.to_json()`. An error of ours (a broken invariant) is an
`AssertionError`, never one of these.
"""

from __future__ import annotations

LONGEST_FACT = 1000
"""Characters of one part of a message: names and shapes in it come from the model."""


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST_FACT else f"{text[:LONGEST_FACT]}..."


class ForetellError(Exception):
    """The root. `raise` for what the user did, `assert` for what we did."""

    code = "FT000"

    def __init__(self, what: str, *, where: str = "", expected: str = "", got: str = "", hint: str = "") -> None:
        self.what = _clipped(what)
        self.where = _clipped(where)
        self.expected = _clipped(expected)
        self.got = _clipped(got)
        self.hint = _clipped(hint)
        super().__init__(self.what)

    def __str__(self) -> str:
        place = f" (at {self.where})" if self.where else ""
        lines = [f"{self.code}: {self.what}{place}"]
        if self.expected or self.got:
            lines.append(f"  expected {self.expected or 'something else'}; got {self.got or 'nothing'}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """The same facts for a machine."""
        return {
            "code": self.code,
            "error": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "expected": self.expected,
            "got": self.got,
            "hint": self.hint,
        }


class UsageError(ForetellError):
    """A wrong option, path or command line."""

    code = "FT001"


class ModelError(ForetellError):
    """The model itself is at fault."""

    code = "FT100"


class UnreadableModel(ModelError):
    """Missing, empty, truncated, or not an ONNX protobuf."""

    code = "FT101"


class InvalidModel(ModelError):
    """Parsed, but breaks a rule of ONNX."""

    code = "FT102"


class CyclicGraph(InvalidModel):
    code = "FT103"


class DuplicateName(InvalidModel):
    code = "FT104"


class InvalidNode(InvalidModel):
    """One node breaks its operator's contract."""

    code = "FT105"


class InvalidShape(InvalidModel):
    """A negative, overflowing or contradictory dimension."""

    code = "FT106"


class InvalidTensor(InvalidModel):
    """A stored tensor whose bytes do not match its type."""

    code = "FT107"


class UnsupportedModel(ModelError):
    """Valid ONNX that foretell does not read."""

    code = "FT110"


class UnsupportedOperators(UnsupportedModel):
    """Operators that have neither a definition nor a reference; all of them in one report."""

    code = "FT111"

    def __init__(self, nodes: tuple[tuple[str, str], ...]) -> None:
        """`nodes` holds (location, reason) of every node that cannot be imported."""
        self.nodes = nodes
        shown = "; ".join(f"{where}: {why}" for where, why in nodes[:5])
        more = f"; and {len(nodes) - 5} more" if len(nodes) > 5 else ""
        super().__init__(
            f"{len(nodes)} node(s) use operators foretell cannot run: {shown}{more}",
            expected="operators listed in docs/operators.md",
            got=f"{len(nodes)} other(s)",
            hint="`foretell check MODEL` lists every one of them; rewrite or remove them before export",
        )

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), "nodes": [{"where": where, "reason": why} for where, why in self.nodes]}


class UnsupportedOpset(UnsupportedModel):
    code = "FT112"


class UnsupportedType(UnsupportedModel):
    """A value that is not a dense tensor of a numeric dtype."""

    code = "FT113"


class NotNative(UnsupportedModel):
    """Only native code was asked for, and the model needs the reference path."""

    code = "FT114"


class LimitExceeded(ForetellError):
    """The model asks for more than a published limit (docs/security.md); nothing was allocated."""

    code = "FT200"


class FileTooLarge(LimitExceeded):
    code = "FT201"


class TooManyNodes(LimitExceeded):
    code = "FT202"


class RankTooHigh(LimitExceeded):
    code = "FT203"


class TensorTooLarge(LimitExceeded):
    code = "FT204"


class ConstantTooLarge(LimitExceeded):
    """A value computed from constants alone would be larger than the limit (a Range or Expand bomb)."""

    code = "FT205"


class NestingTooDeep(LimitExceeded):
    code = "FT206"


class ShapeTooComplex(LimitExceeded):
    """A dimension that is an expression over symbols too large to reason about."""

    code = "FT207"


class TooManyOperands(LimitExceeded):
    """One node with a huge number of inputs, outputs or attributes."""

    code = "FT208"


class NameTooLong(LimitExceeded):
    """A name of a node, a value or a dimension that is as long as a book."""

    code = "FT209"


class UnsafeExternalData(ForetellError):
    """External data that leaves the model's folder: `..`, an absolute path, a symbolic or a hard link."""

    code = "FT301"


class BadExternalData(ForetellError):
    """External data that is missing, too short, or described wrongly."""

    code = "FT302"


class InputError(ForetellError):
    """An array passed to a model has the wrong name, dtype or shape."""

    code = "FT401"


class EvaluationError(ForetellError):
    """A node could not be evaluated on the data it was given."""

    code = "FT402"


class TargetError(ForetellError):
    """The machine cannot do what is asked: code for another CPU, or a CPU we know nothing about."""

    code = "FT501"


class ArtifactError(ForetellError):
    """The file of a compiled model cannot be used."""

    code = "FT600"


class NotAnArtifact(ArtifactError):
    """Some other kind of file."""

    code = "FT601"


class DamagedArtifact(ArtifactError):
    """Cut short, or changed since it was written."""

    code = "FT602"


class NewerArtifact(ArtifactError):
    """Written by a version of foretell that this one does not understand."""

    code = "FT603"


class UnsavableModel(ArtifactError):
    """A compiled model that needs more than machine code, so that no file can hold it."""

    code = "FT604"
