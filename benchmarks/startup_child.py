"""A process of benchmarks/startup.py: from its start to the first result of one runtime.

    python benchmarks/startup_child.py RUNTIME SECONDS PATHS...

SECONDS is what `time.monotonic` said just before the process was started. It prints milliseconds
since then, each behind what they are the end of, and the resident memory in KiB at the end.
"""

import sys
import time

MARKS = {}

SENTENCE = "A heddle guides the warp threads of a loom."


def done(stage: str) -> None:
    MARKS[stage] = 1e3 * (time.monotonic() - float(sys.argv[2]))


def numpy() -> None:
    import numpy  # noqa: F401

    done("import")


def heddle(path: str, weights: str = "", tokenizer: str = "") -> object:
    import numpy as np

    from heddle.runtime import Artifact, InferenceSession

    if weights or tokenizer:
        from pathlib import Path
    if weights:
        from heddle.pipelines.weights import load
    if tokenizer:
        from heddle.pipelines.embedding import SentenceEmbedder
    done("import")
    session, artifact = InferenceSession(), Artifact.load(path)
    model = load(session, artifact, Path(weights)) if weights else session.load(artifact)
    done("load")
    if tokenizer:
        embedder = SentenceEmbedder(model, Path(tokenizer))
        done("tokenizer")
        embedder.embed([SENTENCE])
    else:
        model.execute(np.ones((1, 16), np.int32), np.ones((1, 16), np.bool_))
    done("first")
    return model


def onnxruntime(path: str) -> object:
    import numpy as np
    import onnxruntime

    done("import")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    done("load")
    ones = np.ones((1, 16), np.int64)
    session.run(None, {"tokens": ones, "attention_mask": ones})
    done("first")
    return session


def openvino(path: str, cache: str) -> object:
    import numpy as np
    import openvino

    done("import")
    settings = {"PERFORMANCE_HINT": "LATENCY", "CACHE_DIR": cache}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    done("load")
    ones = np.ones((1, 16), np.int64)
    compiled({"tokens": ones, "attention_mask": ones})
    done("first")
    return compiled


def iree(path: str) -> object:
    import numpy as np
    from iree import runtime

    done("import")
    module = runtime.load_vm_flatbuffer_file(path, driver="local-task")
    done("load")
    ones = np.ones((1, 16), np.int64)
    module["embedder"](ones, ones).to_host()
    done("first")
    return module


def main() -> None:
    """Runs what the arguments name."""
    runtimes = {run.__name__: run for run in (numpy, heddle, onnxruntime, openvino, iree)}
    kept = runtimes[sys.argv[1]](*sys.argv[3:])  # What is resident counts the model.
    with open("/proc/self/status") as status:  # pathlib would be resident, too.
        resident = next(line.split()[1] for line in status if line.startswith("VmRSS"))
    print(*(f"{stage} {value}" for stage, value in MARKS.items()), "resident", resident)
    del kept


if __name__ == "__main__":
    main()
