"""Values that a kernel refuses: who is told, when, and that nobody else is."""

REFUSED = "check at m.py:1: wanted an index inside a size of 3, got -7"


def test_who_looks_at_an_output_is_told(python, make_cuda):
    out, _ = python(
        """
        model = load()
        bad, good = np.float32([1, -7, 3]), np.float32([1, 2])
        (y,) = model.execute(bad)
        (z,) = model.execute(good)
        print(z.to_numpy())
        for look in (y.synchronize, y.to_numpy, lambda: np.asarray(y), lambda: y.to(CPU())):
            fails(InputError, look)
        print(model.execute(good)[0].to_numpy())
        """,
        make_cuda("check"),
    )
    assert out.splitlines() == ["[1. 2.]", *4 * [REFUSED], "[1. 2.]"]


def test_the_next_call_tells_where_nobody_can_look(python, make_cuda):
    out, log = python(
        """
        model, stream = load(), Stream(Accelerator())
        bad, good = np.float32([1, -7, 3]), np.float32([1, 2])
        model.execute(bad)
        print(model.execute(good)[0].to_numpy())  # has not been found out when this is called
        print(model.execute(good, stream=stream)[0].to_numpy())  # another stream's
        fails(InputError, lambda: model.execute(good))
        print(model.execute(good)[0].to_numpy())
        """,
        make_cuda("check"),
    )
    assert out.splitlines() == ["[1. 2.]", "[1. 2.]", REFUSED, "[1. 2.]"]
    assert log.count("launch") == 4  # the call that told has run nothing


def test_a_stream_tells_the_first_refusal_once(python, make_cuda):
    out, _ = python(
        """
        model, stream, other = load(), Stream(Accelerator()), Stream(Accelerator())
        for value in (-7, -8):
            model.execute(np.float32([1, value, 3]), stream=stream)
        other.synchronize()
        event = stream.record()
        event.synchronize()
        fails(InputError, stream.synchronize)
        stream.synchronize()
        """,
        make_cuda("check"),
    )
    assert out == f"{REFUSED}\n"


def test_a_refusal_follows_what_was_made_of_its_outputs(python, make_chain):
    """Also to another device; who was told is not told again, but for the outputs themselves."""
    out, _ = python(
        """
        model = load()
        y = model.execute(np.float32([1, -7, 3]))[0]
        copies = [y.copy(), y.copy().copy(), y.to(Accelerator(1)).copy()]
        copies += [model.execute(x, out=[Buffer("float32", (4,), Accelerator())])[0]]
        del y
        for copy in (copies[2], copies[0], copies[1], copies[3]):
            try:
                print(copy.to_numpy())
            except InputError as error:
                print(error)
        """,
        make_chain("check", "negate"),
        DEVICES=2,
    )
    told = "step 0: wanted an index inside a size of 3, got -7"
    assert out.splitlines() == [told, *2 * ["[-1.  7. -3.]"], "[-0. -1. -2. -3.]"]


def test_each_step_has_a_status_of_its_own(python, make_chain):
    """The first of several is named, and nothing runs twice to find it."""
    out, log = python(
        """
        model = load()
        fails(InputError, model.execute(np.float32([5]))[0].to_numpy)
        fails(InputError, model.execute(np.float32([-6]))[0].to_numpy)
        print(model.execute(np.float32([0]))[0].to_numpy())
        """,
        make_chain("double", "check", "negate", "check"),
    )
    assert out.splitlines() == [
        "step 3: wanted an index inside a size of 1, got -10",
        "step 1: wanted an index inside a size of 1, got -12",
        "[-0.]",
    ]
    assert log.count("launch") == 3 * 4


def test_threads_are_told_of_their_own_calls_alone(python, make_cuda):
    out, _ = python(
        """
        import threading
        model, wrong = load(), []
        def work(seed):
            for step in range(20):
                value = -(100 * seed + step + 1) if step % 3 == 0 else step
                try:
                    found = model.execute(np.float32([value]))[0].to_numpy()[0]
                except InputError as error:
                    found = float(str(error).split()[-1])
                if found != value: wrong.append((seed, step, found))
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(wrong)
        """,
        make_cuda("check"),
    )
    assert out == "[]\n"


def test_a_replay_tells_and_clears(python, make_cuda):
    out, _ = python(
        """
        model = load()
        bad, y = (Buffer.from_numpy(np.float32(v)).to(Accelerator()) for v in ([1, -7, 3], [0] * 3))
        fails(InputError, lambda: replay([(model, (bad,), (y,))]))
        model.execute(np.float32([1, 2, 3]), out=[y])
        print(y.to_numpy())
        """,
        make_cuda("check"),
    )
    assert out == f"{REFUSED}\n[1. 2. 3.]\n"


def test_copies_of_copies_leave_no_chain_behind(python, make_cuda):
    """Which would have to be taken down again, from a call or from memory that nobody computed."""
    out, _ = python(
        """
        model = load()
        for y in (tensor([1, 2]), model.execute(np.float32([1, 2]))[0]):
            for _ in range(300):
                y = y.copy()
                fake.fake_catch_up()
            print(_core.live_objects()["events"] < 20, y.to_numpy())
        """,
        make_cuda("check"),
    )
    assert out.splitlines() == 2 * ["True [1. 2.]"]
