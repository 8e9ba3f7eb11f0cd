"""Operator sets: which versions a model uses, and which we read."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import ModelProto, defs
from onnx.defs import OpSchema

from foretell.frontend.mapped_files import quoted
from foretell.support.errors import DuplicateName, UnsupportedOpset

OLDEST_OPSET, NEWEST_OPSET = 7, 28


def model_opsets(proto: ModelProto) -> dict[str, int]:
    if not proto.opset_import:
        raise UnsupportedOpset(
            "the model does not say which operator set it uses",
            expected=f"opset {OLDEST_OPSET} to {NEWEST_OPSET}",
            got="none",
            hint="the file is damaged: export it again",
        )
    return opsets_of(proto.opset_import)


def opsets_of(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain, that of the default domain being one we read.

    A function body may use operators of the default domain without importing it.
    """
    versions: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise DuplicateName(
                f"the operator set of domain {quoted(entry.domain)} is imported twice",
                expected="one version",
                got=f"{versions[domain]} and {entry.version}",
                hint="export the model again",
            )
    version = versions.setdefault("", NEWEST_OPSET)
    if not 1 <= version <= NEWEST_OPSET:
        raise UnsupportedOpset(
            "the model uses an operator set that foretell does not read",
            expected=f"opset {OLDEST_OPSET} to {NEWEST_OPSET}",
            got=f"opset {version}",
            hint="export again with another opset, or convert with onnx.version_converter",
        )
    return versions


def is_unchanged(schema: OpSchema) -> bool:
    """Whether an operator of an old opset still means the same in the oldest one we read."""
    try:
        return defs.get_schema(schema.name, OLDEST_OPSET, schema.domain).since_version == schema.since_version
    except defs.SchemaError:
        return False
