from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from preflight.api import MIB, Case, Confidence, Example, Finding, HostEstimate, Options, Rule, Severity, at_most, gib
from preflight_rules.shared import loaders, remedies
from preflight_rules.shared.host import describe_loaders, host_finding, limit_words, spikes, too_much
from preflight_rules.shared.programs import LOADER, options

WITH_VALIDATION = LOADER.replace(
    "for batch in loader:",
    "validation_loader = DataLoader(validation, batch_size=args.batch_size, num_workers=16)\nfor batch in loader:",
).replace("num_workers=16)\nval", "num_workers=16, persistent_workers=True)\nval")
LIGHTNING = """
import lightning as L
import torch
from torch.utils.data import DataLoader

from data import dataset, validation


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(10, 10)

    def training_step(self, batch, index):
        return self.net(batch).mean()

    def validation_step(self, batch, index):
        self.log("loss", self.net(batch).mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=16, persistent_workers=True)
validation_loader = DataLoader(validation, batch_size=64, num_workers=16)
L.Trainer(max_epochs=10).fit(Model(), loader, validation_loader)
"""


LARGE = 2**30
"""A sample that is read from a file of its own, a scene or a volume, may be as large as this."""


class SpikeOptions(Options):
    largest_sample: int = Field(
        2**20,
        gt=0,
        description="No finding if decoded samples of this size (bytes) would fit and the real size is unknown.",
    )


class ValidationMemorySpike(Rule[SpikeOptions]):
    """Training fits in host memory, and the job is killed when the validation loaders start.

    At the end of an epoch the workers of the validation loader start and fill their queue, and persistent training
    workers keep their memory. SLURM's MaxRSS is sampled and does not show this peak. Where the arguments of
    transformers' or Lightning's trainer tell it, the message says that no checkpoint is written before the first
    validation: all steps are lost then.

    If no file states the size of a decoded sample, the finding says how large a sample may be, as information, where
    that is less than usual samples take (224 x 224 pixels in fp32 are 0.6 MiB), or up to 1 GiB where the data set opens
    a file of arrays for each sample. State `data.sample_bytes` in the
    settings to get a verdict.

    The fix raises `--mem` up to the memory that the node is known to have, and lowers the memory of the loaders
    (`persistent_workers=false`, or half of the workers). Without a SLURM request it changes the loaders only. The run
    stays the same.
    """

    name = "validation-memory-spike"
    summary = "Training fits, but the validation loaders exceed the memory of the node"
    tags = ("host-memory", "evaluation")
    examples = (
        Example(
            "A second loader with as many workers, while the first one's workers stay",
            {"train.py": WITH_VALIDATION},
            fixed={"train.py": WITH_VALIDATION.replace("persistent_workers=True", "persistent_workers=False")},
            says=("training fits with", "validation loaders"),
            options=options(18),
        ),
        Example(
            "The size of a sample is nowhere: the inequality is solved for it",
            {"train.py": WITH_VALIDATION},
            says=("fits only if one decoded sample is at most", "data.sample_bytes"),
            options={"set": {"machine.memory_limit": 16 * 1024 * MIB, "train.batch_size": 256}},
        ),
        Example(
            "Samples of any usual size fit",
            {"train.py": WITH_VALIDATION},
            finds=0,
            options={"set": {"machine.memory_limit": 64 * 1024 * MIB}},
        ),
        Example(
            "Lightning saves after the validation: the steps of the first epoch are lost",
            {"train.py": LIGHTNING},
            says=("training fits with", "no checkpoint is written before the first validation"),
            options=options(18),
        ),
        Example("Room for both loaders", {"train.py": WITH_VALIDATION}, finds=0, options=options(64)),
    )

    def check(self, case: Case[SpikeOptions]) -> Iterator[Finding]:
        host = too_much(case)
        if host is not None and spikes(case, host):
            yield self._spike(case, host)
        elif case.job.data.sample_bytes is None and case.job.data.validation_workers is not None:
            yield from self._solve(case)

    def _spike(self, case: Case, host: HostEstimate) -> Finding:
        doing, lost = describe_loaders(case.job), remedies.unsaved(case)
        message = (
            f"training fits with {gib(host.train_only or 0)} per node, but with the validation loaders it needs "
            f"{gib(host.per_node.expected)} ({gib(host.per_node.low)} to {gib(host.per_node.high)}) of the "
            f"{gib(host.limit or 0)} it may use ({limit_words(host)}): {doing}{lost}"
        )
        raised = loaders.raised_memory(case, host)
        proposals = (() if raised is None else (raised,)) + loaders.loader_proposals(case)
        headline = f"training fits, and the validation loaders beside it do not{lost}: {doing}"
        return host_finding(self, case, host, message, proposals, "too much when validation starts", headline)

    def _solve(self, case: Case[SpikeOptions]) -> Iterator[Finding]:
        threshold = loaders.sample_threshold(case.job, case.tracing)
        most = LARGE if case.fact("sample_files") else case.options.largest_sample
        if threshold is None or threshold > most:
            return
        alone = loaders.sample_threshold(case.job, case.tracing, training_only=True)
        more = "" if alone is None or alone <= threshold else f" (training alone: {at_most(alone)})"
        origin = case.origin("data.validation_workers", "data.workers", "train.batch_size")
        yield self.finding(
            f"validation fits only if one decoded sample is at most {at_most(threshold)}{more}: its size is "
            f"unknown; declare data.sample_bytes ({describe_loaders(case.job)})",
            origin,
            Severity.info,
            Confidence.medium,
            settings=("data.sample_bytes", "data.workers", "train.batch_size"),
            label="the memory depends on the size of a sample",
            headline=f"validation fits only if one decoded sample is at most {at_most(threshold)}: "
            "no file states its size",
            help=('state it in the settings: [tool.preflight.set] "data.sample_bytes" = BYTES',),
            side="host",
        )
