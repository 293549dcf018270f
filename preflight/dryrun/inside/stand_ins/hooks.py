"""Which stand-in is put into which library, after the library was imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..distributed import refuse_sharding
from ..loops import Loops
from ..patches import Anything
from ..settings import Settings
from ..tape import Tape
from . import data_sets, hub_models, trainers, vision


def of(settings: Settings, tape: Tape, loops: Loops, refuse: Callable[[str], None]) -> dict[str, Callable[[Any], None]]:
    """The hooks by the name of the module that each is for."""
    models = hub_models.HubModels(settings.models, tape, refuse)
    known = hub_models.Tokenizers(models, tape)

    def sharding(module: Any) -> None:
        refuse_sharding(module, refuse)

    return {
        "torch.hub": lambda module: hub_models.no_downloads(module, tape),
        "torch.utils.tensorboard.writer": lambda module: setattr(module, "SummaryWriter", Anything),
        "torch.utils.tensorboard": lambda module: setattr(module, "SummaryWriter", Anything),
        "torch.distributed.fsdp": sharding,
        "torch.distributed.fsdp.fully_sharded_data_parallel": sharding,
        "torch.distributed.fsdp._fully_shard": sharding,
        "torch.distributed._composable.fsdp": sharding,
        "deepspeed": sharding,
        "torch.distributed.tensor.parallel": sharding,
        "torch.distributed.tensor.parallel.api": sharding,
        "bitsandbytes": lambda module: hub_models.no_quantised_layers(module, refuse),
        "transformers.configuration_utils": models.configurations,
        "transformers.modeling_utils": models.models,
        "transformers.tokenization_utils_base": lambda module: known.install(module.PreTrainedTokenizerBase),
        "transformers.models.auto.tokenization_auto": lambda module: known.install(module.AutoTokenizer),
        "transformers.trainer": lambda module: trainers.transformers(module, settings),
        "datasets": lambda module: data_sets.text(module, tape),
        "evaluate": lambda module: data_sets.metrics(module, tape),
        "torchvision.datasets.mnist": lambda module: vision.mnist(module, tape),
        "torchvision.datasets.cifar": lambda module: vision.cifar(module, tape),
        "torchvision.datasets.folder": lambda module: vision.folder(module, tape),
        "lightning.pytorch.trainer.trainer": lambda module: trainers.lightning(module, settings),
        "pytorch_lightning.trainer.trainer": lambda module: trainers.lightning(module, settings),
        "safetensors.torch": lambda module: setattr(module, "save_file", lambda *_, **__: loops.note_saved()),
    }
