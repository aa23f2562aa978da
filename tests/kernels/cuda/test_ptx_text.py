"""What of PTX is read, and what is refused."""

import pytest
from emulator.memory import EmulatorError
from ptx.machine import Program
from ptx.probe import kernel
from ptx.text import Address, Immediate, Register, Symbol, parse

HEAD = """.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 stages[];

.visible .entry kernel(
	.param .u64 .ptr .align 1 kernel_param_0,
	.param .u64 kernel_param_1,
	.param .align 64 .b8 kernel_param_2[128]
)
.reqntid 384
.maxnreg 168
.explicitcluster
.reqnctapercluster 2
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<4>;
	// demoted variable
	.shared .align 8 .u64 found_$_0;
"""


def test_a_head():
    found = parse(HEAD + "ret;\n}\n")
    sizes = {name: (one.size, one.alignment) for name, one in found.parameters.items()}
    assert sizes == {
        "kernel_param_0": (8, 8),
        "kernel_param_1": (8, 8),
        "kernel_param_2": (128, 64),
    }
    assert found.arrays == {"stages": (0, 1024), "found_$_0": (8, 8)}
    assert (found.threads, found.registers, found.cluster) == (384, 168, 2)


def test_operands():
    text = "@!%p1 x.y [%rd1+-8], {%r1, _}, 0f3F800000, -3, %r2, stages;"
    line, _ = parse(f"{HEAD}{text}ret;}}").instructions
    assert line.guard == (Register("%p1", 1), False)
    assert line.operands == (
        Address(Register("%rd1", 64), -8),
        (Register("%r1", 32), None),
        Immediate(0x3F800000),
        Immediate(-3),
        Register("%r2", 32),
        Symbol("stages"),
    )


def test_coordinates_of_a_tensor():
    (line, _) = parse(HEAD + "copy [stages+64], [%rd1, {%r1, %r2}];ret;}").instructions
    assert line.operands[0] == Address(Symbol("stages"), 64)
    assert line.operands[1].coordinates == (Register("%r1", 32), Register("%r2", 32))


def test_names_of_inner_blocks_are_their_own():
    inner = "{ .reg .pred P; AGAIN: set P, %r1; @P bra.uni AGAIN; }\n"
    found = parse(HEAD + inner * 2 + "ret;}")
    first, second = found.labels
    assert first != second
    assert found.instructions[1].operands == (Symbol(first),)
    assert found.instructions[3].operands == (Symbol(second),)
    assert found.instructions[0].operands[0] != found.instructions[2].operands[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "ret;}\n.visible .entry other() {\n}", "cannot read"),
        (HEAD + "mov.u32 P, %tid.x;ret;}", "wanted a register for a result"),
        (HEAD + "@%p7 bra $L;ret;}", "nobody declared the register %p7"),
        (HEAD.replace(".param .u64 k", ".param .v4 .u64 k") + "ret;}", "cannot read the parameter"),
        (kernel("$L: 5 apples;"), "cannot read '5 apples'"),
        ("nothing", "wanted one kernel"),
    ],
)
def test_refused(text, says):
    with pytest.raises(EmulatorError, match=says):
        Program(text)
