"""Vector math: the elementary functions as LLVM IR, so that compiled code calls no mathematical library.

    math_function(module, "exp", <8 x float>)
        ->  define internal <8 x float> @foretell.exp.v8f32(<8 x float>) alwaysinline

A result is at most 4 units in the last place from the true value, in float32 and in float64, over the whole range,
denormal arguments and results included; `docs/vector-math.md` lists the errors measured. Infinities, NaN and signed
zeros follow IEEE 754. `normal_cdf` has a bound on its absolute error instead. A lane's result does not depend on how
many lanes there are.

The code is straight: special cases are selects, and nothing is gathered from memory. Two things leave the line: angles
too huge for the fast reduction, which read words of 2/pi out of line, and the loops of fmod and of integer powers.

The methods are in `math_exponential`, `math_logarithm`, `math_trigonometry` (with `math_reduction`) and `math_power`,
their polynomials in `math_coefficients`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import llvmlite.ir as ir

from foretell.codegen import math_exponential, math_logarithm, math_power, math_trigonometry
from foretell.codegen.math_lanes import USUAL, Instructions, Lanes, type_name

_UNARY: Mapping[str, Callable[[Lanes], Lanes]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            math_exponential.exp,
            math_exponential.expm1,
            math_exponential.sigmoid,
            math_exponential.tanh,
            math_exponential.sinh,
            math_exponential.cosh,
            math_exponential.erf,
            math_exponential.normal_cdf,
            math_logarithm.log,
            math_logarithm.log1p,
            math_logarithm.asinh,
            math_logarithm.acosh,
            math_logarithm.atanh,
            math_trigonometry.sin,
            math_trigonometry.cos,
            math_trigonometry.tan,
            math_trigonometry.asin,
            math_trigonometry.acos,
            math_trigonometry.atan,
        )
    }
)
_BINARY: Mapping[str, Callable[[Lanes, Lanes], Lanes]] = MappingProxyType(
    {"pow": math_power.pow, "fmod": math_power.fmod}
)
_INTEGER = MappingProxyType({"ipow": math_power.ipow, "upow": math_power.upow})

UNARY_FUNCTIONS = frozenset(_UNARY)
BINARY_FUNCTIONS = frozenset(_BINARY)
MATH_FUNCTIONS = UNARY_FUNCTIONS | BINARY_FUNCTIONS
"""The functions of floats, of one and of two arguments."""
INTEGER_FUNCTIONS = frozenset(_INTEGER)
"""Powers of signed (ipow) and unsigned (upow) integers: two arguments of one integer type."""


def math_function(module: ir.Module, name: str, type: ir.Type, instructions: Instructions = USUAL) -> ir.Function:
    """The internal, always-inlined function `name` on `type`, defined in `module` once for some instructions.

    `type` is float, double, or a vector of them; for `INTEGER_FUNCTIONS` an integer or a vector of integers.
    A target without fused multiply-adds would call a library for one; the bound on errors is the same without.
    """
    assert name in MATH_FUNCTIONS | INTEGER_FUNCTIONS, f"there is no function {name}"
    arity = 1 if name in UNARY_FUNCTIONS else 2
    symbol = f"foretell.{name}.{type_name(type)}" + _suffix(instructions)
    if symbol in module.globals:
        return module.globals[symbol]
    function = ir.Function(module, ir.FunctionType(type, [type] * arity), symbol)
    function.linkage = "internal"
    for attribute in ("alwaysinline", "nounwind"):
        function.attributes.add(attribute)
    builder = ir.IRBuilder(function.append_basic_block())
    body = _UNARY.get(name) or _BINARY.get(name) or _INTEGER[name]
    result = body(*(Lanes(builder, argument, instructions) for argument in function.args))
    builder.ret(result.value)
    return function


def _suffix(instructions: Instructions) -> str:
    return ".avx512" if instructions.avx512 else "" if instructions.fused else ".unfused"


def try_constant_power(builder: ir.IRBuilder, base: ir.Value, exponent: float) -> ir.Value | None:
    """base^exponent in two or three instructions where the exponent is one of 0, 1, 2, 3, 4, -1, -2, 0.5, -0.5."""
    power = math_power.try_constant_power(Lanes(builder, base), exponent)
    return None if power is None else power.value
