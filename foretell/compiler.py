"""The pipeline, one line per step: read this first.

import_model   ONNX file -> graph of canonical operators     (frontend/)
simplify       graph -> smaller graph, same results           (graph/rewrites/)
"""

from __future__ import annotations

from foretell.frontend.import_onnx import Shapes, Source, import_onnx
from foretell.graph.nodes import Graph
from foretell.graph.simplify import simplify
from foretell.support.limits import DEFAULT_LIMITS, Limits
from foretell.support.progress import Steps

__all__ = ["import_model", "simplify"]


def import_model(
    source: Source, *, shapes: Shapes | None = None, limits: Limits = DEFAULT_LIMITS, progress: Steps | None = None
) -> Graph:
    """Read, check and translate a model; `UnsupportedOperators` names every node that cannot be run."""
    if progress is not None:
        progress.step("import")
    return import_onnx(source, shapes=shapes, limits=limits).require_graph()
