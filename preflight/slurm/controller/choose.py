"""Which nodes a job gets from select/cons_tres, on idle nodes without a topology plugin.

Follows src/plugins/select/cons_tres/job_test.c (choose_nodes, _eval_nodes, _cpus_to_use) and gres_sched.c. The search
is greedy: it takes runs of neighbouring nodes by how well they fit. When it fails, it leaves out the nodes with the
fewest CPUs and GPUs and begins again.
"""

from __future__ import annotations

from msgspec import Struct, field

from preflight.slurm.controller.cores import select_cores
from preflight.slurm.controller.hosts import Host, Shape
from preflight.slurm.controller.job import Gres, SlurmJob
from preflight.slurm.controller.offer import Details, Offer, Rules, cpus_per_core


class Taken(Struct):
    """A node that the job gets, and the CPUs that it may use there."""

    host: Host
    cpus: int
    offer: Offer


class Search(Struct):
    """One job on the nodes of one partition."""

    job: SlurmJob
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
        """Searches without the nodes that give least, leaving out more of them each time."""
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

    @property
    def counted(self) -> list[Gres]:
        """Resources that are counted for the whole job; select/cons_res counts them per node only."""
        return [one for one in self.job.gres if one.per_job and self.rules.cons_tres]

    def _evaluate(self, hosts: list[Host], least: int, most: int, wanted: int) -> list[Taken] | None:
        """_eval_nodes"""
        if len(hosts) < least:
            return None
        per_job = self.counted
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
            cpus = select_cores(self, node, host)
            if not state.take(host, cpus, node):
                return None
        if state.done():
            return state.taken if self.required or not usable else None
        if state.most <= 0:
            return None
        cut: dict[Shape, tuple[int, Offer]] = {}
        for host in hosts:
            if host.name in self.required:
                continue
            if host.shape not in cut:
                node = self.offers[host.name].copy()
                cut[host.shape] = (select_cores(self, node, host), node)
            cpus, node = cut[host.shape]
            if cpus:
                usable.append((host.place, host, cpus, node.copy()))
        return state.fill(_runs(usable, self.job.contiguous))

    def _most_cpus(self, nodes: int) -> int:
        """_get_rem_max_cpus"""
        details = self.details
        most = self.job.min_cpus
        if details.min_gres_cpus:
            most = max(most, details.min_gres_cpus * nodes)
        return max(most, details.min_job_gres_cpus) if details.min_job_gres_cpus else most


Run = list[tuple[Host, int, Offer]]


def _runs(usable: list[tuple[int, Host, int, Offer]], contiguous: bool) -> list[Run]:
    """Runs of neighbouring nodes of equal scheduling weight (the same GPUs near); with --contiguous, of any weight."""
    runs: list[Run] = []
    before: tuple[int, int] | None = None
    for index, host, cpus, node in usable:
        if before is None or index != before[0] + 1 or (node.near_gpus != before[1] and not contiguous):
            runs.append([])
        runs[-1].append((host, cpus, node))
        before = (index, node.near_gpus)
    return runs


class _State(Struct):
    """The resources that the job still needs while nodes are selected."""

    search: Search
    cpus: int
    nodes: int
    least: int
    wanted: int
    most: int
    most_cpus: int = 0
    taken: list[Taken] = field(default_factory=list)
    least_left: int = 0
    """Of `least`, the nodes that are not selected yet."""

    def __post_init__(self) -> None:
        self.least_left = self.least

    def done(self) -> bool:
        return self.nodes <= 0 and self.cpus <= 0 and self._gres_done()

    def _gres_done(self) -> bool:
        return all(one.total >= one.per_job for one in self.search.counted)

    def take(self, host: Host, cpus: int, node: Offer) -> bool:
        """Adds a node (_cpus_to_use, gres_sched_add); False: it gives nothing."""
        search = self.search
        if not search.job.whole_node:
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
        for one in self.search.counted:
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
        contiguous = self.search.job.contiguous
        while left and self.most > 0:
            best, enough = self._best(left)
            if contiguous and not enough:
                break
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

    def _best(self, runs: list[Run]) -> tuple[Run, bool]:
        """The run with the lowest weight; among equals the smallest that is enough, else the largest; is it enough?"""
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
        return best, best_enough

    def _gres_enough(self, nodes: list[Offer]) -> bool:
        for one in self.search.counted:
            if one.total < one.per_job:
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
                # it counts as a node of the job, although it gives nothing
                self.taken.append(Taken(host, 0, node))
                self.nodes, self.least_left, self.most = self.nodes - 1, self.least_left - 1, self.most - 1

    def _single(self, run: Run) -> Host | None:
        """The smallest single node that is enough."""
        best: tuple[Host, int] | None = None
        for host, cpus, node in run:
            if cpus < self.cpus or not self._gres_enough([node]):
                continue
            if best is None or cpus < best[1]:
                best = (host, cpus)
                if cpus == self.cpus:
                    break
        return None if best is None else best[0]
