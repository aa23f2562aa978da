"""`replay`: calls as one graph that is timed, against the fake driver."""

import pytest

DEVICE = "cuda:0 (Fake 0, compute capability 9.0)"


def test_a_replay_runs_its_calls_in_order_and_tells_their_seconds(python, make_chain):
    out, _ = python(
        """
        model = load()
        a, b, c = tensor([1]), tensor([0]), tensor([0])
        calls = [(model, (a,), (b,)), (model, (b,), (c,))]
        print(replay(calls, 3, 4), logged(), b.to_numpy(), c.to_numpy())
        print(replay([], 1, 1), replay(calls, 1, 0))
        """,
        make_chain("double", "negate"),
    )
    launches = " ".join(12 * ["launch"])
    assert out.splitlines() == [
        f"[0.012, 0.012, 0.012, 0.012] {launches} graph{6 * ' graph_launch'} [-2.] [4.]",
        "[] []",
    ]


def test_a_replay_of_what_cannot_be(python, make_chain):
    out, _ = python(
        """
        model = load()
        a, b = tensor([1]), tensor([0])
        other = InferenceSession([Accelerator(1)]).load(sys.argv[1])
        far = Buffer.from_numpy(np.float32([1])).to(Accelerator(1))
        fails(InputError, lambda: replay([(model, (a,), (b,)), (other, (far,), (far.copy(),))]))
        fails(InputError, lambda: replay([(model, (a,), (a,))]))
        fails(InputError, lambda: replay([(model, (a,), ())]))
        """,
        make_chain("double", "negate"),
        DEVICES=2,
    )
    assert out.splitlines() == [
        "replay: wanted models on one device, got models on several",
        "output 'y': wanted memory of its own, got memory of input 'x'",
        "execute: wanted 1 outputs (y), got 0",
    ]


def test_a_replay_that_fails(python, make_chain):
    out, _ = python(
        """
        model = load()
        a, b = tensor([1]), tensor([0])
        replay([(model, (a,), (b,))], 1, 1)
        ctypes.CDLL(None).setenv(b"FAKE_CUDA_FAIL", b"cuEventRecord", 1)
        fails(DeviceError, lambda: replay([(model, (a,), (b,))], 1, 1))
        """,
        make_chain("double", "negate"),
    )
    assert out.startswith(f"{DEVICE}: replaying a graph: CUDA_ERROR_INVALID_VALUE")


def test_a_replay_on_a_cpu_is_refused(doubler, four):
    from heddle.runtime import DeviceError, replay

    with pytest.raises(DeviceError) as caught:
        replay([(doubler, (four,), (four.copy(),))])
    message = "replay: wanted models on a CUDA device, got one on cpu:0"
    assert str(caught.value) == message
