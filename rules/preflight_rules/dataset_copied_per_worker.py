from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.api import (
    GIB,
    Case,
    Confidence,
    Example,
    Finding,
    Options,
    Rule,
    Severity,
    at_most,
    gib,
    host_of,
    limit_of,
    plural,
    related_of,
    severity_of,
    solve_in_memory_bytes,
)
from preflight_rules.shared.programs import LOADER, SAMPLES

HELD = LOADER.replace(
    "from data import dataset, validation",
    """import json


class Answers(torch.utils.data.Dataset):
    def __init__(self, path):
        self.items = [json.loads(line) for line in open(path)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return torch.tensor(self.items[index]["tokens"])


dataset = Answers("answers.jsonl")""",
)
IN_ARRAYS = (
    HELD.replace("[json.loads(line) for line in open(path)]", 'numpy.load(path, mmap_mode="r")')
    .replace("import json\n", "import json\n\nimport numpy\n")
    .replace('["tokens"]', "")
)


class CopiedOptions(Options):
    smallest: int = Field(2 * GIB, ge=0, description="No finding if the copies take less than this (bytes).")
    largest_unknown: int = Field(
        2 * GIB,
        gt=0,
        description="No finding if data of this size (bytes) would still fit and the real size is unknown.",
    )


class DatasetCopiedPerWorker(Rule[CopiedOptions]):
    """A data set is kept as Python objects, and every DataLoader worker ends up with a copy of it.

    Forked workers share the memory of their parent until one of them writes to it. Reading a Python object writes its
    reference count, so a worker copies the pages of a list of dicts or strings one by one as it reads them. After an
    epoch with shuffling each worker has a full copy, and memory has grown by data set x workers. Spawned workers get a
    copy when they start.

    No line of the program allocates this memory: it grows through the first epoch like a leak, and the kernel kills the
    job hours later.

    There is no fix that preflight can write. Keep the data in numpy arrays or tensors (one array for all strings, with
    their offsets), in an Arrow table (`datasets`), or in a memory-mapped file. Workers share these.
    """

    name = "dataset-copied-per-worker"
    summary = "Workers end up with copies of a data set of Python objects"
    tags = ("host-memory", "data-loading")
    examples = (
        Example(
            "Four GiB of dicts, and 16 workers",
            {"train.py": HELD},
            says=("takes 4 GiB, and 16 workers copy 32.64 GiB more",),
            options={"set": {**SAMPLES, "data.in_memory_bytes": 4 * GIB, "machine.memory_limit": 256 * GIB}},
        ),
        Example(
            "How large the list is, nobody says",
            {"train.py": HELD},
            says=("fits only if it takes at most", "declare data.in_memory_bytes"),
            options={"set": {"data.sample_bytes": 8192, "machine.memory_limit": 8 * GIB}},
        ),
        Example(
            "An array that all workers share",
            {"train.py": IN_ARRAYS},
            finds=0,
            options={"set": {**SAMPLES, "data.in_memory_bytes": 4 * GIB, "machine.memory_limit": 256 * GIB}},
        ),
    )

    def check(self, case: Case[CopiedOptions]) -> Iterator[Finding]:
        data, host = case.job.data, host_of(case)
        if not data.workers or data.in_memory_kind not in ("objects", "strings"):
            return
        copies = 0 if host is None else host.breakdown.get("copy_on_write", 0)
        if copies >= case.options.smallest:
            yield self._known(case, copies)
        elif not data.in_memory_bytes and case.fact("dataset_held") is not None:
            largest = solve_in_memory_bytes(case.job, case.job.model.parameters, tracing=case.tracing)
            if largest is not None and largest < case.options.largest_unknown:
                yield self._solved(case, largest)

    def _known(self, case: Case, copies: int) -> Finding:
        data, host = case.job.data, host_of(case)
        worth = None if host is None else severity_of(host.per_node, host.limit)
        message = f"{_held(case)} takes {gib(data.in_memory_bytes or 0)}, and {_workers(case)} copy {gib(copies)} more"
        return self._finding(case, message, Severity.warning, Confidence.high if worth else Confidence.medium)

    def _solved(self, case: Case, largest: int) -> Finding:
        limit = limit_of(case.job)[0] or 0
        message = (
            f"{_held(case)} fits only if it takes at most {at_most(largest)}: {_workers(case)} copy it, and "
            f"the job may use {gib(limit)}; declare data.in_memory_bytes"
        )
        return self._finding(case, message, Severity.info, Confidence.medium)

    def _finding(self, case: Case, message: str, severity: Severity, confidence: Confidence) -> Finding:
        origin = case.fact_origin("dataset_held") or case.origin("data.in_memory_bytes", "data.workers")
        return self.finding(
            message,
            origin,
            severity,
            confidence,
            settings=("data.in_memory_bytes", "data.in_memory_kind", "data.workers"),
            related=related_of(case, origin, ("data.workers", f"data.workers = {case.job.data.workers}")),
            label="Python objects: reading them writes their reference counts",
            help=(
                "use numpy arrays, tensors or Arrow tables (`datasets`), which are not copied; for strings, use one "
                "array of all bytes and one of offsets",
            ),
            side="host",
        )


def _held(case: Case) -> str:
    kind = "a list of strings" if case.job.data.in_memory_kind == "strings" else "a list of Python objects"
    return f"the data set ({kind})"


def _workers(case: Case) -> str:
    data, ranks = case.job.data, case.job.parallel.ranks_per_node or 1
    each = f" of each of {ranks} ranks" if ranks > 1 else ""
    return f"{plural(data.workers or 0, 'worker')}{each}"
