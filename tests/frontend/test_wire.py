"""The walk over serialized protobuf: what it cuts, what it counts, what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from foretell.frontend import wire
from foretell.frontend.wire import KEY_BYTES, PAYLOAD_BYTES, Stripped, encode_varint, strip_payloads
from foretell.support.errors import FileTooLarge, NestingTooDeep, TooManyNodes, UnreadableModel
from foretell.support.limits import DEFAULT_LIMITS, Limits

LARGE = np.arange(PAYLOAD_BYTES // 4, dtype=np.float32)


def strip(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Stripped:
    return strip_payloads(memoryview(data), limits, "m.onnx")


def parse(stripped: Stripped) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(stripped.structure)


def model(*nodes: onnx.NodeProto, initializers: tuple[onnx.TensorProto, ...] = ()) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(list(nodes), "g", [], [], list(initializers)))


def length_delimited(number: int, body: bytes) -> bytes:
    return encode_varint(number << 3 | 2) + encode_varint(len(body)) + body


def graph_of(body: bytes) -> bytes:
    return length_delimited(7, body)


def nested_ifs(depth: int, leaf: onnx.NodeProto) -> onnx.NodeProto:
    node = leaf
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["y"], then_branch=helper.make_graph([node], "then", [], []))
    return node


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**63])
def test_varints_are_those_of_protobuf(value: int):
    proto = onnx.TensorProto(uint64_data=[value])
    packed = encode_varint(11 << 3 | 2) + encode_varint(len(encode_varint(value))) + encode_varint(value)
    assert proto.SerializeToString() == packed


def test_a_model_without_large_tensors_stays_as_it_is():
    data = model(
        helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, -3], alpha=-1.5, note="ä"),
        initializers=(numpy_helper.from_array(LARGE[:-1], "just_too_small"),),
    ).SerializeToString()
    assert strip(data) == Stripped(data, {})


def test_a_large_initializer_is_cut_and_the_rest_kept():
    proto = model(initializers=(numpy_helper.from_array(LARGE, "w"), numpy_helper.from_array(LARGE[:2], "b")))
    stripped = strip(proto.SerializeToString())
    parsed = parse(stripped)
    cut = parsed.graph.initializer[0]
    assert len(cut.raw_data) == KEY_BYTES
    assert bytes(stripped.payloads[cut.raw_data]) == LARGE.tobytes()
    cut.raw_data = LARGE.tobytes()
    assert parsed == proto


def test_tensors_are_cut_wherever_onnx_can_hold_one():
    def constant(value: float) -> onnx.TensorProto:
        return numpy_helper.from_array(np.full_like(LARGE, value), f"t{value}")

    attribute = helper.make_attribute("value", constant(1))
    several = onnx.AttributeProto(name="values", type=onnx.AttributeProto.TENSORS, tensors=[constant(2), constant(3)])
    sparse = onnx.SparseTensorProto(values=constant(4), indices=constant(5), dims=[9])
    inner = helper.make_node("Constant", [], ["c"])
    inner.attribute.extend([attribute, several])
    inner.attribute.add(name="s", type=onnx.AttributeProto.SPARSE_TENSOR).sparse_tensor.CopyFrom(sparse)
    proto = model(nested_ifs(3, inner), initializers=(constant(0),))
    proto.graph.sparse_initializer.append(sparse)
    function = helper.make_function("d", "f", [], ["c"], [inner], [helper.make_opsetid("", 21)])
    function.attribute_proto.append(attribute)
    proto.functions.append(function)
    proto.training_info.add().algorithm.initializer.append(constant(6))

    stripped = strip(proto.SerializeToString())
    first_values = [np.frombuffer(payload, np.float32)[0] for payload in stripped.payloads.values()]
    assert sorted(first_values) == [0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 5, 6]
    assert len(stripped.structure) < 4096


def test_payloads_are_views_of_the_source():
    data = model(initializers=(numpy_helper.from_array(LARGE, "w"),)).SerializeToString()
    (payload,) = strip(data).payloads.values()
    assert payload.obj is data and payload.readonly


def test_keys_differ_between_readings_so_that_none_can_be_forged():
    data = model(initializers=(numpy_helper.from_array(LARGE, "w"),)).SerializeToString()
    assert strip(data).payloads.keys().isdisjoint(strip(data).payloads.keys())


def test_a_field_given_twice_means_what_it_means_to_protobuf():
    first, last = (length_delimited(9, bytes([byte]) * PAYLOAD_BYTES) for byte in b"ab")
    tensor = length_delimited(5, first + last)  # of a singular field, the last counts
    name = length_delimited(2, b"name")
    stripped = strip(graph_of(tensor) + graph_of(name))  # a message given twice is merged
    graph = parse(stripped).graph
    assert graph.name == "name"
    assert bytes(stripped.payloads[graph.initializer[0].raw_data]) == b"b" * PAYLOAD_BYTES


def test_unknown_fields_pass_but_large_ones_are_emptied():
    small = length_delimited(999, b"future") + encode_varint(998 << 3) + b"\x07"
    large = length_delimited(999, b"\xff" * PAYLOAD_BYTES)
    assert strip(small).structure == small
    assert strip(large + small).structure == length_delimited(999, b"") + small


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x3a\x05\x0a", "a field ends after the message that holds it"),
        (b"\x3a\xff\xff\xff\xff\x0f", "a field ends after the message that holds it"),
        (graph_of(b"\x0a\x09") + bytes(9), "a field ends after the message that holds it"),
        (b"\x3a", "a number does not end"),
        (b"\x08\x80", "a number does not end"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number does not end"),
        (b"\x80" * 11, "a number does not end"),
        (encode_varint(2 << 3 | 5) + b"abc", "ModelProto.producer_name has the wrong wire type"),
        (encode_varint(999 << 3 | 5) + b"abc", "a field ends after the message that holds it"),
        (encode_varint(999 << 3 | 1) + b"abcdefg", "a field ends after the message that holds it"),
        (graph_of(length_delimited(5, b"\x48\x01")), "TensorProto.raw_data has the wrong wire type"),
        (b"\x38\x01", "ModelProto.graph has the wrong wire type"),
        (length_delimited(1, b"\x01"), "ModelProto.ir_version has the wrong wire type"),
        (b"\x3b\x3c", "a field has an impossible tag"),  # a group
        (b"\x07\x00", "a field has an impossible tag"),  # wire type 7
        (b"\x00\x00", "a field has an impossible tag"),  # field number 0
        (encode_varint(1 << 35) + b"\x00", "a field has an impossible tag"),
        (length_delimited(2, b"\xff\xfe"), "ModelProto.producer_name is not text"),
        (graph_of(length_delimited(5, length_delimited(8, b"a\xc3"))), "TensorProto.name is not text"),
    ],
)
def test_what_is_not_protobuf_is_refused(data: bytes, message: str):
    with pytest.raises(UnreadableModel, match=message) as caught:
        strip(data)
    assert len(str(caught.value).splitlines()) == 3
    assert "m.onnx, byte " in str(caught.value)


def test_repeated_numbers_may_be_packed_or_not():
    packed = graph_of(length_delimited(5, b"\x0a\x02\x03\x04"))
    alone = graph_of(length_delimited(5, b"\x08\x03\x08\x04"))
    assert parse(strip(packed)) == parse(strip(alone))


def test_nodes_are_counted_before_parsing_wherever_they_are():
    limits = dataclasses.replace(DEFAULT_LIMITS, nodes=4)
    strip(model(nested_ifs(3, onnx.NodeProto())).SerializeToString(), limits)
    with pytest.raises(TooManyNodes, match="too many nodes") as caught:
        strip(model(nested_ifs(4, onnx.NodeProto())).SerializeToString(), limits)
    assert str(caught.value) == (
        "FT202: the model has too many nodes (at m.onnx)\n"
        "  expected at most 4 nodes; got more\n"
        "  hint: raise Limits.nodes if you trust the model"
    )


def test_fields_are_counted_because_protobuf_makes_them_much_larger():
    limits = dataclasses.replace(DEFAULT_LIMITS, nodes=4)
    empty_initializers = graph_of(b"\x2a\x00" * (4 * wire.FIELDS_PER_NODE))
    with pytest.raises(TooManyNodes, match="too many fields"):
        strip(empty_initializers, limits)


def test_subgraphs_nest_as_deep_as_the_limit():
    limits = dataclasses.replace(DEFAULT_LIMITS, depth=3)
    strip(model(nested_ifs(3, onnx.NodeProto())).SerializeToString(), limits)
    with pytest.raises(NestingTooDeep, match="got 4 subgraphs"):
        strip(model(nested_ifs(4, onnx.NodeProto())).SerializeToString(), limits)


def test_types_nest_no_deeper_than_protobuf_allows():
    kind = b""
    for _ in range(2000):  # TypeProto.sequence_type.elem_type: a recursive walk would run out of stack
        kind = length_delimited(4, length_delimited(1, kind))
    value_info = length_delimited(11, length_delimited(2, kind))
    with pytest.raises(NestingTooDeep):
        strip(graph_of(value_info))


def test_what_protobuf_cannot_parse_at_once_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wire, "STRUCTURE_BYTES", 100)
    large_name = model(helper.make_node("Relu", ["x"], ["y" * 200])).SerializeToString()
    with pytest.raises(FileTooLarge, match="larger than protobuf can parse"):
        strip(large_name)
