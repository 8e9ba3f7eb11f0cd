"""Nodes in an order where definitions come before uses, and how reports name them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from onnx import NodeProto

from foretell.frontend.mapped_files import quoted
from foretell.support.errors import CyclicGraph, UnreadableModel
from foretell.support.printable import printable

LONGEST_NAME = 100
"""Names from a model are cut to this length where they are only there to be read: one may be a gigabyte long."""


def order_nodes(nodes: Sequence[NodeProto], prefix: str) -> list[NodeProto]:
    """The nodes in an order where definitions come before uses; ONNX demands it, some exporters forget."""
    producer = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    needs = [[producer[name] for name in free_names(node) if name in producer] for node in nodes]
    if all(max(before, default=-1) < number for number, before in enumerate(needs)):
        return list(nodes)
    order: list[int] = []
    missing = [len(set(before)) for before in needs]
    users: list[set[int]] = [set() for _ in nodes]
    for number, before in enumerate(needs):
        for need in before:
            users[need].add(number)
    ready = deque(number for number, count in enumerate(missing) if count == 0)
    while ready:
        number = ready.popleft()
        order.append(number)
        for user in sorted(users[number]):
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    if len(order) < len(nodes):
        stuck = next(number for number, count in enumerate(missing) if count)
        raise CyclicGraph(
            "the graph has a cycle",
            where=location_of(nodes[stuck], prefix),
            expected="an acyclic graph",
            got="a node that depends on its own output",
            hint="the file is damaged, or was made to do harm",
        )
    return [nodes[number] for number in order]


def free_names(node: NodeProto) -> list[str]:
    """The names a node reads, those that its subgraphs take from outside included."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            names += [name for inner in graph.node for name in free_names(inner) if name not in own]
            names += [info.name for info in graph.output if info.name not in own]
    return names


def location_of(proto: NodeProto, prefix: str) -> str:
    """How errors and reports name a node: its name, or its operator and first output."""
    output = next((name for name in proto.output if name), "")
    return prefix[-2 * LONGEST_NAME :] + (shortened(proto.name) or f"{shortened(proto.op_type)}({shortened(output)})")


def shortened(name: str) -> str:
    """A name as it may stand in a report: of bounded length, on one line."""
    if not isinstance(name, str):  # protobuf's answer to text that is not UTF-8, in a ModelProto that we did not read
        raise UnreadableModel("a name is not text", expected="UTF-8", got=quoted(repr(name)), hint="export it again")
    short = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
    return short if short.isprintable() else printable(short.replace("\n", " "))
