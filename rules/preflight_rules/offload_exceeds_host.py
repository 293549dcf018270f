from __future__ import annotations

from collections.abc import Iterator

from preflight.api import GIB, Case, Example, Finding, Rule, gib, severity_of, weights_of
from preflight_rules.shared.host import asked_for, offloaded, parts_notes

OFFLOADED = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from data import dataset

model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf")
arguments = TrainingArguments("out", per_device_train_batch_size=1, bf16=True, deepspeed="zero3.json")
Trainer(model, arguments, train_dataset=dataset).train()
"""
ZERO = """
{
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu"},
    "offload_param": {"device": "cpu"}
  },
  "bf16": {"enabled": true}
}
"""
FILES = {"train.py": OFFLOADED, "zero3.json": ZERO}


class OffloadExceedsHost(Rule):
    """States that are offloaded from the GPUs need more host memory than the job may use on a node.

    ZeRO-Offload keeps fp32 weights, both Adam moments and the gradients of every parameter in pinned host memory. The
    states alone take 16 to 18 bytes per parameter; public reports of ZeRO-3 with full offload show 23 to 25. All ranks
    of all nodes share one copy, so that a node holds its share: parameters / nodes.

    Such a job fits the GPU, and stops when DeepSpeed initialises its engine.

    There is no fix that preflight can write. What helps: more nodes, a node with more memory, offloading only the
    optimizer or nothing, or adapters (LoRA), which have few states.
    """

    name = "offload-exceeds-host"
    summary = "Offloaded states need more host memory than the job may use"
    tags = ("host-memory", "distributed")
    examples = (
        Example(
            "Seven billion parameters on a node of 128 GiB",
            FILES,
            says=("6,738,415,616 parameters", "24 bytes each", "128 GiB it may use"),
            options={"set": {"data.sample_bytes": 8192, "machine.node_memory": 128 * GIB}},
        ),
        Example(
            "A node of 512 GiB",
            FILES,
            finds=0,
            options={"set": {"data.sample_bytes": 8192, "machine.node_memory": 512 * GIB}},
        ),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        host = offloaded(case)
        if host is None or asked_for(case, host):
            return
        weights = weights_of(case.job, tracing=case.tracing)
        if severity_of(host.per_node, host.limit) is None or weights is None or host.limit is None:
            return
        nodes = case.job.parallel.nodes or 1
        need = host.breakdown["offload"]
        origin = case.origin("parallel.offload", "parallel.strategy")
        yield self.finding(
            f"{weights.parameters:,} parameters with {case.job.parallel.offload} offloaded keep {gib(need)} on "
            f"{'the node' if nodes == 1 else f'each of {nodes} nodes'} "
            f"({need * nodes / weights.parameters:.0f} bytes each); with everything else it needs "
            f"{gib(host.per_node.expected)} of the {gib(host.limit)} it may use",
            origin,
            estimate=host,
            settings=("parallel.offload", "parallel.nodes", "machine.memory_limit"),
            label="these states are kept in host memory",
            notes=parts_notes(host),
            help=("offload less, spread the states over more nodes, or train adapters",),
        )
