"""Calls beside graphs that others capture, against the fake driver."""


def test_a_stream_that_is_captured_is_refused(python, make_cuda):
    """Before anything is given to it, or the capture spoilt; later calls are as before."""
    out, _ = python(
        """
        model, own, other = load(), Stream(Accelerator()), Stream(Accelerator())
        a, b = (Buffer.from_numpy(x).to(Accelerator()) for _ in range(2))
        event = other.record()
        handle, graph = ctypes.c_void_p(own.handle), ctypes.c_void_p()
        print(fake.cuStreamBeginCapture_v2(handle, 1))
        for refused in (
            lambda: model.execute(a, out=[b], stream=own),
            lambda: model.execute(a, stream=own.handle),
            own.record,
            lambda: own.wait(event),
            lambda: a.__dlpack__(stream=own.handle),
        ):
            fails(InputError, refused)
        print(fake.cuStreamEndCapture(handle, ctypes.byref(graph)))
        fake.cuGraphDestroy(graph)
        model.execute(a, out=[b])
        print(b.to_numpy(), model.execute(a, stream=own)[0].to_numpy())
        """,
        make_cuda("double"),
    )
    refused = "stream: wanted one that runs what it is given, got one that is being captured"
    assert out.splitlines() == ["0", *5 * [refused], "0", "[0. 2. 4. 6.] [0. 2. 4. 6.]"]


def test_what_another_thread_captures_bars_nothing(python, make_cuda):
    out, _ = python(
        """
        model = load()
        fake.fake_capture_elsewhere(1)
        (y,) = model.execute(x)
        print(y.ready, y.to_numpy(), model.execute(x)[0].ready)
        fake.fake_capture_elsewhere(0)
        """,
        make_cuda("double"),
    )
    assert out == "False [0. 2. 4. 6.] False\n"


def test_memory_that_was_handed_out_waits_for_the_end_of_a_capture(python, make_cuda):
    """Others may use it on streams that the driver tells nothing of meanwhile."""
    out, _ = python(
        """
        model, handle, graph = load(), ctypes.c_void_p(), ctypes.c_void_p()
        y, z = model.execute(x)[0], model.execute(x)[0]
        print(y.__cuda_array_interface__["shape"], z.to_numpy())
        fake.cuCtxPushCurrent_v2(ctypes.c_void_p(1))
        print(fake.cuStreamCreate(ctypes.byref(handle), 0), fake.cuStreamBeginCapture_v2(handle, 1))
        live = [fake.fake_bytes()]
        del y, z
        for end in (lambda: None, lambda: fake.cuStreamEndCapture(handle, ctypes.byref(graph))):
            end()
            model.execute(x)[0].synchronize()
            fake.fake_catch_up()
            live.append(fake.fake_bytes())
        print(live[0] - live[1] == live[1] - live[2] > 0)
        fake.cuGraphDestroy(graph)
        fake.cuStreamDestroy_v2(handle)
        fake.cuCtxPopCurrent_v2(ctypes.byref(handle))
        """,
        make_cuda("double"),
    )
    assert out.splitlines() == ["(4,) [0. 2. 4. 6.]", "0 0", "True"]
