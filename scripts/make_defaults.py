"""The defaults of transformers' TrainingArguments and TRL's configurations, by release: frameworks/transformers.json.

    python scripts/make_defaults.py FOLDER      reads every transformers-*.whl and trl-*.whl in it
    python -m pip download --no-deps -d FOLDER transformers==5.23.0 trl==1.16.0 ...

Nothing is imported: the classes are read as text. An argument has an entry for each release of those read in which its
type or its default changed (type "": the class does not have it, and its base class may); between two releases that
were read, the earlier one's default stands. The first entry holds for every release before it. A default that depends
on the release of torch is the newest torch's from transformers 5 on, and the older ones' before. `taken` says which
arguments the classes and the trainers took in some of the releases and not in all of them: an argument in use says
which release it is. `needs` says which transformers each TRL needs at least.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

TABLE = Path(__file__).parents[1] / "preflight" / "frameworks" / "transformers.json"
TRAINING = (
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "eval_strategy",
    "eval_accumulation_steps", "prediction_loss_only", "batch_eval_metrics", "dataloader_num_workers",
    "dataloader_prefetch_factor", "dataloader_pin_memory", "dataloader_persistent_workers", "bf16", "fp16", "tf32",
    "gradient_checkpointing", "torch_compile", "optim", "deepspeed", "fsdp", "torch_empty_cache_steps",
    "predict_with_generate", "generation_max_length", "generation_num_beams", "use_liger_kernel",
    "auto_find_batch_size",
)  # fmt: skip
"""Arguments that decide memory. Others are not kept."""
TRL = (
    "packing", "max_length", "max_prompt_length", "max_completion_length", "num_generations", "beta",
    "activation_offloading", "loss_type", "precompute_ref_log_probs", "reference_free", "response_length", "use_vllm",
    "vllm_mode", "vllm_gpu_memory_utilization", "vllm_enable_sleep_mode", "padding_free", "sync_ref_model",
    "force_use_ref_model",
)  # fmt: skip
MODEL = ("model_name_or_path", "dtype", "torch_dtype", "attn_implementation", "use_peft", "lora_r", "lora_dropout",
         "lora_target_modules", "lora_modules_to_save", "use_dora", "load_in_4bit", "load_in_8bit",
         "bnb_4bit_quant_type", "use_bnb_nested_quant")  # fmt: skip
CLASSES: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "transformers": {"transformers": ("Seq2SeqTrainingArguments", TRAINING)},
    "trl": {
        "sft": ("SFTConfig", TRAINING + TRL), "dpo": ("DPOConfig", TRAINING + TRL),
        "grpo": ("GRPOConfig", TRAINING + TRL), "reward": ("RewardConfig", TRAINING + TRL),
        "kto": ("KTOConfig", TRAINING + TRL), "orpo": ("ORPOConfig", TRAINING + TRL),
        "cpo": ("CPOConfig", TRAINING + TRL),
        "rloo": ("RLOOConfig", TRAINING + TRL), "ppo": ("PPOConfig", TRAINING + TRL), "model": ("ModelConfig", MODEL),
    },
}  # fmt: skip
"""Library -> flavour -> the class, and which of its arguments are kept."""
TRAINERS: Mapping[str, tuple[str, ...]] = {
    "transformers": ("Trainer", "Seq2SeqTrainer"),
    "trl": ("SFTTrainer", "DPOTrainer", "GRPOTrainer", "RewardTrainer", "KTOTrainer", "ORPOTrainer", "CPOTrainer",
            "RLOOTrainer", "PPOTrainer"),
}  # fmt: skip
"""Library -> classes whose constructors' arguments are compared, beside those of CLASSES."""
_FILES = re.compile(
    r"^transformers/(training_args|trainer)(_seq2seq)?\.py$|^trl/(trainer|experimental/\w+)/\w*_?(config|trainer)\.py$"
)

Entry = list[object]
"""[release, type, whether it may be None, default]"""
GONE: Entry = ["", True, None]
"""What stands for an argument in the releases from which on its class does not have it any more."""


def release(path: Path) -> tuple[int, ...]:
    """`trl-1.16.0-py3-none-any.whl` -> (1, 16, 0)."""
    return tuple(int(part) for part in path.name.split("-")[1].split(".")[:3] if part.isdigit())


def needed(wheel: Path) -> str:
    """The oldest transformers that a release of TRL can be installed with; "0" if its metadata does not say."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        said = re.search(r"^Requires-Dist: transformers\s*\(?>=([\d.]+)", archive.read(name).decode(), re.MULTILINE)
    return said[1] if said else "0"


@lru_cache(maxsize=128)
def classes_of(wheel: Path) -> dict[str, ast.ClassDef]:
    """Every class of a wheel's files of arguments; what stands under trl/trainer counts more than experiments."""
    found: dict[str, ast.ClassDef] = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted((n for n in archive.namelist() if _FILES.match(n)), reverse=True):
            tree = ast.parse(archive.read(name))
            for node in tree.body:
                if not isinstance(node, ast.ClassDef) or f"_{node.name}" in map(ast.unparse, node.bases):
                    continue  # a name that was kept for a class that has moved
                if node.name not in found or "/trainer/" in name:
                    found[node.name] = node
    return found


def fields_of(name: str, classes: Mapping[str, ast.ClassDef], newest_torch: bool) -> dict[str, Entry]:
    """Argument -> [type, nullable, default], those of base classes that are known as well."""
    node = classes.get(name)
    if node is None:
        return {}
    found: dict[str, Entry] = {}
    for base in reversed(node.bases):
        found |= fields_of(ast.unparse(base).rpartition(".")[2], classes, newest_torch)
    assigned: dict[str, ast.expr] = {}
    for one in ast.walk(node):
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(target, ast.Name) and (newest_torch or target.id not in assigned):
            assigned[target.id] = one.value
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            kind, nullable = type_of(one.annotation)
            default = default_of(one.value, assigned)
            found[one.target.id] = [kind, nullable or default is None, default]
    return found


def taken_by(name: str, classes: Mapping[str, ast.ClassDef]) -> frozenset[str] | None:
    """Names that the constructor of a class takes, older ones that it still accepts too; None if it is not there."""
    node = classes.get(name)
    if node is None:
        return None
    found = set() if name.endswith("Trainer") else set(fields_of(name, classes, True))
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            found |= {each.arg for each in (*one.args.args, *one.args.kwonlyargs)}
            said = [call for call in one.decorator_list if isinstance(call, ast.Call)]
            words = [each.value for call in said for each in ast.walk(call) if isinstance(each, ast.Constant)]
            found |= {word for word in words if isinstance(word, str) and word.isidentifier()}
            if one.args.kwarg is not None:
                found.add("**")
    return frozenset(found - {"self"})


def taken(
    wheels: list[Path], names: tuple[str, ...], inherited: frozenset[str]
) -> dict[str, dict[str, list[list[str]]]]:
    """Class -> argument -> [first release, last release], ..., for arguments that not every release takes.

    `inherited` are arguments of another library's base class: a class may repeat them to change their defaults.
    """
    found: dict[str, dict[str, list[list[str]]]] = {}
    each = [(".".join(map(str, release(wheel))), classes_of(wheel)) for wheel in wheels]
    for name in names:
        seen = [(number, args) for number, classes in each if (args := taken_by(name, classes))]
        every = sorted({argument for _, args in seen for argument in args} - inherited - {"**"})
        for argument in every:
            spans: list[list[str]] = []
            before = False
            for number, args in seen:
                has = argument in args or "**" in args
                if has and before:
                    spans[-1][1] = number
                elif has:
                    spans.append([number, number])
                before = has
            if spans != [[seen[0][0], seen[-1][0]]]:
                found.setdefault(name, {})[argument] = spans
    return found


def type_of(annotation: ast.expr) -> tuple[str, bool]:
    """int, float, bool or str; the last for all that a flag gives as text (enumerations, dictionaries, lists)."""
    text = annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)
    names = set(re.findall(r"\w+", str(text))) - {"Optional", "Union", "typing"}
    nullable = "None" in names or "Optional" in str(text)
    kinds = [kind for kind in ("bool", "float", "int") if names - {"None"} <= {kind, "int"} and kind in names]
    return (kinds[0] if kinds else "str"), nullable


def default_of(value: ast.expr | None, assigned: Mapping[str, ast.expr]) -> object:
    """The plain value of a default; None for one that is made when the object is."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        value = next((keyword.value for keyword in value.keywords if keyword.arg == "default"), None)
    if isinstance(value, ast.Name):
        value = assigned.get(value.id)
    try:
        found = None if value is None else ast.literal_eval(value)
    except ValueError:
        return None
    return found if isinstance(found, (bool, int, float, str)) else None


def changes(wheels: list[Path], renamed: Mapping[str, str], name: str, kept: tuple[str, ...]) -> dict[str, list[Entry]]:
    """Argument -> an entry for each release in which it changed."""
    found: dict[str, list[Entry]] = {}
    for wheel in wheels:
        classes = classes_of(wheel)
        fields = fields_of(name, classes, release(wheel) >= (5,))
        fields |= {new: fields[old] for old, new in renamed.items() if old in fields and new not in fields}
        for argument in kept:
            entry = fields.get(argument, GONE if classes.get(name) is not None else None)
            if entry is None:
                continue
            if argument not in found or found[argument][-1][1:] != entry:
                number = ".".join(map(str, release(wheel))) if argument in found else "0"
                found.setdefault(argument, []).append([number, *entry])
    return {argument: entries for argument, entries in sorted(found.items()) if entries != [["0", *GONE]]}


def lines(table: Mapping[str, object]) -> Iterator[str]:
    """JSON with one argument a line."""
    parts = []
    for name, part in table.items():
        if not isinstance(part, dict) or not any(isinstance(one, dict) for one in part.values()):
            parts.append(f" {json.dumps(name)}: {json.dumps(part)}")
            continue
        flavours = []
        for flavour, arguments in part.items():
            rows = ",\n".join(f"   {json.dumps(one)}: {json.dumps(entries)}" for one, entries in arguments.items())
            flavours.append(f"  {json.dumps(flavour)}: {{\n{rows}\n  }}")
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(flavours) + "\n }")
    yield "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    renamed: dict[str, str] = json.loads(TABLE.read_text("utf-8"))["renamed"]
    table: dict[str, object] = {
        "comment": "Made by scripts/make_defaults.py: argument -> [since release, type, may be None, default], ...",
    }
    read: dict[str, list[str]] = {}
    known: dict[str, object] = {}
    inherited: set[str] = set()
    for library, flavours in CLASSES.items():
        wheels = sorted(folder.glob(f"{library}-*.whl"), key=release)
        read[library] = [".".join(map(str, release(wheel))) for wheel in wheels]
        table[library] = {
            flavour: changes(wheels, renamed, name, kept) for flavour, (name, kept) in flavours.items()
        }  # fmt: skip
        names = (*dict.fromkeys(name for name, _ in flavours.values()), *TRAINERS[library])
        known |= taken(wheels, names, frozenset(inherited))
        for wheel in wheels if library == "transformers" else ():
            inherited |= set(fields_of("Seq2SeqTrainingArguments", classes_of(wheel), True))
    needs = {
        ".".join(map(str, release(wheel))): needed(wheel) for wheel in sorted(folder.glob("trl-*.whl"), key=release)
    }
    head = {"comment": table.pop("comment"), "releases": read, "needs": needs, "renamed": renamed, "taken": known}
    table = {**head, **table}
    TABLE.write_text("".join(lines(table)), "utf-8")


if __name__ == "__main__":
    main()
