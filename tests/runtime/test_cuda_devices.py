"""Several GPUs, and what Heddle has in the memory of each, against the fake driver."""

import pytest

from heddle.runtime.artifact import Weight

WEIGHT = Weight("w", "float32", (4,))


@pytest.mark.parametrize("eager", [0, 1])
def test_two_devices(python, make_chain, eager):
    """Models are bound to a device when they are loaded; copies between devices do not wait."""
    out, log = python(
        """
        session = InferenceSession([Accelerator(0), Accelerator(1)])
        near = session.load(sys.argv[1])
        far = session.load(sys.argv[1], device=Accelerator(1))
        print(near.device, far.device)
        open(os.environ["FAKE_CUDA_LOG"], "a").write("begin\\n")
        (y,) = near.execute(Buffer.from_numpy(x).to(Accelerator(0)), stream=Stream(Accelerator(0)))
        (z,) = far.execute(y.to(Accelerator(1)))
        back = z.to(Accelerator(0))
        del y, z
        open(os.environ["FAKE_CUDA_LOG"], "a").write("look\\n")
        print(back.device, back.to_numpy())
        fails(InputError, lambda: far.execute(back))
        fails(InputError, lambda: near.execute(back, out=[Buffer("float32", (4,), Accelerator(1))]))
        class Wrong:  # says cuda:0
            held = Buffer.from_numpy(x).to(Accelerator(1))
            __cuda_array_interface__ = held.__cuda_array_interface__
        fails(InputError, lambda: near.execute(Wrong()))
        fails(DeviceError, lambda: session.load(sys.argv[1], device=Accelerator(2)))
        """,
        make_chain("double", "negate"),
        DEVICES=2,
        EAGER=eager,
    )
    assert out.splitlines() == [
        "cuda:0 cuda:1",
        "cuda:0 [ 0.  4.  8. 12.]",
        "input 'x': wanted memory of cuda:1, got memory of cuda:0",
        "output 'y': wanted memory of cuda:0, got memory of another device",
        "input 'x': wanted memory of cuda:0, got memory of cuda:1",
        "InferenceSession.load: wanted a device of the session (cuda:0, cuda:1), got cuda:2",
    ]
    assert "synchronize_event" not in log.split("begin\n")[1].split("look\n")[0]
    assert log.count("from_peer") == 2
    assert "access 1 of 0\n" in log
    assert "access 0 of 1\n" in log


def test_devices_that_cannot_see_each_other(python):
    out, log = python(
        """
        y = Buffer.from_numpy(x).to(Accelerator(0)).to(Accelerator(1))
        print(y.to_numpy())
        """,
        DEVICES=2,
        PEERS=0,
    )
    assert out == "[0. 1. 2. 3.]\n"
    assert "access" not in log


def test_memory_statistics(python, make_cuda):
    out, _ = python(
        """
        def show():
            found = memory_statistics(Accelerator())
            print(*found)
        model = load(weights={"w": np.float32([10, 20, 30, 40])})
        show()
        (y,) = model.execute(x)
        held = Buffer("float32", (100,), Accelerator())
        show()
        del y, held
        show()
        """,
        make_cuda("add", weights=(WEIGHT,)),
    )
    assert out.splitlines() == [
        "cuda:0 16 16 16 16 0 0 0 0",
        "cuda:0 496 496 496 16 0 64 16 400",
        "cuda:0 80 496 496 16 0 64 0 0",
    ]
