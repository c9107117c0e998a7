"""Vectors of the processor as values in kernels, where LLVM does not vectorise loops over numbers by itself.

A vector has one number in each of its lanes.  Kernels read vectors from arrays with ``load`` and ``repeat``, add,
subtract and multiply them lane by lane, and write them with ``store``.  A product may be fused with a sum, but nothing
is reordered.  So the bits of a lane do not depend on the other lanes or their number.  Places in arrays are flat
offsets, as the sign of an index would be checked, which takes longer than the arithmetic.  The code uses LLVM's
generic vectors, for any processor.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from simstudy.kernels.jit import inlined
from simstudy.kernels.settings import VECTOR_BYTES

# Typed as Any: Numba has no type for the result of the decorator.
_operation: Callable[..., Any] = intrinsic
_FLAGS = ("nsz", "contract")


def lanes(itemsize: int) -> int:
    """Return the number of lanes of vectors of numbers of this many bytes."""
    return VECTOR_BYTES // itemsize


class Vector(types.Type):
    """Numba's type of vectors of float32 or float64 numbers."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype, element = dtype, ir.FloatType() if dtype == types.float32 else ir.DoubleType()
        self.code = ir.VectorType(element, lanes(dtype.bitwidth // 8))
        super().__init__(f"Vector({dtype})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.code)


def _spread(builder: ir.IRBuilder, number: ir.Value, code: ir.VectorType) -> ir.Value:
    first = builder.insert_element(ir.Constant(code, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), code.count), None))


def _at(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any, code: ir.Type) -> ir.Value:
    """Return a pointer to an LLVM type at the array and offset that are the first two arguments."""
    data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.bitcast(builder.gep(data, [arguments[1]]), code.as_pointer())


@_operation
def load(_context, array, offset):  # type: ignore[no-untyped-def]
    """Return numbers offset, offset + 1, … of a contiguous array as a vector, without a check of bounds."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        vector = builder.load(_at(context, builder, signature, arguments, Vector(array.dtype).code))
        vector.align = array.dtype.bitwidth // 8
        return vector

    return Vector(array.dtype)(array, types.intp), generate


@_operation
def lanes_of(_context, array):  # type: ignore[no-untyped-def]
    """Return the number of lanes of a vector of numbers of an array, as a compile-time constant."""
    # If the distance between keys was not constant, pointers were kept in memory for lack of registers.
    width = lanes(array.dtype.bitwidth // 8)
    return types.intp(array), lambda context, *_: context.get_constant(types.intp, width)


@_operation
def repeat(_context, array, offset):  # type: ignore[no-untyped-def]
    """Return a vector with one number of a contiguous array in all lanes, without a check of bounds."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = signature.return_type.code
        return _spread(builder, builder.load(_at(context, builder, signature, arguments, code.element)), code)

    return Vector(array.dtype)(array, types.intp), generate


@_operation
def store(_context, array, offset, vector):  # type: ignore[no-untyped-def]
    """Set numbers offset, offset + 1, … of a contiguous array to the lanes of a vector."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        place = _at(context, builder, signature, arguments, vector.code)
        builder.store(arguments[2], place).align = array.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@_operation
def add_in_float64(_context, array, offset, vector):  # type: ignore[no-untyped-def]
    """Add the lanes of a vector to numbers offset, offset + 1, … of a float64 array."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = ir.VectorType(ir.DoubleType(), vector.code.count)
        place = _at(context, builder, signature, arguments, code)
        before = builder.load(place)
        lanes_added = arguments[2] if code == vector.code else builder.fpext(arguments[2], code)
        stored = builder.store(builder.fadd(before, lanes_added), place)
        before.align = stored.align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), generate


@_operation
def spread(_context, number):  # type: ignore[no-untyped-def]
    """Return a vector with a number in all lanes."""
    kind = Vector(number)
    return kind(number), lambda _, builder, _signature, arguments: _spread(builder, arguments[0], kind.code)


@_operation
def at_least(_context, vector, lowest):  # type: ignore[no-untyped-def]
    """Return the lanewise maximum of two vectors, NaN where the first is NaN."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        # A comparison with NaN is false, so NaN passes.
        return builder.select(builder.fcmp_ordered("<", *arguments), arguments[1], arguments[0])

    return vector(vector, vector), generate


@_operation
def where(_context, flags, offset, vector, other):  # type: ignore[no-untyped-def]
    """Return lanes of a vector where the bytes from an offset of a contiguous array are not 0, else of another."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = ir.VectorType(ir.IntType(8), vector.code.count)
        found = builder.load(_at(context, builder, signature, arguments, code))
        found.align = 1
        chosen = builder.icmp_unsigned("!=", found, ir.Constant(code, None))
        return builder.select(chosen, arguments[2], arguments[3])

    return vector(flags, types.intp, vector, vector), generate


@_operation
def times_power(_context, vector, powers):  # type: ignore[no-untyped-def]
    """Return numbers times 2^k, k in the low bits of ``powers``; exact for normal numbers and NaN without payload."""
    size, bits = vector.dtype.bitwidth, ir.VectorType(ir.IntType(vector.dtype.bitwidth), vector.code.count)
    width = ir.Constant(bits, [{32: 23, 64: 52}[size]] * bits.count)

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        number, power = (builder.bitcast(each, bits) for each in arguments)
        return builder.bitcast(builder.add(number, builder.shl(power, width)), vector.code)

    return vector(vector, powers), generate


def _define(operation: Callable[[Any, Any], Any], instruction: str) -> None:
    """Define an operator for two vectors, or a vector and a number of its type."""

    @type_callable(operation)
    def _type(_context):  # type: ignore[no-untyped-def]
        def result(left, right):  # type: ignore[no-untyped-def]
            for vector, other in ((left, right), (right, left)):
                if isinstance(vector, Vector) and other in (vector, vector.dtype):
                    return vector
            return None

        return result

    def lower(_context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = signature.return_type.code
        sides = [side if side.type == code else _spread(builder, side, code) for side in arguments]
        return getattr(builder, instruction)(*sides, flags=_FLAGS)

    for pair in ((Vector, Vector), (Vector, types.Float), (types.Float, Vector)):
        lower_builtin(operation, *pair)(lower)


for _symbol, _instruction in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define(_symbol, _instruction)


@inlined
def store_four(array, offset, width, a, b, c, d):  # type: ignore[no-untyped-def]
    """Store four vectors, ``width`` numbers apart."""
    store(array, offset, a)
    store(array, offset + width, b)
    store(array, offset + 2 * width, c)
    store(array, offset + 3 * width, d)
