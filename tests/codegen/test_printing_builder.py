"""What the builder prints is what llvmlite's own builder makes, as LLVM reads it."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import llvmlite.ir as ir
import pytest

from foretell.codegen.printing_builder import PrintingBuilder
from foretell.codegen.types import FLOAT, I32, I64, POINTER

PAIR = ir.VectorType(FLOAT, 2)


def _every_instruction(build: ir.IRBuilder, function: ir.Function) -> None:
    address, number = function.args
    for operation in (build.add, build.sub, build.mul):
        number = operation(number, ir.Constant(I64, 3))
    number = build.neg(build.add(number, number, flags=("nsw", "nuw")))
    place = build.gep(build.gep(address, [number], source_etype=FLOAT, inbounds=True), [number], source_etype=I64)
    value = build.load(build.alloca(FLOAT), typ=FLOAT)
    for operation in (build.fadd, build.fsub, build.fmul):
        value = operation(value, build.load(place, typ=FLOAT, align=4), flags=("contract",))
    pair = build.insert_element(ir.Constant(PAIR, ir.Undefined), value, ir.Constant(I32, 0))
    pair = build.shuffle_vector(pair, pair, ir.Constant(ir.VectorType(I32, 2), [0, 3]))
    chosen = build.select(build.icmp_signed("<", number, ir.Constant(I64, 0)), value, ir.Constant(FLOAT, 0.5))
    build.store(build.call(function.module.declare_intrinsic("llvm.fabs", [FLOAT]), [chosen]), place)
    build.store(pair, place, align=8)
    build.call(function, [place, number])
    build.ret_void()


def _as_llvm_reads_it(builder: type[ir.IRBuilder]) -> str:
    module = ir.Module("printed")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I64]), "every")
    _every_instruction(builder(function.append_basic_block("entry")), function)
    names: dict[str, str] = {}
    text = str(llvm.parse_assembly(str(module), llvm.create_context()))
    return re.sub(r"%(v|\.)\d+", lambda found: names.setdefault(found[0], f"%{len(names)}"), text)


def test_llvm_reads_the_same_instructions() -> None:
    assert _as_llvm_reads_it(PrintingBuilder) == _as_llvm_reads_it(ir.IRBuilder)


def test_stores_past_the_caches_say_so() -> None:
    module = ir.Module("streams")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), "stream")
    build = PrintingBuilder(function.append_basic_block("entry"))
    build.stream(ir.Constant(PAIR, [1.0, 2.0]), function.args[0], align=8)
    build.ret_void()
    read = str(llvm.parse_assembly(str(module), llvm.create_context()))
    assert "store <2 x float> <float 1.000000e+00, float 2.000000e+00>, ptr %.1, align 8, !nontemporal !0" in read


def test_what_has_no_effect_is_made_once_in_a_block() -> None:
    module = ir.Module("once")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I64]), "once")
    build = PrintingBuilder(function.append_basic_block("entry"))
    address, number = function.args
    first = build.gep(address, [build.add(number, number)], source_etype=FLOAT)
    assert build.gep(address, [build.add(number, number)], source_etype=FLOAT) is first
    assert build.gep(address, [build.add(number, number)], source_etype=FLOAT, inbounds=True) is not first
    assert build.load(first, typ=FLOAT) is not build.load(first, typ=FLOAT)
    build.position_at_end(build.append_basic_block("after"))
    assert build.gep(address, [build.add(number, number)], source_etype=FLOAT) is not first


def test_what_is_wrong_llvm_says() -> None:
    module = ir.Module("wrong")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER, I64]), "wrong")
    build = PrintingBuilder(function.append_basic_block("entry"))
    build.add(function.args[1], function.args[0])
    build.ret_void()
    with pytest.raises(RuntimeError, match="defined with type 'ptr' but expected 'i64'"):
        llvm.parse_assembly(str(module), llvm.create_context())
