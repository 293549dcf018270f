"""Verdicts on many Jobs: equal ones are judged once, those that differ in batch and length together.

The bound of the law decides most rows: what it says fits, fits by the replay, too, and so for what is far too large.
The rest are replayed, and so are all rows where `exact` asks for every tier. One engine: the figures are `estimate`'s.
No file that a row names is read, nothing is traced and no code is run: a row may come from anybody.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

from preflight.engine.ask import checked, placed
from preflight.engine.certainty import Certainty
from preflight.engine.doubts import SMALLEST
from preflight.engine.estimator import Estimator
from preflight.engine.job_by_hand import dotted
from preflight.engine.score.columns import EMPTY, Row, of_error, of_estimates, standing_of
from preflight.engine.standings import by_hand
from preflight.machines.gpus import that_fit
from preflight.memory.device.resolve import is_known
from preflight.memory.device.together import Together, corner
from preflight.memory.host.estimate import estimate_host, missing_fields
from preflight.reports.figures import DOUBTED, SIGNS
from preflight.vocabulary.edits_of_job import unchecked, with_fields
from preflight.vocabulary.errors import PreflightError, UsageError
from preflight.vocabulary.estimates import HostEstimate
from preflight.vocabulary.job import Job, fields, identity
from preflight.vocabulary.machine import Gpu
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.tracing import SHIPPED_ONLY
from preflight.vocabulary.values import Unknown

FILES = ("model.path", "model.law")
"""Fields that name a file of this machine."""
STANDINGS = "standings"
"""What a row may say beside its Job: how fields of it are known."""
_STANDINGS = {one.value: one for one in Standing}
KEPT = 1 << 16
"""Verdicts of replays that are kept for rows that come again."""
LONGEST_KEY = 1000
"""Characters of a Job that is kept under its text, and not under a digest."""
GROUPS = 512
"""Kinds of jobs whose bounds are kept."""
MOST = 1 << 40
"""Batches and lengths from here on are judged one by one."""


class _Kind(Struct, frozen=True):
    """Jobs that differ in batch and length alone, between two corners: (batch, length)."""

    together: Together
    low: tuple[int, int]
    high: tuple[int, int]
    shared: Row
    """What is the same in all their verdicts, that on the host in particular."""
    gpus: tuple[tuple[int, str], ...]
    """(capacity, name) of the GPUs that can do what the jobs ask for, by capacity."""
    largest: int
    """Bytes of the largest known GPU."""
    hopeless: int | None
    """The length from which on a batch of 1 does not fit: a need above every GPU exceeds there. 0: a short one fits,
    and such a need is only a risk, see Certainty. None: not known."""

    def covers(self, batch: int, length: int) -> bool:
        return self.low[0] <= batch <= self.high[0] and self.low[1] <= length <= self.high[1]

    def decided(self, members: Sequence[_Split]) -> dict[_Key, Row]:
        """The verdicts of those jobs between the corners that the bound decides."""
        return _bounded(self, members)


class _Same(Struct, frozen=True):
    """Jobs that have the same answer between two corners: an error, or that nothing is known of them."""

    row: Row
    low: tuple[int, int]
    high: tuple[int, int]

    def covers(self, batch: int, length: int) -> bool:
        return self.low[0] <= batch <= self.high[0] and self.low[1] <= length <= self.high[1]

    def decided(self, members: Sequence[_Split]) -> dict[_Key, Row]:
        return {one.key: self.row for one in members if self.covers(*one.key[1:])}


class Scorer(Struct):
    """`machine`: the GPU of all rows, in place of their own. `exact`: every row is replayed."""

    machine: str | None = None
    exact: bool = False
    replays: int = 0
    judged: int = 0
    _kept: OrderedDict[_Key, Row] = field(default_factory=OrderedDict)
    _kinds: OrderedDict[str, _Kind | _Same] = field(default_factory=OrderedDict)
    _failed: OrderedDict[str, tuple[int, int]] = field(default_factory=OrderedDict)
    """Kinds that could not be made as far as these batches and lengths."""
    _vectors: bool = field(default_factory=lambda: find_spec("numpy") is not None)

    def score(self, rows: Iterable[object]) -> list[Row]:
        """One verdict a row, in their order. A row is a Job with nested or dotted fields, and may have an `id`."""
        split = [_split(row) for row in rows]
        new = {one.key: one for one in split if one.key not in self._kept}
        found: dict[_Key, Row] = {}
        if self._vectors and not self.exact:
            groups: dict[str, list[_Split]] = {}
            for one in new.values():
                if one.size:
                    groups.setdefault(one.key[0], []).append(one)
            for at, members in groups.items():
                found |= self._decided(at, members)
        for key in sorted(new.keys() - found.keys()):  # Jobs of a kind one after the other: their tape is at hand
            found[key] = self._judged(_fields(new[key].row))
        self.judged += len(new)
        answers = [{**(found.get(one.key) or self._kept[one.key]), "id": one.name} for one in split]
        self._kept.update((key, row) for key, row in found.items() if row["by"] == "replay")
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return answers

    def at_once(self, row: object) -> Row | None:
        """The verdict on a row that is kept, or that the bound gives with what is kept: in a fraction of a millisecond.
        None: `score` has to be asked. Nothing is changed, so that another thread may score meanwhile."""
        one = _split(row)
        found = self._kept.get(one.key)
        if found is None and one.size and not self.exact:
            kind = self._kinds.get(one.key[0])
            found = kind.decided([one]).get(one.key) if kind is not None else None
        return None if found is None else {**found, "id": one.name}

    def _judged(self, given: object) -> Row:
        """The verdict on one row, by its full estimate."""
        try:
            job, gpu, held = self._job(given)
            found = Certainty(held, Estimator(gpu, SHIPPED_ONLY)).estimate(job)
        except PreflightError as error:
            return of_error(str(error))
        except (OverflowError, RecursionError):
            return of_error("a value of the row is larger, or nested deeper, than any Job's")
        except MemoryError:
            raise
        except Exception as error:  # one row of millions must not end the others; it is told apart by its cause
            return of_error(f"{type(error).__name__}: {error}", "internal")
        self.replays += found.device is not None
        row = of_estimates(found, job, (one.standing for one in held.values()))
        if any(type(value) is int and value >= 1 << 63 for value in row.values()):
            return of_error("the job takes more bytes than 64 bits count")
        return row

    def _job(self, given: object) -> tuple[Job, Gpu | None, dict[str, Held]]:
        """The Job of a row, its GPU, and how its fields are known. Raises PreflightError."""
        job, stated = self._stated(given)
        said = given.get(STANDINGS) if isinstance(given, Mapping) else None
        held = by_hand(job, stated, lambda path: False, SHIPPED_ONLY) | _standings(said)
        return *placed(job, self.machine), held

    def _stated(self, given: object) -> tuple[Job, Collection[str]]:
        """The Job of a row, and the fields that it states. Raises PreflightError."""
        if not isinstance(given, Mapping):
            raise UsageError("a row is an object: the fields of a Job")
        stated = dotted({name: value for name, value in given.items() if name != STANDINGS})
        job = checked(stated)
        for name in FILES:
            if job.get(name) is not None:
                raise UsageError(f"{name}: no file that a row names is read")
        named = job.model.name
        if named is not None and not is_known(named):
            job = with_fields(job, {"model.name": None})  # elsewhere an unknown name may be a folder's
        return job, stated.keys()

    def _decided(self, at: str, members: Sequence[_Split]) -> dict[_Key, Row]:
        """The verdicts of those jobs of one kind that the bound decides."""
        kind = self._widened(at, members)
        return kind.decided(members) if kind is not None else {}

    def _widened(self, at: str, members: Sequence[_Split]) -> _Kind | _Same | None:
        """The kind of these jobs. It is made, or its corners are moved outwards, where they are not all between them
        and that is possible."""
        kind = self._kinds.get(at)
        batches, lengths = zip(*(one.key[1:] for one in members), strict=True)
        ends = [(min(batches), min(lengths)), (max(batches), max(lengths))]
        if kind is not None and all(kind.covers(*one) for one in ends):
            return kind
        ends += [kind.low, kind.high] if kind is not None else []
        low, high = [(end(b for b, _ in ends), end(s for _, s in ends)) for end in (min, max)]
        failed = self._failed.get(at)
        if failed is not None and failed[0] <= high[0] and failed[1] <= high[1]:
            return kind
        given = _fields(members[0].row)
        found = self._kind(given, *_wide(low, high)) or self._kind(given, low, high) or self._same(given, low, high)
        if found is None:
            self._failed[at] = high
            if len(self._failed) > KEPT:
                self._failed.popitem(last=False)
            return kind
        self._kinds[at] = found
        if len(self._kinds) > GROUPS:
            self._kinds.popitem(last=False)
        return found

    def _same(self, given: object, low: tuple[int, int], high: tuple[int, int]) -> _Same | None:
        """The answer of all jobs between two corners, where both have the same and no figure: what is wrong with them,
        or why nothing is known, has nothing to do with their sizes."""
        if low == high:
            return None
        try:
            job, gpu, _ = self._job(_sized(given, *low))
            if Estimator(gpu, SHIPPED_ONLY).device_bound(job) is not None:
                return None
        except Exception:  # what is wrong is said below
            pass
        first, last = [self._judged(_sized(given, *size)) for size in (low, high)]
        known = first["requested"] or first["host_expected"] or first["cause"] == "internal"
        return None if known or first != last else _Same(first, low, high)

    def _kind(self, given: object, low: tuple[int, int], high: tuple[int, int]) -> _Kind | None:
        """What jobs between two corners have in common; None: they have to be judged one by one."""
        try:
            first, gpu, held = self._job(_sized(given, *low))
            last, _ = placed(self._stated(_sized(given, *high))[0], self.machine)
            if Certainty(held, Estimator(gpu, SHIPPED_ONLY)).sides() is not None:
                return None
            job = corner(first, *high)
            if identity(job) != identity(last):  # a spelling decides more by the batch
                return None
            together = Together.of(first, last, gpu, SHIPPED_ONLY) if job.machine.accelerator == "gpu" else None
            hosts = _hosts(first, last) if together is not None else None
            estimator = Estimator(gpu, SHIPPED_ONLY)
        except Exception:  # what is wrong is said of each row, where it is judged alone
            return None
        if together is None or hosts is None:
            return None
        standing = standing_of(one.standing for one in held.values())
        shared: Row = {**EMPTY, "by": "bound", "capacity": together.capacity, "standing": standing}
        if isinstance(hosts, Unknown):
            shared |= {"cause": hosts.cause.value, "reasons": f"host: {hosts.words}"}
            shared["unknown"] = ",".join(missing_fields(last)) or None
        else:
            shared |= {"host_verdict": hosts.verdict, "host_limit": hosts.limit}
        gpus = tuple((gpu.capacity, gpu.name) for gpu in that_fit(0, job))
        hopeless = _hopeless(together, estimator, first, low[0], high[1])
        return _Kind(together, low, high, shared, gpus, estimator.largest_gpu, hopeless)


def _hopeless(together: Together, estimator: Estimator, job: Job, batch: int, longest: int) -> int | None:
    """`_Kind.hopeless` of jobs from a batch on, which takes no less than a batch of 1: where it fits, that does."""
    import numpy as np

    short = SMALLEST["train.seq_len"]
    sizes = [np.array([size], np.int64) for size in (batch, short)]
    if short <= longest and together.bounds(*sizes).usual[0] <= together.capacity:
        return 0
    above = {name: least for name, least in SMALLEST.items() if isinstance(own := job.get(name), int) and own > least}
    smallest = unchecked(job, {**above, "train.batch_size": 1, "train.seq_len": short})
    found = estimator.device_bound(smallest)
    if found is None or found[1] <= together.capacity:
        return None if found is None else 0
    shortest = estimator.device_bound(corner(smallest, 1, 1))
    return 1 if shortest is not None and shortest[1] > together.capacity else short


def _bounded(kind: _Kind, members: Sequence[_Split]) -> dict[_Key, Row]:
    """The verdicts of those jobs between the corners of a kind that the bound decides."""
    import numpy as np

    within = [one for one in members if kind.covers(*one.key[1:])]
    if not within:
        return {}
    capacity, gpus, shared = kind.together.capacity, kind.gpus, kind.shared
    _, batches, lengths = zip(*(one.key for one in within), strict=True)
    figures = kind.together.bounds(np.array(batches, np.int64), np.array(lengths, np.int64))
    found: dict[_Key, Row] = {}
    columns = zip(within, figures.requested.tolist(), figures.high.tolist(), figures.exceeds.tolist(), strict=True)
    for one, requested, high, exceeds in columns:
        if not exceeds and high > capacity:
            continue
        verdict, sign = ("exceeds", SIGNS["exceeds"]) if exceeds else ("fits", None)
        if exceeds and requested > kind.largest:
            if kind.hopeless is None or one.key[2] < kind.hopeless:
                continue
            if not kind.hopeless:
                verdict, sign = "at-risk", DOUBTED
        place = bisect_left(gpus, (high, ""))
        row = found[one.key] = shared.copy()
        row["verdict"] = row["device_verdict"] = verdict
        row["requested"], row["process_bound"], row["mark"] = requested, high, sign
        row["gpu_unused"] = None if exceeds else capacity - high
        row["smallest_gpu"] = gpus[place][1] if place < len(gpus) else None
    return found


def _hosts(first: Job, last: Job) -> HostEstimate | Unknown | None:
    """The host's verdict of all jobs between two corners, None if it is not the same. Its bound never falls."""
    ends = [estimate_host(one, one.model.parameters, bound=True, tracing=SHIPPED_ONLY) for one in (first, last)]
    low, high = ends
    if isinstance(low, Unknown) and isinstance(high, Unknown):
        return high if (low.cause, low.fields, low.words) == (high.cause, high.fields, high.words) else None
    if isinstance(low, Unknown) or isinstance(high, Unknown) or high.assumptions:
        return None
    return high if low.verdict == high.verdict and high.verdict in ("fits", "unknown") else None


def _standings(given: object) -> dict[str, Held]:
    """How a row says that its fields are known, as the JSON of `check` has it. Raises UsageError."""
    if given is None:
        return {}
    known = isinstance(given, Mapping) and all(isinstance(how, str) and how in _STANDINGS for how in given.values())
    if not isinstance(given, Mapping) or not known or not given.keys() <= {*fields()}:
        raise UsageError(f"{STANDINGS}: an object of Job fields, each with one of {', '.join(_STANDINGS)}")
    return {name: Held(_STANDINGS[how], "the row says so") for name, how in given.items()}


_Key: TypeAlias = "tuple[str, int, int]"


class _Split(NamedTuple):
    """A row: its name, and its Job as a text without batch and length, with both. `size`: whether both are stated."""

    name: str | None
    row: object
    key: tuple[str, int, int]
    size: bool


def _split(row: object) -> _Split:
    if not isinstance(row, Mapping):
        return _Split(None, row, (_short(repr(row)), 0, 0), False)
    rest = dict(row)
    name = rest.pop("id", None)
    train = rest.get("train")
    if nested := isinstance(train, dict):
        rest["train"] = inner = dict(train)
        batch, length = inner.pop("batch_size", None), inner.pop("seq_len", None)
    else:
        batch, length = rest.pop("train.batch_size", None), rest.pop("train.seq_len", None)
    text = repr(rest)
    if type(batch) is type(length) is int and 0 < batch < MOST and 0 < length < MOST:
        twice = nested and "train." in text and any(str(key).startswith("train.") for key in rest)
        if not twice:  # else which of the two holds is for the Job to say
            return _Split(_text(name), row, (_short(text), batch, length), True)
    return _Split(_text(name), row, (_short(repr(_fields(row))), 0, 0), False)


def _short(text: str) -> str:
    """The text, or a digest of a long one: what is kept does not grow with what a stranger sends."""
    if len(text) <= LONGEST_KEY:
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _fields(row: object) -> object:
    """The Job of a row: all but its name."""
    if not isinstance(row, Mapping):
        return row
    found = dict(row)
    found.pop("id", None)
    return found


def _wide(low: tuple[int, int], high: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Corners further out, so that later jobs of the kind are between them, too."""
    batch = 1 << (high[0] - 1).bit_length()
    return (min(low[0], 2), 1), (batch, max(1 << (high[1] - 1).bit_length(), 8))


def _sized(given: object, batch: int, length: int) -> dict[str, object]:
    """The fields of a row with another batch and length."""
    found = dict(given) if isinstance(given, Mapping) else {}
    sizes = {"batch_size": batch, "seq_len": length}
    if isinstance(found.get("train"), dict):
        return {**found, "train": {**found["train"], **sizes}}
    return {**found, **{f"train.{name}": size for name, size in sizes.items()}}


def _text(name: object) -> str | None:
    """A row's name, in characters that every output can have."""
    return None if name is None else str(name).encode("utf-8", "replace").decode()
