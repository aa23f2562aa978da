"""Streams, events and lifetimes on a GPU, against the fake driver: it runs work as late as it may.

What is used before it is there, or after its memory has ended, is a fault of the fake driver, for
which each of these tests fails.
"""

import pytest

TWO_STREAMS = """
        model = load()
        one, two = Stream(Accelerator()), Stream(Accelerator())
        device = Buffer.from_numpy(x).to(Accelerator())
"""


def test_a_call_does_not_wait(python, make_chain):
    out, _ = python(
        TWO_STREAMS
        + """
        (y,) = model.execute(device)
        (z,) = model.execute(device, stream=one)
        event = one.record()
        print(y.ready, z.ready, event.done)
        event.synchronize()
        print(y.ready, z.ready, event.done, z.to_numpy())
        y.synchronize()
        print(y.ready, Buffer.from_numpy(x).ready)
        """,
        make_chain("double", "negate"),
    )
    assert out.splitlines() == [
        "False False False",
        "False True True [-0. -2. -4. -6.]",
        "True True",
    ]


def test_outputs_of_one_stream_are_inputs_on_another(python, make_chain):
    """Each call waits for its inputs on the device; the host sees the end of the chain."""
    out, log = python(
        TWO_STREAMS
        + """
        y = device
        for turn in range(6):
            (y,) = model.execute(y, stream=(one, two, None)[turn % 3])
        open(os.environ["FAKE_CUDA_LOG"], "a").write("look\\n")
        print(y.to_numpy())
        """,
        make_chain("double", "negate"),
    )
    assert out == "[  0.  64. 128. 192.]\n"
    given, _ = log.split("look\n")
    assert "synchronize_event" not in given


def test_memory_is_written_behind_those_who_read_it(python, make_chain):
    out, _ = python(
        TWO_STREAMS
        + """
        target = Buffer("float32", (4,), Accelerator())
        model.execute(device, out=[target], stream=one)
        (y,) = model.execute(target, stream=two)
        (z,) = model.execute(target)
        model.execute(y, out=[target], stream=one)  # behind both reads
        model.execute(target, out=[device])
        print(device.to_numpy(), z.to_numpy(), y.to_numpy())
        """,
        make_chain("double", "negate"),
    )
    assert out == "[ 0. 16. 32. 48.] [ 0.  4.  8. 12.] [ 0.  4.  8. 12.]\n"


FOREIGN = (
    TWO_STREAMS
    + """
        class Array:  # another library's, which Heddle knows nothing of but what it says
            def __init__(self):
                self.made = model.execute(device, stream=one)[0]
        class Torch(Array):
            def __dlpack_device__(self): return self.made.__dlpack_device__()
            def __dlpack__(self, **how): return self.made.__dlpack__(**how)
        class CuPy(Array):
            @property
            def __cuda_array_interface__(self):
                return {**self.made.__cuda_array_interface__, "stream": one.handle}
"""
)


@pytest.mark.parametrize("kind", ["Torch", "CuPy"])
def test_what_another_library_made_is_waited_for(python, make_chain, kind):
    """Kept as a Buffer, its memory is ready where that library's stream is."""
    out, _ = python(
        FOREIGN
        + f"""
        print(Buffer.from_numpy({kind}()).to_numpy())
        kept = Buffer.from_numpy({kind}())
        print(kept.ready, kept.__cuda_array_interface__["stream"] is not None)
        print(model.execute(kept, stream=two)[0].to_numpy())
        print(kept.ready, kept.__cuda_array_interface__["stream"])
        kept = Buffer.from_numpy({kind}())
        kept.synchronize()
        print(kept.ready)
        consumer = Stream(Accelerator())
        kept = Buffer.from_numpy({kind}())
        kept.__dlpack__(stream=consumer.handle)
        consumer.synchronize()
        print(kept.ready)
        """,
        make_chain("double", "negate"),
    )
    assert out.splitlines() == [
        "[-0. -2. -4. -6.]",
        "False True",
        "[ 0.  4.  8. 12.]",
        "True None",
        "True",
        "True",
    ]


def test_what_a_call_uses_lives_until_it_is_done(python, make_chain):
    """Inputs, outputs, arenas that grow, the model itself, and streams."""
    out, _ = python(
        """
        import weakref
        class Foreign:
            def __init__(self, values, stream):
                self.held = Buffer.from_numpy(values).to(Accelerator())
                self.__cuda_array_interface__ = {
                    **self.held.__cuda_array_interface__, "stream": stream.handle,
                }
        model, dead = load(), []
        for number in range(3):
            stream = Stream(Accelerator())
            for count in (4, 500, 1000, 7):
                foreign = Foreign(np.full(count, number, np.float32), stream)
                dead.append(weakref.ref(foreign))
                y = model.execute(foreign, stream=stream)[0]
                del foreign
                z = model.execute(y, stream=stream)[0]
                del y
        print(all(ref() for ref in dead))
        print(z.to_numpy())
        fake.fake_catch_up()
        model.execute(x)
        gc.collect()
        print(any(ref() for ref in dead))
        last = model.execute(z)[0]
        del model, stream, z
        print(last.to_numpy())
        """,
        make_chain("double", "negate"),
    )
    assert out.splitlines() == [
        "True",
        "[8. 8. 8. 8. 8. 8. 8.]",
        "False",
        "[-16. -16. -16. -16. -16. -16. -16.]",
    ]


def test_inputs_of_the_host_may_change_at_once(python, make_chain):
    """Page-locked memory is copied as late as the device gets there: the call waits for that."""
    out, _ = python(
        """
        model, found = load(), []
        values = np.zeros(4, np.float32)
        for number in range(5):
            values[:] = number
            found.append(model.execute(values)[0])
        print([y.to_numpy().tolist() for y in found])
        """,
        make_chain("double", "negate"),
    )
    assert out == f"{[4 * [-2.0 * number] for number in range(5)]}\n"


def test_a_stream_waits_for_events(python, make_chain):
    """Also those of another GPU."""
    out, _ = python(
        """
        near, far = (InferenceSession([Accelerator(n)]).load(sys.argv[1]) for n in range(2))
        one, two = Stream(Accelerator(0)), Stream(Accelerator(1))
        print(one.device, two.device, one.__cuda_stream__() == (0, one.handle))
        y = near.execute(Buffer.from_numpy(x).to(Accelerator(0)), stream=one)[0]
        two.wait(one.record())
        two.synchronize()
        print(y.ready)
        fails(DeviceError, lambda: Stream(CPU()))
        fails(InputError, lambda: near.execute(x, stream=two))
        """,
        make_chain("double", "negate"),
        DEVICES=2,
    )
    assert out.splitlines() == [
        "cuda:0 cuda:1 True",
        "True",
        "Stream: wanted a CUDA device, got cpu:0",
        "stream: wanted one of cuda:0, got one of another device or context",
    ]


def test_streams_of_others(python, make_cuda):
    out, log = python(
        """
        model, own = load(), Stream(Accelerator())
        class Torch:
            cuda_stream = own.handle
        class CuPy:
            ptr = own.handle
        class Protocol:
            def __cuda_stream__(self): return (0, own.handle)
        class Null:
            ptr = 0
        for stream in (own, own.handle, Torch(), CuPy(), Protocol(), Null(), None):
            print(model.execute(x, stream=stream)[0].to_numpy())
        for stream in (7, "one", 2.5):
            fails(InputError, lambda: model.execute(x, stream=stream))
        fails(TypeError, lambda: model.execute(x, streams=1))
        """,
        make_cuda("double"),
    )
    wanted = "stream: wanted a Stream, one of CuPy or torch, an object with __cuda_stream__, or"
    assert out.splitlines() == [
        *7 * ["[0. 2. 4. 6.]"],
        "stream: wanted one of cuda:0, got one that the driver refuses: CUDA_ERROR_INVALID_HANDLE"
        " (as the fake was told)",
        f"{wanted} the number of a CUstream, got str",
        f"{wanted} the number of a CUstream, got float",
        "Model.execute: wanted the keywords 'out' and 'stream', got 'streams'",
    ]
    streams = [line.split("stream ")[1].split()[0] for line in log.splitlines() if "launch" in line]
    assert streams == [*5 * ["19"], "1", "16"]


def test_arenas_of_streams_that_are_gone_are_used_again(python, make_chain):
    out, _ = python(
        """
        model = load()
        for number in range(20):
            stream = Stream(Accelerator())
            y = model.execute(x, stream=stream)[0]
            if number % 2: fake.fake_catch_up()
        print(_core.live_objects()["arenas"])
        """,
        make_chain("double", "negate"),
    )
    assert int(out) <= 3


def test_what_a_call_used_may_end_in_a_fork(python, make_chain):
    """A call that looks for an arena lets go of what others used, whose end may do anything."""
    out, _ = python(
        """
        import weakref
        class Foreign:
            def __init__(self):
                self.held = Buffer.from_numpy(x).to(Accelerator())
                self.__cuda_array_interface__ = self.held.__cuda_array_interface__
        def fork():
            child = os.fork()
            if child == 0: os._exit(0)
            print("forked", os.waitpid(child, 0)[1])
        model, foreign = load(), Foreign()
        weakref.finalize(foreign, fork)
        y = model.execute(foreign, stream=Stream(Accelerator()))
        del foreign
        fake.fake_catch_up()
        z = model.execute(x, stream=Stream(Accelerator()))
        print("done")
        """,
        make_chain("double", "negate"),
    )
    assert out.splitlines() == ["forked 0", "done"]


def test_many_threads_on_many_streams(python, make_chain):
    python(
        """
        import threading
        model, wrong = load(), []
        shared = Buffer.from_numpy(np.arange(40, dtype=np.float32)).to(Accelerator())
        def work(seed):
            stream = Stream(Accelerator()) if seed % 2 else None
            values = np.random.default_rng(seed).random(40, np.float32)
            (y,) = model.execute(values, stream=stream)
            for turn in range(20):
                (z,) = model.execute(y, stream=stream)
                (w,) = model.execute(shared, stream=stream)
                if turn % 4 == seed % 4 and not np.array_equal(z.to_numpy(), 4 * values):
                    wrong.append(seed)
            if not np.array_equal(w.to_numpy(), -2 * np.arange(40)): wrong.append(seed)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert wrong == []
        """,
        make_chain("double", "negate"),
    )


def test_the_array_interface_names_a_stream_to_wait_for(python, make_cuda):
    out, _ = python(
        """
        model, stream = load(), Stream(Accelerator())
        def named(y): return y.__cuda_array_interface__["stream"]
        y, z = model.execute(x)[0], model.execute(x, stream=stream)[0]
        print(named(y), named(z))
        y.synchronize(), z.synchronize()
        print(named(y), named(z))
        """,
        make_cuda("double"),
    )
    assert out == "16 18\nNone None\n"
