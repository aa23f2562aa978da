"""How kernels are started on a GPU: a launch for each architecture, tensor maps, scratch memory."""

import pytest

from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Copy,
    Dispatch,
    Kernel,
    Launch,
    Program,
    Routine,
    Symbol,
    Tensor,
    TensorMap,
)
from heddle.runtime.artifact_writer import write

PLAIN = Launch((128, 1, 1))
ROWS = TensorMap(0, 4, ("n", 8), (32,), (2, 8), 32)
"""x as `n` rows of 8 floats, in boxes of 2 rows."""


def kernel(launches, action="double", buffers=2):
    """Code for sm_80 with the first launch, and for sm_90a with the last."""

    def code(arch, number):
        maps = launches[number].tensor_maps
        text = f"FAKE\nkernel k {action} {buffers} 1 {maps}\nend\n"
        return Code(arch, "cubin", text.encode(), symbol="k", launch=number)

    codes = (code("sm_80", 0), code("sm_90a", len(launches) - 1))
    return Kernel(action, codes, launches=tuple(launches))


def artifact(kernels, steps, buffers=(), arena=0, overlaps=False):
    size = ("mul", ("mul", "n", 8), 4)
    rows = (Buffer("input", size), Buffer("output", size), *buffers)
    main = Routine(steps, arena=arena)
    program = Program("cuda", kernels, rows, Routine(()), main, overlaps=overlaps)
    tensor = {"dtype": "float32", "shape": ("n", 8)}
    record = ArtifactRecord(
        name="hand",
        symbols=(Symbol("n", 0, 1024),),
        inputs=(Tensor("x", **tensor),),
        outputs=(Tensor("y", **tensor),),
        weights=(),
        constants=(),
        programs=(program,),
    )
    return write(record)


def dispatch(grids, maps=(), buffers=(0, 1), kernel=0):
    return Dispatch(kernel, buffers, (("mul", "n", 8),), grids, "n", "twice at m.py:1", maps)


CALL = """
    x = np.arange(4 * 8, dtype=np.float32).reshape(4, 8)
    (y,) = load().execute({x})
    assert (y.to_numpy() == 2 * x).all()
"""


def launches(log):
    return [line.split(" dims")[0].removeprefix("launch k ") + line.split(" dims 32")[1]
            for line in log.splitlines() if line.startswith("launch")]  # fmt: skip


@pytest.mark.parametrize(
    ("capability", "started"),
    [
        (80, "grid 4 1 1 block 128 1 1 shared 0 stream 16"),
        (90, "grid 8 1 1 block 384 1 1 shared 1024 stream 16 cluster 2 1 1"),
    ],
)
def test_each_architecture_has_its_own_launch(python, capability, started):
    wide = Launch((384, 1, 1), shared=1024, cluster=2)
    grids = (("n", 1, 1), (("mul", "n", 2), 1, 1))
    made = artifact((kernel([PLAIN, wide]),), (dispatch(grids),))
    _, log = python(CALL.format(x="x"), made, CAPABILITY=capability)
    assert launches(log) == [started]


@pytest.mark.parametrize(("resident", "cluster", "blocks"), [(1, 1, 132), (2, 8, 264), (1, 8, 128)])
def test_a_grid_is_cut_to_what_may_be_resident(python, resident, cluster, blocks):
    launch = Launch((128, 1, 1), cluster=cluster, resident=resident)
    for tasks, expected in ((8, 8), (8000, blocks)):
        made = artifact((kernel([launch]),), (dispatch(((tasks, 1, 1),)),))
        _, log = python(CALL.format(x="x"), made)
        assert launches(log)[0].startswith(f"grid {expected} 1 1 ")


def test_a_kernel_may_overlap_the_kernel_before_it(python):
    kernels = (kernel([Launch((128, 1, 1), overlaps=True)]),)
    grid = (("n", 1, 1),)
    made = artifact(kernels, (dispatch(grid), dispatch(grid)))
    _, log = python(CALL.format(x="x"), made)
    first, second = launches(log)
    assert "attribute" not in first
    assert second == f"{first} attribute 6 1"
    _, log = python(CALL.format(x="x"), made, VERSION=12020)  # whose graphs know nothing of it
    assert launches(log) == [first, first]


def test_a_run_may_overlap_what_is_in_front_of_it(python):
    """Not as a graph, which begins with it: the driver starts that behind everything."""
    kernels, grid = (kernel([Launch((128, 1, 1), overlaps=True)]),), (("n", 1, 1),)
    made = artifact(kernels, (dispatch(grid), dispatch(grid)), overlaps=True)
    call = """
    x = Buffer.from_numpy(np.ones((4, 8), np.float32)).to(Accelerator())
    model, out = load(), Buffer("float32", (4, 8), Accelerator())
    for _ in range(3):
        model.execute(x, out=[out])
    """
    _, log = python(call, made)
    plain, captured = [True, True], [False, True]
    assert [line.endswith(" attribute 6 1") for line in launches(log)] == plain + captured


def test_a_copy_that_is_left_out_does_not_part_two_kernels(python):
    """As a decoder's caches: an output that is its input's memory is not copied."""
    kernels = (kernel([Launch((128, 1, 1), overlaps=True)]),)
    size, grid = ("mul", ("mul", "n", 8), 4), (("n", 1, 1),)
    steps = (
        dispatch(grid, buffers=(0, 2)),
        Copy(0, 1, size, "copy at m.py:2"),
        dispatch(grid, buffers=(2, 3)),
    )
    arena = ("mul", ("ceildiv", size, 64), 64)
    made = artifact(kernels, steps, (Buffer("arena", size), Buffer("arena", size, offset=arena)),
                    ("mul", arena, 2))  # fmt: skip
    call = """
    x = Buffer.from_numpy(np.arange(4 * 8, dtype=np.float32).reshape(4, 8)).to(Accelerator())
    load().execute(x, out=[{out}])
    """
    for out, overlaps in (("x", 1), ("x.copy()", 0)):
        _, log = python(call.format(out=out), made)
        assert log.count("attribute 6 1") == overlaps


def test_tensor_maps_say_where_boxes_are(python):
    launch = Launch((128, 1, 1), tensor_maps=2)
    columns = TensorMap(1, 4, (2, "n", 4), (16, 32), (1, 256, 4))
    made = artifact((kernel([PLAIN, launch]),), (dispatch((("n", 1, 1),) * 2, (ROWS, columns)),))
    _, log = python(CALL.format(x="x"), made)
    assert [line for line in log.splitlines() if line.startswith("tensor map")] == [
        "tensor map type 2 swizzle 1 shape 8 4 strides 32 box 8 2",
        "tensor map type 2 swizzle 0 shape 4 4 2 strides 32 16 box 4 256 1",
    ]
    assert launches(log) == ["grid 4 1 1 block 128 1 1 shared 0 stream 16 map map"]
    _, log = python(CALL.format(x="x"), made, CAPABILITY=80)
    assert launches(log) == ["grid 4 1 1 block 128 1 1 shared 0 stream 16"]


def test_a_map_that_cannot_be_is_zeros(python):
    launch = Launch((128, 1, 1), tensor_maps=2)
    odd = TensorMap(1, 4, (2, "n", 4), (8, 32), (1, 1, 4))
    made = artifact((kernel([launch]),), (dispatch((("n", 1, 1),), (ROWS, odd)),))
    unaligned = """
        held = Buffer.from_numpy(np.arange(33, dtype=np.float32)).to(Accelerator())
        class View:
            pointer = held.__cuda_array_interface__["data"][0] + 4
            __cuda_array_interface__ = {
                "shape": (4, 8), "typestr": "<f4", "data": (pointer, False), "version": 3,
            }
        (y,) = load().execute(View())
        assert (y.to_numpy() == 2 * np.arange(1, 33).reshape(4, 8)).all()
    """
    _, log = python(unaligned, made)
    assert launches(log) == ["grid 4 1 1 block 128 1 1 shared 0 stream 16 no map no map"]


def test_a_map_that_leaves_its_buffer_is_refused(python):
    launch = Launch((128, 1, 1), tensor_maps=1)
    far = TensorMap(0, 4, (("add", "n", 1), 8), (32,), (2, 8))
    made = artifact((kernel([launch]),), (dispatch((("n", 1, 1),), (far,)),))
    out, _ = python("fails(InputError, lambda: load().execute(np.ones((4, 8), np.float32)))", made)
    assert out == (
        "'twice at m.py:1', tensor map of buffer 0: wanted sizes and strides of 0 or more inside"
        " 128 bytes, got 160 bytes\n"
    )
    negative = TensorMap(0, 4, (("sub", "n", 5), 8), (32,), (2, 8))
    made = artifact((kernel([launch]),), (dispatch((("n", 1, 1),), (negative,)),))
    out, _ = python("fails(InputError, lambda: load().execute(np.ones((4, 8), np.float32)))", made)
    assert out.endswith("inside 128 bytes, got others\n")


def test_encoding_that_fails_is_told(python):
    launch = Launch((128, 1, 1), tensor_maps=1)
    made = artifact((kernel([launch]),), (dispatch((("n", 1, 1),), (ROWS,)),))
    call = "fails(DeviceError, lambda: load().execute(np.ones((4, 8), np.float32)))"
    out, _ = python(call, made, FAIL="cuTensorMapEncodeTiled")
    assert out.startswith("cuda: cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE")


def test_workspace_and_counters(python):
    """The workspace is arena; counters are zero at each kernel's start, for any size of arena."""
    size = ("mul", ("mul", "n", 8), 4)
    extra = (Buffer("arena", size), Buffer("counters", 4096))
    step = dispatch((("n", 1, 1),), buffers=(0, 1, 2, 3))
    arena = ("mul", ("ceildiv", size, 64), 64)
    made = artifact((kernel([PLAIN], "scratch", 4),), (step,), extra, arena)
    python(
        """
        model = load()
        for n in (4, 1, 100, 7):
            x = np.arange(n * 8, dtype=np.float32).reshape(n, 8)
            for _ in range(3):
                (y,) = model.execute(x)
                assert (y.to_numpy() == 2 * x).all()
        """,
        made,
    )
