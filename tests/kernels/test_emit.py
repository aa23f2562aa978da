"""Values with operators: types follow the value, and integers refuse what is for floats."""

import pytest

from heddle.kernels import emit, memory
from heddle.kernels.mlir import context, ir


@pytest.fixture(autouse=True)
def module():
    with context(), ir.Location.unknown():
        made = ir.Module.create()
        with ir.InsertionPoint(made.body):
            yield made


def test_a_number_takes_the_type_of_the_value_beside_it():
    x = emit.constant(emit.memory_type("float64"), 1.5, 4)
    for result in (x + 1, 2 * x, 1 - x, 1 / x, emit.fma(x, 2, x), emit.minimum(x, 3)):
        assert str(result.type) == "vector<4xf64>"


def test_a_scalar_beside_a_vector_is_spread():
    x, y = (emit.constant(emit.memory_type("float32"), 1.5, lanes) for lanes in (8, 1))
    for result in (x + y, y + x, y * x, emit.select(emit.compare("less", x, y), y, x)):
        assert str(result.type) == "vector<8xf32>"
    assert str(emit.compare("equal", y, x).type) == "vector<8xi1>"


@pytest.mark.parametrize(("dtype", "number"), [("uint8", 255), ("int64", -(2**63)), ("bool", 1)])
def test_integer_constants_wrap_into_their_type(dtype, number):
    value = emit.constant(emit.register_type(dtype), number)
    bits = emit.bits_of(value.type)
    assert value.owner.attributes["value"].value % 2**bits == number % 2**bits


def test_shared_constants_are_made_once_and_first(module):
    element = emit.memory_type("float32")
    with emit.shared_constants():
        start, stop = emit.index(0), emit.index(4)
        for _ in emit.loop(start, stop):
            numbers = [emit.constant(element, number, 8) for number in (0.0, -0.0, 1.5)]
            doubled = numbers[2] + 1.5
        again = [emit.constant(element, number, 8) for number in (0.0, -0.0, 1.5)]
    assert again == numbers
    assert len({*numbers, start, stop}) == 5
    assert [*doubled.owner.operands] == [numbers[2]] * 2
    names = [operation.name for operation in module.body]
    assert names == ["arith.constant"] * 6 + ["scf.for"]  # the last one is the loop's step
    assert module.operation.verify()
    assert emit.index(0) != start


def test_operators_for_the_other_kind_are_refused():
    whole, real = emit.index(3), emit.constant(emit.memory_type("float32"), 3)
    with pytest.raises(TypeError, match=r"^this operator is for floats$"):
        whole / 2
    for operate in (lambda x: x // 2, lambda x: x % 2, lambda x: x & 1, lambda x: x << 1):
        with pytest.raises(TypeError, match=r"^this operator is for integers$"):
            operate(real)


def test_wrong_types_of_a_kernel_are_refused():
    whole = emit.constant(emit.integer(32), 3, 4)
    base = emit.dialect("llvm").mlir_zero(emit.pointer_type())
    for attempt, kind, message in (
        (lambda: whole + 0.5, TypeError, "constant: wanted a whole number for i32, got 0.5"),
        (
            lambda: memory.store(whole, base, 0, "float32"),
            TypeError,
            "store: wanted f32 lanes for float32, got i32",
        ),
        (
            lambda: memory.store(whole, base, 0, "bfloat16"),
            TypeError,
            "store: wanted f32 lanes for bfloat16, got i32",
        ),
        (
            lambda: whole > 3,
            TypeError,
            "a value has no order while its kernel is emitted: use emit.compare",
        ),
        (
            lambda: memory.load(base, 0, "float31"),
            ValueError,
            f"dtype: wanted one of {', '.join(emit.ITEM_SIZE)}, got 'float31'",
        ),
    ):
        with pytest.raises(kind) as error:
            attempt()
        assert str(error.value) == message
