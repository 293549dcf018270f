"""Files of arguments that a trainer of a language model reads: one reader per kind, chosen by its keys.

arguments      JSON or YAML for HfArgumentParser (`run_glue.py args.json`, `trl sft --config x.yaml`)
axolotl        `axolotl train x.yaml`
llamafactory   `llamafactory-cli train x.yaml`
torchtune      `tune run lora_finetune_single_device --config x.yaml`
litgpt         `litgpt finetune_lora --config x.yaml`
swift          `swift sft --config x.yaml`
accelerate     `accelerate launch --config_file x.yaml`     configures another program, starts nothing
deepspeed      `--deepspeed ds.json`                         likewise
fsdp           `--fsdp_config fsdp.json`                     likewise
lightning      LightningCLI's `--config x.yaml`

What stands on the command line beside the file comes before it.
"""

from __future__ import annotations

from collections.abc import Mapping

from preflight.frameworks.arguments import Arguments, document_of, given_by
from preflight.vocabulary.project import Project
from preflight.vocabulary.reading import Call, Fact, Problem, Reading
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Origin, Value

NAME = "transformers_args"

_WORDS = (
    "per_device_train_batch_size", "micro_batch_size", "zero_optimization", "train_micro_batch_size_per_gpu",
    "distributed_type", "compute_environment", "trainer", "_component_: torchtune.", "train_type", "tuner_type",
    "transformer_layer_cls_to_wrap",
)  # fmt: skip
"""A file without any of them is not parsed at all."""


def recognises(source: Source, project: Project) -> bool:
    """A mapping whose keys are those of one of the kinds."""
    if not any(word in source.text for word in _WORDS):
        return False
    try:
        top = document_of(source, project).value()
    except DocumentError:
        return False
    return isinstance(top, Mapping) and kind_of(top) is not None


def kind_of(top: Mapping[str, Value]) -> str | None:
    """Which trainer reads the file; None where its keys fit none."""
    keys = set(top)
    if {"compute_environment", "distributed_type"} & keys and "num_processes" in keys:
        return "accelerate"
    if "zero_optimization" in keys or "train_micro_batch_size_per_gpu" in keys:
        return "deepspeed"
    if "base_model" in keys and keys & {"micro_batch_size", "sequence_len", "datasets"}:
        return "axolotl"
    if "model_name_or_path" in keys and keys & {"finetuning_type", "stage", "template", "cutoff_len"}:
        return "llamafactory"
    if _is_recipe(top):
        return "torchtune"
    train = top.get("train")
    if keys & {"checkpoint_dir", "model_name"} and isinstance(train, Mapping) and "micro_batch_size" in train:
        return "litgpt"
    if keys & {"train_type", "tuner_type"} and "model" in keys and keys & {"dataset", "per_device_train_batch_size"}:
        return "swift"
    if any(key.endswith("transformer_layer_cls_to_wrap") for key in keys) and not keys & {"output_dir", "fsdp"}:
        return "fsdp"
    if "per_device_train_batch_size" in keys and keys & {"output_dir", "model_name_or_path", "learning_rate"}:
        return "arguments"
    trainer = top.get("trainer")
    if isinstance(trainer, Mapping) and isinstance(top.get("model"), Mapping):
        model = top["model"]
        if isinstance(model, Mapping) and "class_path" in model:
            return "lightning"
    return None


def read(source: Source, call: Call | None, project: Project) -> Reading:
    """The file's bindings, by the trainer that reads it."""
    from preflight.frameworks import axolotl
    from preflight.frameworks.launch import launch_bindings, launch_links
    from preflight.frameworks.shared import unread

    try:
        document = document_of(source, project)
    except DocumentError as error:
        problem = Problem("invalid-config", error.message, Origin(source.path, error.span))
        return Reading(source.path, NAME, problems=(problem,), trains=False)
    top = document.value()
    kind = kind_of(top) if isinstance(top, Mapping) else None
    if not isinstance(top, Mapping) or kind is None:
        return Reading(source.path, NAME, trains=False)
    starts = kind not in ("accelerate", "deepspeed", "fsdp")
    given = given_by(call.words) if call is not None and starts and kind != "lightning" else {}
    found = axolotl.READERS[kind](Arguments(document, top, given=given))
    found.bindings += unread(found, project)
    framework = Fact("framework", axolotl.FRAMEWORKS.get(kind, "transformers-trainer"))
    facts = (framework, Fact("reads_config", True), *found.facts) if starts else tuple(found.facts)
    bindings = launch_bindings(call, facts, found.bindings) if starts and call is not None else found.bindings
    links = [*launch_links(call, project), *found.links] if starts else found.links
    return Reading(
        source.path, kind, bindings=tuple(bindings), links=tuple(links), facts=facts,
        problems=tuple(found.problems), trains=starts,
    )  # fmt: skip


def _is_recipe(top: Mapping[str, Value]) -> bool:
    """torchtune's recipes build a model and an optimizer by `_component_`; its other files generate or evaluate."""
    model, optimizer = top.get("model"), top.get("optimizer")
    return (
        isinstance(model, Mapping) and str(model.get("_component_", "")).startswith("torchtune.")
        and isinstance(optimizer, Mapping) and "_component_" in optimizer
    )  # fmt: skip
