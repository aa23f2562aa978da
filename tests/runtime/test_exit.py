"""The end of a process whose other threads are inside the runtime."""

import subprocess
import sys

import pytest

from heddle.runtime.artifact import Weight

SCRIPT = """
import sys, threading, time
import numpy as np
from heddle.runtime import InferenceSession

session, x, y = InferenceSession(threads=1), *np.ones((2, 1 << 15), np.float32)
weights = {{"w": x}}
model = session.load(sys.argv[1], weights=weights)
begun = threading.Event()

def work():
    while True:
        {call}
        begun.set()

threading.Thread(target=work, daemon=True).start()
begun.wait()

class Late:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)  # threads ask for the GIL meanwhile, which Python gives to nobody any more

late = Late()
sys.exit(7)
"""


@pytest.mark.parametrize(
    "call",
    ["model.execute(x)", "model.execute(x, out=[y])", "session.load(model.artifact, weights)"],
)
def test_a_daemon_thread_inside_the_runtime_lets_the_process_end(make, tmp_path, call):
    weight = [Weight("w", "float32", (1 << 15,))]
    path = tmp_path / "m.heddle"
    make("multiply", weights=weight).save(path)
    script = SCRIPT.format(call=call)
    done = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    assert done.returncode == 7
