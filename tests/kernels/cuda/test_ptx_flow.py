"""The order in which lanes go through PTX, where they meet again, and what they may read."""

import numpy as np
import pytest
from emulator.memory import EmulatorError
from ptx import machine
from ptx.flow import blocks_of
from ptx.probe import kernel, run
from ptx.text import parse


def order(body: str) -> list[str]:
    """The names of the blocks, each of which an instruction gives."""
    found = blocks_of(parse(kernel(body)))
    names = [
        [line.operands[0].name for line in b.instructions if line.name == "name"] for b in found
    ]
    return [name[0] for name in names if name]


def test_a_join_in_front_of_its_branches():
    found = order("""
      setp.eq.b32 %p1, %r0, 0; bra.uni $START;
      $JOIN: name join; bra.uni $END;
      $START: @%p1 bra $LEFT; name right; bra.uni $JOIN;
      $LEFT: name left; bra.uni $JOIN;
      $END: name end;
    """)
    assert found.index("join") > max(found.index("left"), found.index("right"))
    assert found[-1] == "end"


def test_a_loop_is_left_after_its_body():
    found = order("""
      setp.eq.b32 %p1, %r0, 0; name start;
      $HEAD: name head; @%p1 bra $OUT; name body;
      $INNER: name inner; @%p1 bra $INNER; bra.uni $HEAD;
      $OUT: name out;
    """)
    assert found == ["start", "head", "body", "inner", "out"]


def test_lanes_that_part_meet_again():
    x = np.arange(32, dtype=np.int32)
    found = run(
        """
        ld.global.b32 %r10, [%rd3];
        setp.lt.s32 %p1, %r10, 7;
        @%p1 bra $LESS;
        add.s32 %r11, %r10, 100;
        bra.uni $JOIN;
        $LESS: mov.b32 %r11, -1;
        $JOIN: shfl.sync.bfly.b32 %r12, %r11, 1, 31, -1;
        st.global.b32 [%rd4], %r12;
        """,
        x,
    )
    wanted = np.where(x < 7, -1, x + 100)
    np.testing.assert_array_equal(found, wanted[x ^ 1])


def test_loops_of_lanes_end_one_by_one():
    x = np.arange(64, dtype=np.int32)
    found = run(
        """
        ld.global.b32 %r10, [%rd3];
        mov.b32 %r11, 0;
        $L: setp.le.s32 %p1, %r10, 0;
        @%p1 bra $OUT;
        add.s32 %r11, %r11, %r10;
        add.s32 %r10, %r10, -1;
        bra.uni $L;
        $OUT: st.global.b32 [%rd4], %r11;
        """,
        x,
        grid=2,
    )
    np.testing.assert_array_equal(found, x * (x + 1) // 2)


def test_a_loop_that_does_not_end(monkeypatch):
    monkeypatch.setattr(machine, "MOST_BLOCKS", 100)
    with pytest.raises(EmulatorError, match="does not end: 100 blocks"):
        run("$L: bra.uni $L;", np.zeros(32, np.int32))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("add.s32 %r11, %r10, 1;", "reads %r10, which may not be written"),
        (
            "setp.eq.b32 %p1, %r0, 0; @%p1 bra $L; mov.b32 %r10, 1;"
            " $L: st.global.b32 [%rd4], %r10;",
            "reads %r10, which may not be written",
        ),
        ("@%p1 bra $L; $L:", "reads %p1, which may not be written:\n    a branch"),
        ("bra.uni $NOWHERE;", "no such label"),
        ("setp.eq.b32 %p1, %r0, 0; @%p1 mov.b32 %r3, 1;", "predicates of branches alone"),
        ("surprise.b32 %r10, %r0;", "no row for surprise.b32"),
        ("setp.eq.b32 %p1, %r0, 0; @%p1 bra.uni $L; $L:", "part at bra.uni"),
    ],
)
def test_refused(body, says):
    with pytest.raises(EmulatorError, match=says):
        run(body, np.zeros(32, np.int32))
