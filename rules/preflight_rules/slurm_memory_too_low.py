from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, HostEstimate, Proposal, Rule, Safety, gib, host_of, severity_of
from preflight_rules.shared import loaders
from preflight_rules.shared.host import doing, parts_notes, spikes
from preflight_rules.shared.programs import CLUSTER, JOB_SAMPLES, ON_CLUSTER, job, job_files
from preflight_rules.shared.slurm import allocation_of, memory_change, node_limit, place, whole_gib

HYDRA = """
import hydra
import torch
from torch.utils.data import DataLoader

from data import dataset


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = torch.nn.Linear(10, 10).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(dataset, batch_size=cfg.batch_size, num_workers=cfg.workers):
        model(batch).mean().backward()
        optimizer.step()


main()
"""
SUBMITIT = """
defaults:
  - override hydra/launcher: submitit_slurm
batch_size: 32
workers: 4
hydra:
  mode: MULTIRUN
  sweeper:
    params:
      seed: 1,2
  launcher:
    cpus_per_task: 8
    mem_gb: 4
    gpus_per_node: 1
"""
SMALL = job("--nodes=1 --ntasks-per-node=4", "--gres=gpu:a100:4", "--cpus-per-task=8", "--mem=32G")
UNASKED = SMALL.replace("#SBATCH --mem=32G\n", "")


class SlurmMemoryTooLow(Rule):
    """The job asks SLURM for less host memory than it needs on a node, and the node has more.

    Every rank loads its own checkpoint, has its own workers and queues its own batches. All of this counts against
    `--mem` (or `--mem-per-cpu`, `--mem-per-gpu`, or the default of the cluster). Do not derive the request from
    SLURM's `MaxRSS`: it is sampled and misses short peaks.

    SLURM kills the job when it exceeds the request, often at the end of the first epoch, after hours in the queue.

    The fix raises the request to the need, rounded up to whole GiB, and never above the memory that the node is known
    to have. The run stays the same. If the memory of the node is unknown, the fix is unsafe, because the scheduler may
    refuse the job.
    """

    name = "slurm-memory-too-low"
    summary = "The requested memory is less than the job needs on a node"
    tags = ("slurm", "host-memory")
    examples = (
        Example(
            "Four ranks need more than they ask for, and the node has it",
            job_files(SMALL),
            fixed={"train.sbatch": SMALL.replace("--mem=32G", "--mem=72G")},
            says=("--mem gives 32 GiB per node", "4 ranks per node"),
            options=ON_CLUSTER,
        ),
        Example("The same job with enough", job_files(SMALL.replace("32G", "128G")), finds=0, options=ON_CLUSTER),
        Example(
            "Nothing is asked for, and what the partition gives by default is too little",
            {**job_files(UNASKED), "cluster.toml": CLUSTER + "default_memory_per_cpu = 1024\n"},
            fixed={"train.sbatch": UNASKED.replace("per-task=8\n", "per-task=8\n#SBATCH --mem=72G\n")},
            says=("the default per cpu gives 32 GiB per node",),
            options=ON_CLUSTER,
        ),
        Example(
            "A launcher that submits for Hydra counts in GiB",
            {"train.py": HYDRA, "conf/config.yaml": SUBMITIT},
            fixed={"conf/config.yaml": SUBMITIT.replace("mem_gb: 4", "mem_gb: 11")},
            unsafe=True,
            says=("--mem gives 4 GiB per node",),
            options={"set": JOB_SAMPLES},
        ),
        Example(
            "Nothing says how large a sample is",
            job_files(SMALL),
            finds=0,
            options={"machine": "cluster.toml", "set": {}},
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        host, request, found = host_of(case), case.study.request, allocation_of(case)
        if host is None or request is None or found is None or host.limited_by != "memory_limit":
            return
        node, risk = node_limit(case), severity_of(host.per_node, host.limit)
        if risk is None or host.limit is None or spikes(case, host) or (node is not None and node <= host.limit):
            return
        origin = place(request, "memory", "memory_per_cpu", "memory_per_gpu")
        said = found.memory_said or "the request"
        room = "" if node is None else f"; a node has {gib(node)}"
        yield self.finding(
            f"{said} gives {gib(host.limit)} per node, and the job needs {gib(host.per_node.expected)} "
            f"({gib(host.per_node.low)} to {gib(host.per_node.high)}): {doing(case, host)}{room}",
            origin,
            estimate=host,
            settings=("request.memory",),
            label=f"{gib(host.limit)} per node",
            headline=f"{said} gives too little host memory: {doing(case, host)}{room}",
            notes=parts_notes(host),
            help=(f"ask for at least {gib(whole_gib(host.per_node.high))} per node",),
            proposals=tuple(self._raise(case, host, node)),
        )

    def _raise(self, case: Case, host: HostEstimate, node: int | None) -> Iterator[Proposal]:
        change = memory_change(case, host.per_node.high)
        if change is None or not loaders.fits(case, {}, change[1]):
            return
        title = f"{change[0].field.removeprefix('request.').replace('_', ' ')} -> {gib(int(str(change[0].value)))}"
        if node is not None:
            yield Proposal(title, (change[0],), Safety.safe)
        else:
            yield Proposal(title, (change[0],), reason="the memory of the nodes is unknown")
