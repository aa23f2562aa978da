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
