"""What the accesses of each CUDA kernel's warps cost: the table in docs/cuda/memory.md.

`python tests/kernels/cuda/cuda_traffic.py` writes it anew; with words, it prints the sites of the
calls that have one in their names, those that take most first.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from cuda_harness import counting, run_call
from cuda_traffic_cases import CALLS
from emulator.traffic import Traffic

from heddle.kernels.registry import MACHINES

DOCUMENT = Path(__file__).parents[3] / "docs" / "cuda" / "memory.md"
HEAD = """# Memory accesses of the CUDA kernels

As the emulator counts them ([what it counts](emulator.md#what-accesses-cost)), for the calls of
`tests/kernels/cuda/cuda_traffic_cases.py`: sectors of 32 bytes of global memory, how many times the
least that is for the bytes that each instruction of a warp asks for, and how many bytes a thread
moves at once, in the mean; wavefronts of shared memory, and how many times the least they are. TMA
and wgmma, which move no bytes by threads, are not counted. No figure here was measured on a GPU.
Written by `python tests/kernels/cuda/cuda_traffic.py`; a test compares every line.

| call | sectors | times the least | bytes of a thread | wavefronts | times the least |
|---|---|---|---|---|---|
"""


def count(name: str) -> Traffic:
    """What the accesses of a call cost."""
    arch, call = CALLS[name]
    with counting(MACHINES[arch]) as traffic:
        run_call(call.spec, call.inputs(), call.dims)
    return traffic


def line(name: str) -> str:
    """The table's line of one call."""
    traffic = count(name)
    parts = []
    for shared in (False, True):
        cost = traffic.total(shared)
        parts += [str(cost.taken), f"{cost.taken / cost.least:.2f}" if cost.least else ""]
    parts.insert(2, f"{traffic.width():.1f}")
    return f"| {name} | {' | '.join(parts)} |"


def sites(name: str) -> str:
    """The costs of each site: wavefronts or sectors, the least, and where they are."""
    found = [name]
    for site, cost in sorted(count(name).costs.items(), key=lambda one: -one[1].taken):
        if cost.taken:
            memory = "shared" if site.shared else "global"
            found.append(
                f"  {cost.taken / cost.least:5.2f} = {cost.taken:6} / {cost.least:6} {memory}"
                f" {site.operation} of {site.width}: {' < '.join(site.frames[:4])}"
            )
    return "\n".join(found)


def main(words: list[str]) -> None:
    if not words:
        DOCUMENT.write_text(HEAD + "\n".join(map(line, CALLS)) + "\n")
    for name in CALLS:
        if any(word in name for word in words):
            print(sites(name))


if __name__ == "__main__":
    main(sys.argv[1:])
