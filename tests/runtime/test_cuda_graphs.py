"""Routines as CUDA graphs, against the fake driver."""

import pytest

from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Dispatch,
    Kernel,
    Launch,
    Program,
    Routine,
    Symbol,
    Tensor,
)
from heddle.runtime.artifact_writer import write

DEVICE = "cuda:0 (Fake 0, compute capability 9.0)"


@pytest.fixture
def chain(make_chain):
    """y = 2 * -(2 * x), in three steps."""
    return make_chain("double", "negate", "double")


@pytest.fixture
def same_pointers():
    """Two steps that both write y = 2 * x, and nothing else."""
    size = ("mul", "n", 4)
    code = (Code("sm_90a", "cubin", b"FAKE\nkernel k double 2 1\nend\n", symbol="k"),)
    step = Dispatch(0, (0, 1), ("n",), ((1, 1, 1),), "n", "twice")
    buffers = (Buffer("input", size), Buffer("output", size))
    kernels = (Kernel("double", code, launches=(Launch((32, 1, 1)),)),)
    program = Program("cuda", kernels, buffers, Routine(()), Routine((step, step)))
    tensor = {"dtype": "float32", "shape": ("n",)}
    record = ArtifactRecord(
        name="hand",
        symbols=(Symbol("n", 0, 1024),),
        inputs=(Tensor("x", **tensor),),
        outputs=(Tensor("y", **tensor),),
        weights=(),
        constants=(),
        programs=(program,),
        provenance=(),
    )
    return write(record)


def test_the_second_call_with_the_same_buffers_makes_a_graph(python, chain):
    out, _ = python(
        """
        model = load()
        source, target = tensor([1, 2, 3]), tensor([0, 0, 0])
        for _ in range(4):
            model.execute(source, out=[target])
            print(target.to_numpy(), logged())
        """,
        chain,
    )
    results = "[ -4.  -8. -12.]"
    eager = "launch launch launch"
    assert out.splitlines() == [
        f"{results} {eager}",
        f"{results} {eager} graph graph_launch",
        f"{results} graph_launch",
        f"{results} graph_launch",
    ]


def test_a_graph_reads_what_its_buffers_hold_now(python, chain):
    out, _ = python(
        """
        model = load()
        source, target = tensor([0]), tensor([0])
        for value in range(1, 6):
            load(weights={}).execute(tensor([value]), out=[source])
            model.execute(source, out=[target])
            print(*target.to_numpy(), end=" ")
        """,
        chain,
    )
    assert out.split() == ["16.0", "32.0", "48.0", "64.0", "80.0"]


def test_outputs_that_are_held_are_never_written_again(python, chain):
    out, _ = python(
        """
        model = load()
        held = [model.execute(np.float32([value, value]))[0] for value in range(100)]
        wrong = [i for i, y in enumerate(held) if list(y.to_numpy()) != [-4 * i, -4 * i]]
        print(wrong)
        """,
        chain,
    )
    assert out == "[]\n"


def test_each_shape_and_each_set_of_buffers_has_its_own_graph(python, chain):
    out, _ = python(
        """
        model = load()
        pairs = [(tensor([n] * n), tensor([0] * n)) for n in (1, 2, 3, 3)]
        for _ in range(3):
            for source, target in pairs:
                model.execute(source, out=[target])
        print(logged().split().count("graph"), [y.to_numpy().tolist() for _, y in pairs])
        """,
        chain,
    )
    assert out == "4 [[-4.0], [-8.0, -8.0], [-12.0, -12.0, -12.0], [-12.0, -12.0, -12.0]]\n"


def test_graphs_that_are_not_used_make_room(python, chain):
    out, _ = python(
        """
        model = load()
        pairs = [(tensor([n]), tensor([0])) for n in range(70)]
        for source, target in pairs:
            for _ in range(2):
                model.execute(source, out=[target])
        logged()
        for n in (69, 0):
            model.execute(pairs[n][0], out=[pairs[n][1]])
            print(logged())
        """,
        chain,
    )
    assert out.splitlines() == ["graph_launch", "launch launch launch"]


def test_one_step_needs_no_graph(python, make_cuda):
    _, log = python(
        """
        model, y = load(), Buffer("float32", (4,), Accelerator())
        for _ in range(3): model.execute(x, out=[y])
        """,
        make_cuda("double"),
    )
    assert "graph" not in log


def test_a_value_that_is_refused_in_a_graph_names_its_step(python, make_chain):
    out, _ = python(
        """
        model = load()
        good, bad, target = tensor([1]), tensor([-6]), tensor([0])
        for _ in range(3):
            model.execute(bad, out=[target])
            fails(InputError, target.synchronize)
            model.execute(good, out=[target])
            print(*target.to_numpy())
        """,
        make_chain("double", "check", "negate"),
    )
    assert out == 3 * "step 1: wanted an index inside a size of 1, got -12\n-2.0\n"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("cuStreamBeginCapture_v2", "capturing a graph of 3 steps: CUDA_ERROR_INVALID_VALUE"),
        ("cuStreamEndCapture", "capturing a graph of 3 steps: error 901"),
        ("cuGraphInstantiateWithFlags", "capturing a graph of 3 steps: CUDA_ERROR_INVALID_VALUE"),
        ("capture", "launching kernel double for step 0: error 900"),
    ],
)
def test_a_graph_that_cannot_be_made_is_done_without(python, chain, function, message):
    out, log = python(
        """
        model = load()
        source, target = tensor([1]), tensor([0])
        for _ in range(6):
            model.execute(source, out=[target])
            print(*target.to_numpy(), len(model.diagnostics))
        print(model.diagnostics)
        """,
        chain,
        FAIL=function,
    )
    *calls, said = out.splitlines()
    assert said.startswith(
        f"no CUDA graph of 3 steps, which are launched one by one: {DEVICE}: {message}"
    )
    assert calls == ["-4.0 0", *(5 * [f"-4.0 {len(said)}"])]
    assert log.count("graph_launch") == 0


def test_a_program_whose_captures_fail_does_not_try_for_ever(python, chain):
    out, _ = python(
        """
        model = load()
        source, target = tensor([1]), tensor([0])
        tell = lambda name: ctypes.CDLL(None).setenv(b"FAKE_CUDA_FAIL", name, 1)
        tell(b"")
        for failures in (2, 3):
            target = tensor([0])
            model = load()
            model.execute(source, out=[target])
            tell(b"cuGraphInstantiateWithFlags")
            for _ in range(failures): model.execute(source, out=[target])
            tell(b"")
            logged()
            model.execute(source, out=[target])
            print(logged(), *target.to_numpy(), model.diagnostics != "")
        """,
        chain,
    )
    again, no_more = out.splitlines()
    assert again == "launch launch launch graph graph_launch -4.0 True"
    assert no_more == "launch launch launch -4.0 True"


def test_a_graph_that_cannot_be_launched(python, chain):
    out, _ = python(
        """
        model = load()
        source, target = tensor([1]), tensor([0])
        model.execute(source, out=[target])
        fails(DeviceError, lambda: model.execute(source, out=[target]))
        """,
        chain,
        FAIL="cuGraphLaunch",
    )
    assert out.startswith(f"{DEVICE}: launching the graph of 3 steps: CUDA_ERROR_INVALID_VALUE")


def test_a_launch_that_fails_while_a_graph_is_captured(python, chain):
    out, _ = python(
        """
        model = load()
        source, target = tensor([1]), tensor([0])
        model.execute(source, out=[target])
        ctypes.CDLL(None).setenv(b"FAKE_CUDA_LAUNCH", b"1", 1)
        fails(DeviceError, lambda: model.execute(source, out=[target]))
        """,
        chain,
    )
    assert out == (
        f"{DEVICE}: launching kernel double for step 0: CUDA_ERROR_INVALID_VALUE"
        " (as the fake was told)\n"
    )


def test_many_threads_with_graphs_of_their_own(python, chain):
    python(
        """
        model = load()
        import threading
        wrong = []
        def work(seed):
            values = np.random.default_rng(seed).random(8, np.float32)
            source, target = tensor(values), tensor(values)
            for _ in range(30):
                model.execute(source, out=[target])
                if not np.array_equal(target.to_numpy(), -4 * values): wrong.append(seed)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert wrong == []
        """,
        chain,
    )


def test_many_threads_with_the_same_buffers(python, same_pointers):
    """Calls of one input and one output have no memory that tells them apart."""
    python(
        """
        model = load()
        import threading
        source, targets = tensor([1, 2]), [tensor([0, 0]) for _ in range(60)]
        gates = [threading.Barrier(3) for _ in targets]
        def work():
            for gate, target in zip(gates, targets):
                gate.wait()
                for _ in range(3): model.execute(source, out=[target])
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert all(target.to_numpy().tolist() == [2, 4] for target in targets)
        """,
        same_pointers,
    )
