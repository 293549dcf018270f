"""Small search spaces with a made-up memory law, and their brute-force answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from preflight.space.grid import Side
from preflight.space.jobs import JobMaker
from preflight.vocabulary.estimates import DeviceEstimate, Estimates, Interval
from preflight.vocabulary.job import Job
from preflight.vocabulary.study import Bound, Box, Study, table_defaults
from preflight.vocabulary.values import Axis, Choices, Domain, Expr, Range, Ref, Value

SIZES: Mapping[str | None, int] = {"small": 1, "large": 3, None: 2}


def law(job: Job) -> tuple[int, int] | None:
    """Bytes of a job: grows with batch, length, vocabulary and model; unknown for a model nobody knows."""
    train = job.train
    if train.batch_size is None or job.model.name not in SIZES:
        return None
    size = SIZES[job.model.name] * (100 + train.batch_size * (train.seq_len or 1) * (train.vocab_size or 1))
    return size, size + size // 5


def host_law(job: Job) -> tuple[int, int] | None:
    workers = job.data.workers or 0
    return 10 + workers, 12 + workers


def full(capacity: int | None, of: Callable[[Job], tuple[int, int] | None] = law) -> Callable[[Job], Estimates]:
    """The full estimate, which agrees with the bound here."""

    def estimate(job: Job) -> Estimates:
        found = of(job)
        if found is None:
            return Estimates(None, None, ("model.name",))
        tier = Interval(found[0], found[0], found[1])
        verdict = tier.verdict(capacity)
        device = DeviceEstimate(tier, tier, tier, tier, "forward", "", {}, {}, None, capacity, verdict)
        return Estimates(device, None)

    return estimate


def box(
    axes: Mapping[str, tuple[Domain, Mapping[str, Expr] | str | None]],
    constants: Mapping[str, Expr] | None = None,
    **fields: Expr,
) -> Box:
    """Axes by name: a domain, and the Job field(s) it feeds."""
    bounds = dict(table_defaults())
    bounds |= {name.replace("__", "."): Bound(name.replace("__", "."), expr) for name, expr in fields.items()}
    found = []
    for name, (domain, feeds) in axes.items():
        fed = {feeds: Ref(name)} if isinstance(feeds, str) else feeds or {}
        bounds |= {field: Bound(field, expr) for field, expr in fed.items()}
        found.append(Axis(name, domain, None, tuple(sorted(fed))))
    return Box(bounds, tuple(found), {}, dict(constants or {}))


def study(*boxes: Box) -> Study:
    return Study(("sweep.yaml",), ("wandb",), boxes)


def points(space: Box) -> Iterator[dict[str, Value]]:
    """Every combination of the memory axes."""
    axes = space.memory_axes
    for values in product(*(_values(axis.domain) for axis in axes)):
        yield {axis.name: value for axis, value in zip(axes, values, strict=True)}


def _values(domain: Domain) -> list[Value]:
    if isinstance(domain, Choices):
        return list(domain.values)
    assert isinstance(domain, Range)
    size, step = domain.size(), domain.step
    assert size is not None
    assert step is not None
    return [int(domain.low + step * i) for i in range(size)]


def verdict_at(space: Box, assignment: Mapping[str, Value], capacity: int) -> str:
    found = law(JobMaker(space).at(assignment).job)
    if found is None:
        return "unknown"
    return Interval(found[0], found[0], found[1]).verdict(capacity)


def device(capacity: int | None) -> Side:
    return Side(law, capacity)
