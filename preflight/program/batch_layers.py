"""Layers with batch statistics in the project's own code, and whether all of its layers are known.

Read from the syntax of the files that a study runs and of those that they import. A name like BatchNorm2d counts
wherever it stands (`norm_layer=nn.BatchNorm2d`), but not in isinstance(). A layer of a package that is not known may
have such statistics.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight.python.module import Module, load_module, resolve_import
from preflight.vocabulary.budgets import SEARCHED_FILES
from preflight.vocabulary.caches import CacheKind, regex
from preflight.vocabulary.project import Project
from preflight.vocabulary.values import Origin

_NORM = regex(r"(Lazy)?BatchNorm[123]d|(Sync|InPlaceABN|InplaceAbn)(BatchNorm)?|\w+BatchNorm(Act)?(2d)?|batch_norm")
_NO_STATISTICS = regex(r"\w*Frozen\w*|\w*[Ii]sBatchNorm\w*|(use|with|has|freeze)_batch_norm")
_MODULES = ("Module", "PreTrainedModel")
"""Endings of the classes that a layer or model of the project derives from (LightningModule among them)."""
_MODELS = frozenset({
    "transformers", "timm", "torchvision", "open_clip", "clip", "segmentation_models_pytorch", "diffusers", "unsloth",
    "sentence_transformers", "ultralytics", "detectron2", "mmdet", "litgpt", "trl", "peft",
})  # fmt: skip
"""Libraries whose models are known by name: the model of the Job decides."""
_NO_LAYERS = frozenset({
    "torch", "numpy", "scipy", "pandas", "einops", "torchmetrics", "lightning", "pytorch_lightning", "lightning_fabric",
    "accelerate", "deepspeed", "bitsandbytes", "datasets", "tokenizers", "evaluate", "wandb", "tensorboard",
    "tensorboardX", "mlflow", "hydra", "omegaconf", "optuna", "ray", "tqdm", "rich", "click", "typer", "yaml", "PIL",
    "cv2", "matplotlib", "seaborn", "sklearn", "skimage", "albumentations", "joblib", "h5py", "pyarrow", "webdataset",
    "tiktoken", "sentencepiece", "safetensors", "huggingface_hub", "jsonargparse", "absl", "fire", "attr", "attrs",
    "pydantic", "psutil", "requests", "nltk", "sacrebleu", "rouge_score", "flash_attn", "xformers", "liger_kernel",
    "apex", "triton", "submitit", "dotenv", "packaging", "typing_extensions", "setuptools", "pynvml", "librosa",
    "soundfile", "torchaudio", "kagglehub", "comet_ml", "neptune", "colorlog", "loguru", "pyrootutils", "rootutils",
})  # fmt: skip
"""Packages without layers of batch statistics (torch's own are known by their names)."""


class OwnLayers(Struct, frozen=True):
    """The layers of a project's code. `normalises`: the place of a layer with batch statistics. `foreign`: a package
    whose layers are not known, and which a model of the project uses. `models`: the project defines model classes."""

    normalises: Origin | None = None
    foreign: str | None = None
    imported: str | None = None
    """A package that is not known, anywhere in the files."""
    models: bool = False
    libraries: bool = False
    """Whether a library of models is imported."""


def own_layers(paths: Sequence[str], project: Project) -> OwnLayers:
    """The layers of the Python files among `paths`, and of the files of the project that they import."""
    found = OwnLayers()
    ahead, seen = [path for path in paths if path.endswith(".py")], set[str]()
    while ahead and len(seen) < SEARCHED_FILES:
        path = ahead.pop(0)
        if path in seen:
            continue
        seen.add(path)
        one, imported = _of_file(path, project)
        ahead += imported
        found = OwnLayers(
            found.normalises or one.normalises,
            found.foreign or one.foreign,
            found.imported or one.imported,
            found.models or one.models,
            found.libraries or one.libraries,
        )
    return found if not set(ahead) - seen else replace(found, imported=found.imported or "files that were not read")


_LAYERS: CacheKind[tuple[OwnLayers, tuple[str, ...]]] = CacheKind("layers of a file's own classes")


def _of_file(path: str, project: Project) -> tuple[OwnLayers, tuple[str, ...]]:
    """The layers of one file, and the files of the project that it imports; kept with the project."""

    def read() -> tuple[OwnLayers, tuple[str, ...]]:
        module = load_module(path, project)
        return (OwnLayers(), ()) if module is None else _of_module(module, project)

    return project.remembered.get(_LAYERS, read, path)


def _of_module(module: Module, project: Project) -> tuple[OwnLayers, tuple[str, ...]]:
    roots = dict(_roots(module, project))
    own = [node for node in module.nodes if isinstance(node, ast.ClassDef) and _is_model(node)]
    targets = (resolve_import(name, level, module, project) for name, level in _imports(module.tree))
    found = OwnLayers(
        next(_norms(module.tree, module), None),
        next((root for node in own for root in _used(node, roots) if _is_unknown(root)), None),
        next((root for root in roots.values() if _is_unknown(root)), None),
        bool(own),
        any(root in _MODELS for root in roots.values()),
    )
    return found, tuple(target for target in targets if target is not None)


def _imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = node.module or ""
            yield name, node.level
            yield from ((f"{name}.{alias.name}".lstrip("."), node.level) for alias in node.names)


def _roots(module: Module, project: Project) -> Iterator[tuple[str, str]]:
    """(name, package) of everything that is imported from another package."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not _own(alias.name, 0, module, project):
                    yield alias.asname or alias.name.partition(".")[0], alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level and not _own(node.module or "", 0, module, project):
            for alias in node.names:
                yield alias.asname or alias.name, (node.module or "").partition(".")[0]


def _own(name: str, level: int, module: Module, project: Project) -> bool:
    """Whether an import is of a file of the project; a directory of it counts as well."""
    head = name.partition(".")[0]
    return any(
        resolve_import(part, level, module, project) is not None for part in dict.fromkeys((name, head))
    ) or project.is_dir(head)


def _is_unknown(root: str) -> bool:
    return root not in _MODELS and root not in _NO_LAYERS and root not in sys.stdlib_module_names


def _is_model(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(_MODULES) for base in node.bases)


def _used(node: ast.ClassDef, roots: dict[str, str]) -> Iterator[str]:
    """Packages that a class derives from, or that it makes something with before it runs."""
    for part in (*node.bases, *(one for one in node.body if _builds(one))):
        for name in ast.walk(part):
            if isinstance(name, ast.Name) and name.id in roots:
                yield roots[name.id]


def _builds(node: ast.stmt) -> bool:
    """Whether a part of a class makes layers: any part except the methods that run them."""
    running = ("forward", "training_step", "validation_step", "test_step", "predict_step", "configure_optimizers")
    return not (isinstance(node, ast.FunctionDef) and node.name in running)


def _norms(node: ast.AST, module: Module) -> Iterator[Origin]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance" and node.args:
        yield from _norms(node.args[0], module)
        return
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    if _NORM.fullmatch(name) and not _NO_STATISTICS.fullmatch(name) and not _is_setting(node):
        yield module.origin(node)
    for child in ast.iter_child_nodes(node):
        yield from _norms(child, module)


def _is_setting(node: ast.AST) -> bool:
    """`args.batch_norm`, a variable `batch_norm`: functions of torch are called through a module, F.batch_norm."""
    if isinstance(node, ast.Name):
        return node.id == "batch_norm"
    return isinstance(node, ast.Attribute) and node.attr == "batch_norm" and not _is_functional(node.value)


def _is_functional(node: ast.expr) -> bool:
    return ast.unparse(node) in ("F", "nn.functional", "torch.nn.functional", "torch", "functional")
