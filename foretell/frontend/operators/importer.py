"""What an operator importer is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from foretell.frontend.onnx_node import OnnxNode
from foretell.graph.nodes import Value

Importer: TypeAlias = Callable[[OnnxNode], Value | tuple[Value | None, ...] | None]
"""Adds canonical nodes for an ONNX node and returns its outputs; ValueError if the node is wrong, None to decline
(before anything is added), so that the operator's function body or the reference serves instead."""
