from __future__ import annotations

from collections.abc import Iterator

from preflight.api import Case, Example, Finding, Rule, Severity, several
from preflight_rules.shared import spaces
from preflight_rules.shared.programs import LOOP, SWEEP

MULTIRUN = """
python train.py -m model=small,large
"""
GROUPS = {
    "conf/config.yaml": "defaults:\n  - model: small\nbatch_size: 8\nmax_length: 128\n",
    "conf/model/small.yaml": "name: gpt2\n",
    "conf/model/large.yaml": "name: gpt2-xl\n",
}
APP = """
import hydra
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from data import dataset


@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(cfg):
    model = AutoModelForCausalLM.from_pretrained(cfg.model.name)
    arguments = TrainingArguments("out", per_device_train_batch_size=cfg.batch_size, bf16=True)
    Trainer(model, arguments, train_dataset=dataset(cfg.max_length)).train()


if __name__ == "__main__":
    main()
"""


class SpacePartlyUnsafe(Rule):
    """Some combinations of a search do not fit: their trials will run out of memory.

    The search then learns only from the trials that fit. Only parameters that change the memory are counted. The
    message has the number of combinations that exceed or are at risk, and the worst one with its need. The notes have
    the largest part of the search space that is safe.

    The first fix changes a setting outside the search (gradient checkpointing, a smaller micro-batch with more
    accumulation steps, the evaluation batch, the loaders): the search keeps all its combinations, and the runs stay the
    same. The next fix drops values from the search so that every remaining combination fits and as many as possible
    remain; it respects your constraints. It is unsafe, because it changes the search. In a program, each branch that
    draws its own values is narrowed separately; a program without branches gets a report and no fix. If the safe part
    differs between models, the notes give it for each model.
    """

    name = "space-partly-unsafe"
    summary = "Some combinations of a search do not fit"
    tags = ("gpu-memory", "search")
    examples = (
        Example(
            "One of three batch sizes does not fit at the longer length",
            {"sweep.yaml": SWEEP, "train.py": LOOP},
            fixed={"sweep.yaml": SWEEP.replace("[8, 16, 64]", "[8, 16]")},
            unsafe=True,
            says=("of 6 combinations do not fit", "batch_size=64, max_length=512"),
            options={"gpu": "T4"},
        ),
        Example(
            "Of two models that Hydra is told to try, the larger one does not fit",
            {"run.sh": MULTIRUN, "train.py": APP, **GROUPS},
            fixed={"run.sh": MULTIRUN.replace("small,large", "small")},
            unsafe=True,
            says=("1 of 2 combinations do not fit", "model=large"),
            options={"gpu": "T4"},
        ),
        Example("All of it fits", {"sweep.yaml": SWEEP, "train.py": LOOP}, finds=0, options={"gpu": "A100-80GB"}),
    )

    def check(self, case: Case) -> Iterator[Finding]:
        counts, estimate = case.space.counts, spaces.binding(case)
        if not several(case) or not (counts.unsafe or estimate is not None) or spaces.all_unsafe(case):
            return
        exceeds = counts.exceeds or (estimate is not None and estimate.verdict == "exceeds")
        severity = Severity.error if exceeds else Severity.warning
        said = spaces.counts_text(case) if counts.unsafe else "some of an unbounded number of combinations do not fit"
        yield spaces.space_finding(self, case, said, spaces.worst_text(case), spaces.axis_places(case), severity)
