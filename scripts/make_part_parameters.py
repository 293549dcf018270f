"""Counts of the parameters of libraries' models without their heads -> preflight/program/part_parameters.json.

`python scripts/make_part_parameters.py` builds the models of the catalogue that transformers and timm have, and those
of torchvision, on the meta device and without weights, and counts what is left without heads. Rows of a library that is
not installed stay as they are. A count that contradicts the published one is left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from preflight.memory.device.law.catalogue import CatalogueModel, find, names, published

TABLE = Path(__file__).resolve().parents[1] / "preflight" / "program" / "part_parameters.json"
FAMILIES = frozenset({
    "albert", "bart", "beit", "bert", "big_bird", "bloom", "camembert", "convnext", "deberta-v2", "deit", "dinov2",
    "distilbert", "electra", "falcon", "gemma", "gemma2", "gpt2", "gpt_neo", "gpt_neox", "hubert", "llama",
    "longformer", "mbart", "mistral", "modernbert", "mpnet", "mt5", "opt", "pegasus", "phi", "qwen2", "qwen3",
    "resnet", "roberta", "swin", "t5", "vit", "wav2vec2", "whisper", "xlm-roberta",
})  # fmt: skip
"""Architectures that AutoModel builds without a head."""
TOWERS = {
    "CLIPVisionModel": ("clip", "vision_config"), "CLIPTextModel": ("clip", "text_config"),
    "SiglipVisionModel": ("siglip", "vision_config"), "SiglipTextModel": ("siglip", "text_config"),
}  # fmt: skip
"""Class of transformers that holds one of the two parts of a model -> the model's architecture, and its settings."""
ENCODERS = {"T5EncoderModel": "t5", "MT5EncoderModel": "mt5"}
NEAR = 1.01
"""How much larger than the published count a model may come out: nothing is left out there, and figures are rounded."""
_OF_FAMILY: dict[str, dict[str, int]] = {
    family: {"type_vocab_size": 1} for family in ("roberta", "xlm-roberta", "camembert")
}
"""What the models of a family have, and the catalogue leaves out since transformers' own default says otherwise."""
MOST_OF_IT = 0.6
"""The part of a model without its head is larger: a count below was made of other dimensions."""


def main() -> None:
    """Writes the table again."""
    table = json.loads(TABLE.read_text())
    warnings.simplefilter("ignore")
    if importlib.util.find_spec("transformers"):
        table["hub"] = dict(_hub())
        table["towers"] = {kind: dict(_of_kind(kind)) for kind in (*TOWERS, *ENCODERS)}
    if importlib.util.find_spec("torchvision"):
        table["torchvision"] |= _torchvision(table["heads"])
    if importlib.util.find_spec("timm"):
        table["timm"] = dict(_timm(table["timm"], table["heads"]))
    TABLE.write_text(_on_lines(table))


def _on_lines(table: dict[str, Any]) -> str:
    """The table as text, with the numbers of a model on its line."""
    rows = {name: json.dumps(row) for name, row in table["timm"].items()}
    text = json.dumps({**table, "timm": {name: f"<{name}>" for name in rows}}, indent=1) + "\n"
    for name, row in rows.items():
        text = text.replace(f'"<{name}>"', row)
    return text


def _models(architecture: str | None = None) -> Iterator[CatalogueModel]:
    for name in names():
        model = find(name)
        if model is not None and model.architecture == (architecture or model.architecture):
            yield model


def _spellings(model: CatalogueModel) -> tuple[str, ...]:
    """The hub's ids of a model: those whose last part is known already are found by it."""
    return (model.name, *(alias for alias in model.aliases if "/" in alias))


def _hub() -> Iterator[tuple[str, int]]:
    from transformers import AutoModel

    for model in _models():
        if model.architecture not in FAMILIES or (count := _counted(model, AutoModel.from_config)) is None:
            continue
        told = published(model)
        if told is not None and count > told[0] * MOST_OF_IT:
            yield from ((spelling, count) for spelling in _spellings(model))


def _of_kind(kind: str) -> Iterator[tuple[str, int]]:
    import transformers

    build = getattr(transformers, kind)
    architecture, part = TOWERS.get(kind, (ENCODERS.get(kind), ""))
    for model in _models(architecture):
        make = (lambda config: build(getattr(config, part))) if part else build
        if (count := _counted(model, make)) is not None:
            yield from ((spelling, count) for spelling in _spellings(model))


def _counted(model: CatalogueModel, make: Callable[[Any], torch.nn.Module]) -> int | None:
    """The parameters without poolers; None where the model cannot be built, or has more than is published."""
    from transformers import AutoConfig

    try:
        with torch.device("meta"):
            built = make(
                AutoConfig.for_model(model.architecture, **{**_OF_FAMILY.get(model.architecture, {}), **model.config})
            )
    except Exception as error:  # a configuration of another release
        print(f"{model.name}: {error}")
        return None
    count: int = sum(one.numel() for name, one in built.named_parameters() if "pooler" not in name.split("."))
    told = published(model)
    if told is None or count > told[0] * NEAR + told[1]:
        print(f"{model.name}: {count:,} are counted, and {model.parameters} published")
        return None
    return count


def _torchvision(heads: list[str]) -> Iterator[tuple[str, int]]:
    models = importlib.import_module("torchvision.models")
    for name in models.list_models(module=models):
        built = _made(models.get_model, name)
        yield name, sum(size for part, size in _parts(built, heads) if not part.lower().startswith("aux"))


def _timm(names: Iterable[str], heads: list[str]) -> Iterator[tuple[str, list[int]]]:
    """For each model that the table names: its parameters without the head, those of the first layer's weight and of
    positions among them, those of its stages (`features_only=True`), and how many stages there are; 0 for none."""
    make = importlib.import_module("timm").create_model
    for name in names:
        built = _made(make, name, num_classes=0)
        parts = list(_parts(built, heads))
        first = built.default_cfg.get("first_conv") or ()
        weights = {f"{one}.weight" for one in ([first] if isinstance(first, str) else first)}
        try:
            stages = _made(make, name, features_only=True)
            of_stages = sum(one.numel() for one in stages.parameters()), len(stages.feature_info.channels())
        except (RuntimeError, AssertionError):  # it has no stages
            of_stages = 0, 0
        in_first = sum(size for part, size in parts if part in weights)
        positions = sum(size for part, size in parts if "pos" in part)
        yield name, [sum(size for _, size in parts), in_first, positions, *of_stages]


def _parts(built: torch.nn.Module, heads: list[str]) -> Iterator[tuple[str, int]]:
    return ((name, one.numel()) for name, one in built.named_parameters() if name.split(".")[0] not in heads)


def _made(make: Callable[..., Any], name: str, **settings: object) -> Any:
    try:
        with torch.device("meta"):
            return make(name, **settings)
    except NotImplementedError:  # its rates of dropped paths are numbers that meta tensors do not have
        return make(name, **settings)


if __name__ == "__main__":
    main()
