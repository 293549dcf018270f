"""Make the table of models with batch statistics: `python scripts/make_batch_statistics.py [LIBRARY ...]`.

What normalises a sample with the mean and variance of its micro-batch (BatchNorm1d, 2d and 3d, SyncBatchNorm, timm's
BatchNormAct2d and EvoNorm) trains differently when the micro-batch gets smaller, whatever is accumulated.

transformers and diffusers are read, not run: a class counts where its text, or that of a class or function it uses,
names such a layer, be it under a condition. A class that makes a model which only its configuration knows depends on
that model. Models of timm and torchvision are built on the meta device, and their layers looked at.

Libraries that are not installed keep what the table has of them. torchvision without compiled operators will do.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from preflight.vocabulary.batch_statistics import TABLE, type_named

LIBRARIES = ("transformers", "diffusers", "timm", "torchvision")
NORM = re.compile(r"(Sync)?BatchNorm([123]d)?(Act2d)?")
FROZEN = "replace_batch_norm"
"""A function of transformers' detectors that takes all batch normalisation of a backbone out."""
WITHIN = ("AutoBackbone", "AutoModel", "load_backbone", "create_model")
"""What makes a model that a configuration names: beginnings of names that are called."""
CONTRASTIVE = re.compile(r"\w*(clip|siglip|contrastive)_loss|logits_per_text")
"""Losses that are functions of a module, and similarities of all texts to all images (SigLIP's is in its forward)."""
PER_OBJECT = re.compile(r"\w+For(ZeroShot)?(Object|Instance|Universal|Detection|Segmentation)\w*|\w+ForSegmentation")
"""Classes whose loss is divided by the objects of the micro-batch (loss/loss_for_object_detection.py: num_boxes; the
losses of MaskFormer and its relatives: num_masks)."""
BALANCING = re.compile(r"load_balancing_loss_func|router_z_loss_func")
TRAINED = re.compile(r"\w+(For[A-Z]\w*|LMHead(Model)?|MTModel|EncoderModel)")
"""Classes that programs and configurations name as what is trained: no towers and no backbones."""
Status = str
"""`has`, `depends` or `free`."""


def names_of(node: ast.AST) -> Iterator[str]:
    """Names that a class or function uses; those that isinstance() asks about are not used."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        yield from names_of(node.args[0])
        return
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    for child in ast.iter_child_nodes(node):
        yield from names_of(child)


def called(node: ast.AST) -> Iterator[str]:
    """Dotted names of what a class or function calls."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            yield ast.unparse(part.func)


class Sources:
    """Classes and functions of some files, with what each of them leads to."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.nodes: dict[str, ast.AST] = {}
        for path in paths:
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    self.nodes[node.name] = node
        self.uses = {name: frozenset(names_of(node)) for name, node in self.nodes.items()}
        self.calls = {name: frozenset(called(node)) for name, node in self.nodes.items()}

    def reached(self, name: str) -> frozenset[str]:
        """A class with all that it uses, the frozen layers and what freezes them left out."""
        seen: set[str] = set()
        ahead = [name]
        while ahead:
            one = ahead.pop()
            if one in seen or one == FROZEN or "Frozen" in one or one not in self.nodes:
                continue
            seen.add(one)
            ahead += self.uses[one]
        return frozenset(seen)

    def status(self, name: str) -> Status:
        reached = self.reached(name)
        if any(NORM.fullmatch(used) for one in reached for used in self.uses[one]):
            return "has"
        return "depends" if any(self._makes(one) for one in reached) else "free"

    def _makes(self, name: str) -> bool:
        made = [one for one in self.calls[name] if one.rpartition(".")[2] != "register"]
        made = [one for one in made if any(part.startswith(WITHIN) for part in one.split("."))]
        return bool(made) and not self._freezes(name)

    def _freezes(self, name: str) -> bool:
        """Whether what it makes is frozen, under no condition but that of the meta device."""
        if FROZEN not in self.calls[name]:
            return False
        conditions = [n for n in ast.walk(self.nodes[name]) if isinstance(n, ast.If) and FROZEN in ast.unparse(n)]
        return not any("freeze" in ast.unparse(condition.test) for condition in conditions)

    def says(self, name: str, pattern: re.Pattern[str]) -> bool:
        """Whether it, or what it uses, is or names something like this: a function, or a field of its output."""
        reached = self.reached(name)
        return any(pattern.fullmatch(one) for one in reached) or any(
            pattern.fullmatch(used) for one in reached for used in self.uses[one] if used.startswith("logits_")
        )

    def configured_by(self, config: str) -> list[str]:
        """Classes of models that say that a configuration class is theirs."""
        return [
            name for name, node in self.nodes.items() if isinstance(node, ast.ClassDef) and _config_of(node) == config
        ]


def _config_of(node: ast.ClassDef) -> str | None:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == "config":
            return ast.unparse(part.annotation).strip("'\"")
        if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "config_class":
            return ast.unparse(part.value)
    return None


def root_of(library: str) -> Path:
    """The folder of an installed library."""
    spec = find_spec(library)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(library)
    return Path(spec.origin).parent


def of_transformers() -> dict[str, Any]:
    """By model type: classes with their status, what configurations within it are by default, kinds of loss. Beside it,
    classes whose name does not spell their type."""
    from transformers.models.auto import configuration_auto, modeling_auto

    classes: dict[str, set[str]] = {}
    for name, mapping in vars(modeling_auto).items():
        if name.endswith("_MAPPING_NAMES") and isinstance(mapping, Mapping):
            for kind, made in mapping.items():
                classes.setdefault(kind, set()).update([made] if isinstance(made, str) else made)
    found: dict[str, Any] = {"free": [], "mixed": {}, "contrastive": [], "per_object": [], "balancing": {}}
    for kind in sorted(configuration_auto.CONFIG_MAPPING_NAMES):
        row = _of_type(kind, sorted(classes.get(kind, ())), configuration_auto)
        if row is None:
            continue
        if set(row["classes"].values()) == {"free"}:
            found["free"].append(kind)
        else:
            found["mixed"][kind] = _compact(row)
        for name in ("contrastive", "per_object"):
            if row[name]:
                found[name].append(kind)
        if row["balancing"] is not None:
            found["balancing"][kind] = row["balancing"]
    kinds = (*found["free"], *found["mixed"])
    return {**found, "named_otherwise": dict(_named_otherwise(classes, kinds, configuration_auto))}


def _named_otherwise(
    classes: Mapping[str, Iterable[str]], kinds: Iterable[str], configuration_auto: Any
) -> Iterator[tuple[str, str]]:
    """Classes of models whose name does not spell their type, each with its type."""
    by_class: dict[str, list[str]] = {}
    for kind in kinds:
        for name in filter(TRAINED.fullmatch, classes.get(kind, ())):
            by_class.setdefault(name, []).append(kind)
    for name, own in sorted(by_class.items()):
        if len(own) > 1:  # several types have the class: the one whose configuration the class says that it takes
            taken = [kind for kind in own if name in _configured(kind, configuration_auto)]
            own = taken or [type_named(name) or own[0]]
        if type_named(name) not in own:
            yield name, own[0]


def _configured(kind: str, configuration_auto: Any) -> list[str]:
    """Classes of a type's modules that say that they take the type's configuration."""
    return _sources_of(kind, configuration_auto).configured_by(configuration_auto.CONFIG_MAPPING_NAMES[kind])


def _sources_of(kind: str, configuration_auto: Any) -> Sources:
    folder = root_of("transformers") / "models" / configuration_auto.model_type_to_module_name(kind)
    paths = sorted(folder.glob("modeling_*.py"))
    return Sources(path for path in paths if not path.name.startswith(("modeling_tf_", "modeling_flax_")))


def _compact(row: Mapping[str, Any]) -> dict[str, Any]:
    """`all` where every class has one status, with the models within."""
    statuses = row["classes"]
    made: dict[str, Any] = {}
    if len(set(statuses.values())) == 1:
        made["all"] = next(iter(statuses.values()))
    else:
        made["classes"] = statuses
    return {**made, "within": row["within"]} if "depends" in statuses.values() else made


def _of_type(kind: str, classes: list[str], configuration_auto: Any) -> dict[str, Any] | None:
    sources = _sources_of(kind, configuration_auto)
    known = [name for name in classes if name in sources.nodes] or sources.configured_by(
        configuration_auto.CONFIG_MAPPING_NAMES[kind]
    )
    if not known:
        return None
    config = _default(kind, configuration_auto)
    balancing = any(sources.says(name, BALANCING) for name in known)
    return {
        "classes": {name: sources.status(name) for name in known},
        "within": _within(config),
        "contrastive": any(sources.says(name, CONTRASTIVE) for name in known),
        "per_object": any(PER_OBJECT.fullmatch(name) for name in known) and not _also_whole_images(known),
        "balancing": bool(getattr(config, "output_router_logits", False)) if balancing else None,
    }


def _also_whole_images(classes: Iterable[str]) -> bool:
    """Whether the architecture is trained on whole images or texts as well."""
    return any(name.endswith(("ForImageClassification", "ForCausalLM", "ForMaskedLM")) for name in classes)


def _default(kind: str, configuration_auto: Any) -> Any:
    try:
        return configuration_auto.CONFIG_MAPPING[kind]()
    except Exception as error:
        print(f"{kind}: no default configuration: {str(error)[:80]}", file=sys.stderr)
        return None


def _within(config: Any) -> dict[str, str | None]:
    """Keys of configurations within one, each with the type that it has by default."""
    keys = [*getattr(config, "sub_configs", {}), *(k for k in ("backbone_config",) if hasattr(config, k))]
    classes = getattr(config, "sub_configs", {})
    return {
        key: getattr(getattr(config, key, None), "model_type", None)
        or getattr(classes.get(key), "model_type", None)
        or None
        for key in dict.fromkeys(keys)
    }


def of_diffusers() -> dict[str, Any]:
    """Classes of models, by the text of the library's layers."""
    sources = Sources(sorted((root_of("diffusers") / "models").rglob("*.py")))
    models = [
        name
        for name, node in sources.nodes.items()
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "ModelMixin" for base in node.bases)
    ]
    free = [name for name in sorted(models) if sources.status(name) == "free"]
    return {"free": free, "has": sorted(set(models) - set(free))}


def takes_statistics(model: Any) -> bool:
    """Whether a layer of the model keeps statistics of batches and is not frozen."""
    return any(
        getattr(module, "running_var", None) is not None
        and not any(word in type(module).__name__ for word in ("Frozen", "Instance"))
        for module in model.modules()
    )


def of_timm() -> dict[str, Any]:
    """Names of architectures without their weights' tags."""
    without_operators()
    import timm
    import torch

    def make(name: str) -> Any:
        with torch.device("meta"):
            return timm.create_model(name)

    return _built(timm.list_models(), make)


def of_torchvision() -> dict[str, Any]:
    """Names that torchvision.models.get_model takes; detectors count as built without pretrained weights."""
    without_operators()
    import torch
    from torchvision import models

    def make(name: str) -> Any:
        backbone = any(part in models.get_model_builder(name).__module__ for part in (".detection.", ".segmentation."))
        device = "cpu" if name.startswith("regnet") else "meta"  # its sizes are computed with tensors
        with torch.device(device):
            return models.get_model(name, weights=None, **({"weights_backbone": None} if backbone else {}))

    return _built(models.list_models(), make)


def without_operators() -> None:
    """Lets torchvision be imported beside a torch that its operators were not compiled for: layers need none."""
    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))


def _built(names: Iterable[str], make: Any) -> dict[str, Any]:
    found: dict[str, list[str]] = {"free": [], "has": []}
    for name in sorted(names):
        try:
            found["has" if takes_statistics(make(name)) else "free"].append(name)
        except Exception as error:  # it stays unknown
            print(f"{name}: not built: {str(error)[:100]}", file=sys.stderr)
    return {status: " ".join(listed) for status, listed in found.items()}


MAKERS = {"transformers": of_transformers, "diffusers": of_diffusers, "timm": of_timm, "torchvision": of_torchvision}


def main(asked: list[str]) -> int:
    """Write the table, with what is installed made anew."""
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {"made_with": {}}
    for library in asked or LIBRARIES:
        try:
            made_with = version(library)
            root_of(library)
        except (PackageNotFoundError, ModuleNotFoundError):
            print(f"{library} is not installed: what the table has of it stays", file=sys.stderr)
            continue
        table[library] = MAKERS[library]()
        table["made_with"][library] = made_with
    head = {"schema": 1, "source": __doc__.partition("\n")[0].partition(": ")[2].strip("`.") + " writes this file"}
    rows = {key: table[key] for key in ("made_with", *LIBRARIES) if key in table}
    TABLE.write_text(json.dumps({**head, **rows}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
