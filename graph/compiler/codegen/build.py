"""From the kernels that programs ask for to their code: the cache first, children for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from heddle.graph.compiler.cache import KernelCache
from heddle.graph.compiler.codegen import pool
from heddle.graph.compiler.codegen.pool import Failure, Job
from heddle.runtime.artifact import Code
from heddle.runtime.errors import CompileError

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def build(
    wanted: Mapping[Job, str],
    cache: KernelCache,
    progress: Progress | None = None,
    worker: Sequence[str] = pool.WORKER,
) -> dict[Job, tuple[Code, ...]]:
    """The codes of all jobs.

    Args:
        wanted: Each job with a label of the op that asks for it.
        cache: Where codes are looked up and kept.
        progress: Told after each kernel.
        worker: The command of a codegen child.

    Raises:
        CompileError: A kernel could not be compiled; the message names it, the architecture, the op
            and the user's line, the kernel's own line where it is broken, and says how many others
            failed. What did compile is in the cache.
    """
    codes: dict[Job, tuple[Code, ...]] = {}
    failures: dict[Job, str] = {}
    missing = []
    for job in wanted:
        found = cache.get(job.spec, job.arch, job.values)
        if found is None:
            missing.append(job)
        else:
            codes[job] = found

    def done(job: Job, outcome: tuple[Code, ...] | Failure) -> None:
        if isinstance(outcome, Failure):
            failures[job] = outcome.reason
        else:
            codes[job] = outcome
            cache.put(job.spec, job.arch, outcome, job.values)
        if progress:
            progress("kernels", len(codes) + len(failures), len(wanted))

    if missing:
        pool.run(missing, done, worker=worker)
    elif progress:
        progress("kernels", len(codes), len(wanted))
    for job in wanted:
        if job in failures:
            more = f" (and {len(failures) - 1} other kernels failed)" if len(failures) > 1 else ""
            raise CompileError(
                f"codegen: {job.spec.op} for {job.arch}: {wanted[job]}: {failures[job]}{more}"
            )
    return codes
