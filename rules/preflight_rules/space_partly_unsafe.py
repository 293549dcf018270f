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
    """Some combinations of a search do not fit: those trials die, and the search learns from the others alone.

    Only axes that reach a setting with a say in memory count. The message has the number of combinations that exceed or
    are at risk and the worst one with its need; the notes have the largest part of the space that is safe.

    A fix outside the search is tried first (gradient checkpointing, a smaller micro-batch with accumulation, the
    evaluation batch, the loaders): it keeps the whole space and the same runs. Else the values that have to go are
    dropped so that one box, as large as can be, is left; that is another search, hence unsafe. Your constraints hold in
    it. In a program, where each branch draws its own values, each branch is narrowed by itself; without branches it is
    a report only, and what one box cannot say is said per model.
    """

    name = "space-partly-unsafe"
    summary = "Some combinations of a search do not fit"
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
        said = spaces.counts_text(case) if counts.unsafe else "not all of an unbounded number of combinations fit"
        message = f"{said}; {spaces.worst_text(case)}"
        yield spaces.space_finding(self, case, message, spaces.axis_places(case), severity)
