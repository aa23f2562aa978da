"""A buffer made of another one: its memory, and what work on it is told of either."""

import numpy as np
import pytest

from heddle.runtime import Buffer

SETUP = """
        model = load()
        one, two = Stream(Accelerator()), Stream(Accelerator())
        device = Buffer.from_numpy(x).to(Accelerator())
"""
WAYS = ("Buffer.from_numpy(y)", "Buffer.from_dlpack(y)", "Buffer.from_numpy(y, dtype='int32')")


@pytest.mark.parametrize("how", WAYS)
def test_work_on_a_buffer_of_a_gpu_is_known_to_all_that_share_it(python, make_chain, how):
    out, _ = python(
        SETUP
        + f"""
        (y,) = model.execute(device, stream=one)
        a = {how}
        print(y.ready, a.ready)
        print(a.to_numpy().view("f4"))
        print(y.ready, a.ready)
        """,
        make_chain("double", "negate"),
    )
    assert out.splitlines() == ["False False", "[-0. -2. -4. -6.]", "True True"]


@pytest.mark.parametrize("how", WAYS[:2])
def test_calls_are_in_order_whichever_of_them_they_are_given(python, make_chain, how):
    out, _ = python(
        SETUP
        + f"""
        y = Buffer("float32", (4,), Accelerator())
        a = {how}
        model.execute(device, out=[a], stream=one)
        (z,) = model.execute(y, stream=two)
        del y
        (w,) = model.execute(a, stream=two)
        print(z.to_numpy(), w.to_numpy())
        """,
        make_chain("double", "negate"),
    )
    assert out == "[ 0.  4.  8. 12.] [ 0.  4.  8. 12.]\n"


def test_a_refusal_is_told_by_either(python, make_chain):
    out, _ = python(
        SETUP
        + """
        (y,) = model.execute(tensor([1, -2, 3, 4]))
        a = Buffer.from_numpy(y)
        for buffer in (a, y):
            try:
                print(buffer.to_numpy())
            except InputError as error:
                print(error)
        """,
        make_chain("check", "double"),
    )
    assert [line[:28] for line in out.splitlines()] == ["step 0: wanted an index insi"] * 2


def test_memory_of_the_host_is_shared():
    y = Buffer.from_numpy(np.arange(4, dtype=np.float32))
    a = Buffer.from_numpy(y, dtype="int32")
    assert np.shares_memory(a.to_numpy(), y.to_numpy())
    assert a.dtype == "int32"
    read_only = np.arange(4.0)
    read_only.flags.writeable = False
    again = Buffer.from_numpy(Buffer.from_numpy(read_only))
    assert not again.to_numpy().flags.writeable
