"""What each CUDA kernel takes of a multiprocessor: the table in docs/cuda/resources.md.

`python tests/kernels/cuda/cuda_resources.py` writes it anew.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import cuda_cases as cases
import latent_cases
import minimum_cases
import score_cases

from heddle.graph.compiler.codegen import ptx
from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Spec

DOCUMENT = Path(__file__).parents[3] / "docs" / "cuda" / "resources.md"
ARCHS = ("sm_80", "sm_90a")
TABLE = {
    **cases.ALL,
    **cases.LARGE,
    **score_cases.ALL,
    **latent_cases.ALL,
    **minimum_cases.ALL,
}
HEAD = """# Registers and shared memory of the CUDA kernels

As the PTX assembler of CUDA 13.0 reports them, for the kernels that the tests assemble
(`cuda_cases.py`, `score_cases.py`, `latent_cases.py` and `minimum_cases.py` of
`tests/kernels/cuda`): registers of a thread on sm_80 and sm_90a, bytes spilled (on either), shared
memory of a block in bytes (static and dynamic), threads of a block; of both architectures where
they differ. Written by `python tests/kernels/cuda/cuda_resources.py`; a test compares every line.

| kernel, dtype | sm_80 | sm_90a | spilled | shared | threads |
|---|---|---|---|---|---|
"""


def texts_of(spec: Spec) -> list[str]:
    """The PTX of a kernel for each architecture."""
    return [to_ptx(spec, MACHINES[arch]) for arch in ARCHS]


def line(name: str, spec: Spec, texts: list[str]) -> str:
    """The table's line of one kernel."""
    machines = [MACHINES[arch] for arch in ARCHS]
    found = [ptx.assemble(text, arch) for text, arch in zip(texts, ARCHS, strict=True)]
    launches = [find(spec.op, "cuda").launch_on(spec, machine) for machine in machines]
    registers = " | ".join(str(cubin.registers) for cubin in found)
    spills = sum(cubin.spills for cubin in found)
    pairs = zip(found, launches, strict=True)
    shared = _of_both(cubin.shared + launch.shared for cubin, launch in pairs)
    threads = _of_both(launch.block[0] for launch in launches)
    return f"| {name} | {registers} | {spills} | {shared} | {threads} |"


def _of_both(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in dict.fromkeys(numbers))


def main() -> None:
    lines = [line(name, spec, texts_of(spec)) for name, spec in TABLE.items()]
    DOCUMENT.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
