"""Which nodes a job gets: choose_nodes and _eval_nodes of select/cons_tres, on idle nodes without a topology plugin.

The search is greedy, as there: runs of neighbouring nodes are taken by how well they fit, and on failure the nodes with
the fewest CPUs and GPUs are left out and the search begins again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from preflight.scheduler.hosts import Host, Shape
from preflight.scheduler.job import Job
from preflight.scheduler.offer import NO_LIMIT, Available, Details, Offer, Rules, cpus_per_core


@dataclass
class Taken:
    """A node that the job gets, and the CPUs that it may use there."""

    host: Host
    cpus: int
    offer: Offer


@dataclass
class Search:
    """One job on the nodes of one partition."""

    job: Job
    details: Details
    rules: Rules
    offers: dict[str, Offer]
    required: frozenset[str] = frozenset()
    taken: list[Taken] = field(default_factory=list)

    @property
    def per_core(self) -> int | None:
        """Tasks per core: as asked for, else one where the cluster says so (_build_gres_mc_data)."""
        return self.details.ntasks_per_core or (1 if self.rules.one_task_per_core else None)

    def choose(self, hosts: list[Host], least: int, most: int, wanted: int) -> list[Taken] | None:
        """The nodes of the job; None where the search finds none."""
        job, details = self.job, self.details
        if len(hosts) < least or not self.required <= {host.name for host in hosts}:
            return None
        if job.ntasks_per_node and details.num_tasks:
            least = max(least, -(-details.num_tasks // job.ntasks_per_node))
        if details.num_tasks and most > details.num_tasks:
            most = max(details.num_tasks, least)
        found = self._evaluate(hosts, least, most, wanted)
        if found is not None:
            return found
        if len(hosts) <= least:
            return self._evaluate(hosts, least, most, wanted)
        return self._without_small(hosts, least, most, wanted)

    def _without_small(self, hosts: list[Host], least: int, most: int, wanted: int) -> list[Taken] | None:
        """Leaves out the nodes with the least to give, a little more each time."""
        weights = {self.offers[host.name].weight for host in hosts}
        left = list(hosts)
        for size in sorted((weights | {1}) - {max(weights)}):
            kept, removed = [], 0
            for index, host in enumerate(left):
                if len(left) - removed <= least and removed:
                    kept += left[index:]
                    break
                if 0 < self.offers[host.name].weight <= size and host.name not in self.required:
                    removed += 1
                else:
                    kept.append(host)
            left = kept
            if not removed and size != 1:
                continue
            found = self._evaluate(left, least, most, wanted)
            if found is not None or len(left) <= least:
                return found
        return None

    def _evaluate(self, hosts: list[Host], least: int, most: int, wanted: int) -> list[Taken] | None:
        """_eval_nodes"""
        if len(hosts) < least:
            return None
        per_job = [one for one in self.job.gres if one.per_job]
        for one in per_job:
            one.total = 0
        state = _State(
            self,
            cpus=self.job.min_cpus,
            nodes=min(least, wanted) if per_job else max(least, wanted),
            least=least,
            wanted=wanted,
            most=most,
        )
        state.most_cpus = self._most_cpus(state.nodes)
        usable: list[tuple[int, Host, int, Offer]] = []
        for host in (host for host in hosts if host.name in self.required):
            node = self.offers[host.name].copy()
            cpus = _select_cores(self, node, host)
            if not state.take(host, cpus, node):
                return None
        if state.done():
            return state.taken if self.required or not usable else None
        if state.most <= 0:
            return None
        cut: dict[Shape, tuple[int, Offer]] = {}
        for index, host in enumerate(hosts):
            if host.name in self.required:
                continue
            if host.shape not in cut:
                node = self.offers[host.name].copy()
                cut[host.shape] = (_select_cores(self, node, host), node)
            cpus, node = cut[host.shape]
            if cpus:
                usable.append((index, host, cpus, node.copy()))
        return state.fill(_runs(usable, hosts))

    def _most_cpus(self, nodes: int) -> int:
        """_get_rem_max_cpus"""
        details = self.details
        most = self.job.min_cpus
        if details.min_gres_cpus:
            most = max(most, details.min_gres_cpus * nodes)
        return max(most, details.min_job_gres_cpus) if details.min_job_gres_cpus else most


Run = list[tuple[Host, int, Offer]]


def _runs(usable: list[tuple[int, Host, int, Offer]], hosts: list[Host]) -> list[Run]:
    """Neighbours that are as good as each other (equal scheduling weight: as many GPUs near)."""
    runs: list[Run] = []
    before: tuple[int, int] | None = None
    for index, host, cpus, node in usable:
        if before is None or index != before[0] + 1 or node.near_gpus != before[1]:
            runs.append([])
        runs[-1].append((host, cpus, node))
        before = (index, node.near_gpus)
    return runs


@dataclass
class _State:
    """What is still needed while nodes are taken."""

    search: Search
    cpus: int
    nodes: int
    least: int
    wanted: int
    most: int
    most_cpus: int = 0
    taken: list[Taken] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.least_left = self.least

    def done(self) -> bool:
        return self.nodes <= 0 and self.cpus <= 0 and self._gres_done()

    def _gres_done(self) -> bool:
        return all(one.total >= one.per_job for one in self.search.job.gres)

    def take(self, host: Host, cpus: int, node: Offer) -> bool:
        """Adds a node (_cpus_to_use, gres_sched_add); False: it has nothing to give."""
        search = self.search
        if not (search.job.whole_node or search.rules.whole_nodes):
            others = max(self.least_left - 1, 0) * cpus_per_core(search.job, search.details, host.shape, search.rules)
            if search.rules.by_socket:
                others *= host.shape.cores
            left = self.most_cpus - others
            if cpus > left:
                cpus = node.cpus = max(left, search.details.cpus_per_node, search.details.min_gres_cpus)
        cpus = self._add_gres(cpus, node)
        if cpus == 0:
            return False
        self.taken.append(Taken(host, cpus, node))
        self.cpus -= cpus
        self.most_cpus -= cpus
        self.nodes -= 1
        self.least_left -= 1
        self.most -= 1
        return True

    def _add_gres(self, cpus: int, node: Offer) -> int:
        used = 0
        if not cpus:
            return cpus
        for one in self.search.job.gres:
            if not one.per_job:
                continue
            own = next((have for have in node.gres if have.gres is one), None)
            if own is None:
                continue
            count = own.total
            if one.cpus_per:
                count = min(cpus // one.cpus_per, own.total)
                used = max(used, count * one.cpus_per)
            one.total += count
        return used or cpus

    def fill(self, runs: list[Run]) -> list[Taken] | None:
        left = list(runs)
        while left and self.most > 0:
            best = self._best(left)
            self._take_from(best)
            if self.done():
                return self.taken
            left = [run for run in left if run is not best]
        enough = self._enough(0)
        return self.taken if self.cpus <= 0 and self._gres_done() and enough else None

    def _enough(self, nodes: int) -> bool:
        """_enough_nodes"""
        needed = self.nodes + self.least - self.wanted if self.wanted > self.least else self.nodes
        return nodes >= needed

    def _best(self, runs: list[Run]) -> Run:
        """The run with the lowest weight; of those that are enough the tightest, else the largest."""
        best, best_cpus, best_enough, best_near = runs[0], 0, False, -1
        for index, run in enumerate(runs):
            cpus = sum(one[1] for one in run)
            near = run[0][2].near_gpus
            enough = cpus >= self.cpus and self._enough(len(run)) and self._gres_enough([one[2] for one in run])
            better = index == 0 or near > best_near
            if not better and near == best_near:
                better = (enough and (not best_enough or cpus < best_cpus)) or (not enough and cpus > best_cpus)
            if better:
                best, best_cpus, best_enough, best_near = run, cpus, enough, near
        return best

    def _gres_enough(self, nodes: list[Offer]) -> bool:
        for one in self.search.job.gres:
            if one.per_job and one.total < one.per_job:
                have = sum(own.total for node in nodes for own in node.gres if own.gres is one)
                if one.total + have < one.per_job:
                    return False
        return True

    def _take_from(self, run: Run) -> None:
        single = self._single(run) if self.nodes <= 1 else None
        for host, cpus, node in run:
            if self.most == 0 or self.done():
                return
            if single is not None and host is not single:
                continue
            if self.most == 1 and cpus < self.cpus:
                continue
            if not self.take(host, cpus, node):
                # counted all the same, with nothing to give
                self.taken.append(Taken(host, 0, node))
                self.nodes, self.least_left, self.most = self.nodes - 1, self.least_left - 1, self.most - 1

    def _single(self, run: Run) -> Host | None:
        """The one node that is enough, the tightest."""
        best: tuple[Host, int] | None = None
        for host, cpus, node in run:
            if cpus < self.cpus or not self._gres_enough([node]):
                continue
            if best is None or cpus < best[1]:
                best = (host, cpus)
                if cpus == self.cpus:
                    break
        return None if best is None else best[0]


# --- cores and tasks on one node --------------------------------------------------------------------------------------


def _select_cores(search: Search, node: Offer, host: Host) -> int:
    """The CPUs to use on a node, 0 where no task fits (_select_cores); changes the offer's cores and resources."""
    job, details, shape = search.job, search.details, host.shape
    low, high = _task_range(job, details, search.per_core, shape)
    each = details.cpus_per_task
    if not job.overcommit:
        fitting = node.cpus // each
        if fitting < low:
            high = 0
        elif high == NO_LIMIT or fitting < high:
            high = fitting
    cpus = node.cpus
    if job.gres:
        cpus, high = _gres_cores(search, node, host, cpus, low, high)
    if high == 0:
        return 0
    return cpus


def _task_range(job: Job, details: Details, per_core: int | None, shape: Shape) -> tuple[int, int]:
    """The fewest and the most tasks that one node takes."""
    if job.ntasks_per_node:
        return job.ntasks_per_node, job.ntasks_per_node
    if job.ntasks_per_socket:
        return job.ntasks_per_socket, job.ntasks_per_socket * shape.sockets
    if per_core:
        return per_core, per_core * shape.total_cores
    if job.ntasks_per_gpu:
        if details.min_nodes == 1:
            return details.num_tasks, details.num_tasks
        if details.min_nodes > 0:
            return details.num_tasks // details.min_nodes, details.num_tasks // details.min_nodes
        return 1, NO_LIMIT
    if details.max_nodes == 1:
        return (details.num_tasks, details.num_tasks) if details.num_tasks else (1, NO_LIMIT)
    if details.num_tasks == 1 or (details.num_tasks and details.num_tasks == details.min_nodes == details.max_nodes):
        return 1, 1
    return 1, NO_LIMIT


def _gres_cores(search: Search, node: Offer, host: Host, cpus: int, low: int, high: int) -> tuple[int, int]:
    """gres_select_filter_sock_core, for resources that are not bound to sockets: CPUs to use, and the most tasks."""
    if high == 0:
        return cpus, 0
    step = max(low, 1)
    given_cpus = False
    shape, details = host.shape, search.details
    threads = min(shape.tpc, search.job.threads_per_core or shape.tpc)
    for one in node.gres:
        gres = one.gres
        given_cpus = given_cpus or bool(gres.cpus_of_each)
        most = _most_gres(one)
        if most and (gres.per_node > most or gres.per_socket * max(1, search.job.sockets_per_node or 0) > most):
            return cpus, 0
        if gres.per_node and gres.per_task:
            tasks = gres.per_node // gres.per_task
            if tasks == 0 or tasks > high or tasks < low:
                return cpus, 0
            if high == NO_LIMIT or high > tasks:
                high = most
        each = gres.cpus_per or (gres.tasks_per or 0) * details.cpus_per_task or gres.default_cpus_per
        count = one.count
        if each:
            most = min(cpus // each, most) if most else cpus // each
            count = min(count, most)
        if count == 0 or gres.per_node > count or gres.per_task > count:
            high = 0
        if gres.per_task:
            high = min(high, count // gres.per_task)
        low, high = low // step * step, high // step * step
        if high == 0:
            return cpus, 0
        if high == NO_LIMIT:
            if each:
                one.total = min(cpus // each, one.total)
            continue
        high, needed = _needed_cores(search, one, node, threads, low, high, each, count, shape.tpc)
        if needed > sum(node.cores):
            return cpus, 0
        cpus = _without_extra(node, needed, cpus, shape.tpc)
        if each:
            one.total = min(cpus // each, one.total)
            if gres.per_node > one.total or gres.per_task > one.total:
                high = 0
                break
    if not given_cpus and (details.cpus_per_task > 1 or not search.rules.one_task_per_core):
        cpus = min(cpus, high * details.cpus_per_task & 0xFFFFFFFF)
    return cpus, high


def _most_gres(one: Available) -> int:
    if not one.most:
        return 0
    left = max(one.gres.per_job - one.gres.total, 0)
    return left if left and left < one.most else one.most


def _needed_cores(
    search: Search, one: Available, node: Offer, threads: int, low: int, high: int, each: int, count: int, tpc: int
) -> tuple[int, int]:
    """The tasks that the node's cores are enough for, and the cores that they need."""
    size, cores = search.details.cpus_per_task, sum(node.cores)
    if search.per_core == 1 and size % threads:
        size = (size // threads + 1) * threads
    needed = high * size
    while high >= low:
        needed = -(-needed // threads)
        if needed <= cores:
            break
        high -= 1
        needed = high * size
    if each:
        gres = one.gres
        units = gres.per_node or gres.per_socket * len(node.cores) or gres.per_task * high or count or 1
        needed = max(needed, -(-units * each // tpc))
    return high, needed


def _without_extra(node: Offer, needed: int, cpus: int, tpc: int) -> int:
    """Gives back the cores beyond those needed, from the fullest sockets; the CPUs follow once cores are too few."""
    total = sum(node.cores)
    if total <= needed:
        return cpus
    if len(node.cores) == 1:
        node.cores[0] = needed
    else:
        node.cores = _levelled(node.cores, needed)
    return cpus - tpc * max(0, min(total - 1, (cpus - 1) // tpc) - needed + 1)


def _levelled(cores: list[int], needed: int) -> list[int]:
    """The cores cut from the top until so many are left, the last ones from the first sockets."""
    level = 0
    for height in sorted(set(cores)):
        if sum(min(one, height) for one in cores) > needed:
            break
        level = height
    while sum(min(one, level + 1) for one in cores) <= needed:
        level += 1
    kept = [min(one, level) for one in cores]
    left = needed - sum(kept)
    for socket in range(len(cores) - 1, -1, -1):
        if left and cores[socket] > level:
            kept[socket] += 1
            left -= 1
    return kept
