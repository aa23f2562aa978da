"""A GPU's limits by `heddle bench env`, measured beside the fake driver."""

import json

MEASURE = """
    import json
    from heddle.graph.compiler import driver
    from heddle.graph.compiler.codegen import cuda
    from heddle.pipelines.bench import child, gpu_limits
    from heddle.runtime.artifact import Code

    def code(arch, pointers, dims):
        text = f"FAKE\\nkernel kernel nothing {pointers} {dims}\\nend\\n"
        return (Code(arch, "cubin", text.encode(), symbol="kernel"),)

    driver.build = lambda wanted, *_: {
        job: code(job.arch, len(job.spec.buffers), len(job.spec.dims)) for job in wanted
    }
    cuda.assemble = lambda module, machine: code(machine.arch, 2, 1)
    gpu_limits.MEMORY, gpu_limits.CALLS, gpu_limits.LAUNCHES = 2**22, 5, 2
    print(json.dumps(child.answer({'gpu': 0})))
"""

MILLISECOND = 1e-3
"""What every kernel takes on the fake device."""


def launches(log):
    return [line.split() for line in log.splitlines() if line.startswith("launch ")]


def test_every_limit_is_measured_on_the_device(python):
    out, log = python(MEASURE)
    found = json.loads(out)
    assert (found["gpu"], found["l2_bytes"]) == ("Fake 0", 1 << 20)
    assert found["read_gb_s"] == {"L2": 2**18 / MILLISECOND / 1e9, "memory": 2**22 / 1e6}
    assert found["copy_gb_s"] == {"L2": 2**19 / MILLISECOND / 1e9, "memory": 2**23 / 1e6}
    assert found["call_us"] == 1000
    # 132 multiprocessors, two warpgroups each, of 64 x 256 x 64 products 4096 times.
    wgmma = 132 * 2 * 64 * 256 * 64 * 2 * 4096 / MILLISECOND / 1e12
    assert abs(found["tflop_s"]["wgmma bfloat16"] / wgmma - 1) < 1e-6
    dtypes = ("bfloat16", "float16", "int8", "tf32", "float8")
    assert list(found["tflop_s"])[2:] == [f"wgmma {dtype}" for dtype in dtypes]
    probes = [line for line in launches(log) if line[-1] == "4096"]
    assert {(line[3], line[7], line[11]) for line in probes} == {
        ("528", "256", "0"),
        ("132", "256", "49152"),
    }


def test_a_gpu_before_hopper_has_its_own_probes(python):
    out, _ = python(MEASURE, CAPABILITY=80)
    dtypes = ("bfloat16", "float16", "int8", "tf32")
    assert list(json.loads(out)["tflop_s"])[2:] == [f"mma.sync {dtype}" for dtype in dtypes]
