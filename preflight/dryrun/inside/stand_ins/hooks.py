"""Which stand-in is put into which library, after the library was imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..distributed import refuse_sharding, shapes_alone
from ..loops import Loops
from ..patches import Sink
from ..settings import Settings
from ..tape import Tape
from . import (
    arrays,
    boxes,
    compiled,
    data_sets,
    databases,
    deepspeed,
    diffusers,
    downloads,
    fetched,
    folders,
    generation,
    graphs,
    hub_models,
    language,
    outputs,
    picture_sets,
    quantised,
    required,
    searches,
    sounds,
    tables,
    trainers,
    vision,
    weights,
)
from . import records as json_records


def of(
    settings: Settings, tape: Tape, loops: Loops, refuse: Callable[[str], None], stated: arrays.Arrays
) -> dict[str, Callable[[Any], None]]:
    """The hooks by the name of the module that each is for."""
    layers = quantised.Layers(tape)
    models = hub_models.HubModels(settings.models, tape, refuse, layers.quantise)
    components = diffusers.Components(models, tape)
    known = hub_models.Tokenizers(models, tape)
    table, missing = tables.Tables(tape, stated.guesses), folders.Folders(tape, stated.guesses)
    network, fetching, flash = (
        downloads.Downloads(tape, table.downloaded),
        fetched.Fetched(tape),
        compiled.FlashAttention(tape),
    )
    asked, boxed, words = required.Required(tape, missing.made), boxes.Annotations(tape), language.Languages(tape)
    records = json_records.Json(tape, boxed)
    heard = sounds.Sounds(tape)
    search, written = searches.Searches(settings, tape), outputs.Outputs(tape)

    def files(module: Any) -> None:
        for one in (network, table, records, stated, written):
            one.files(module)

    def numbers(module: Any) -> None:
        network.numpy(module)
        stated.numpy(module)

    def system(module: Any) -> None:
        missing.system(module)
        written.folders(module)

    def texts(module: Any) -> None:
        data_sets.text(module, tape)
        data_sets.metrics(module, tape, "load_metric")

    def torchvision_files(module: Any) -> None:
        fetching.to("download_url", "download_and_extract_archive")(module)
        asked.integrity(module)

    def paths(module: Any) -> None:
        missing.paths(module)
        asked.objects(module)
        written.folders(module.Path)

    def modeling(module: Any) -> None:
        models.models(module)
        flash.models(module)

    def sharding(module: Any) -> None:
        refuse_sharding(module, refuse)

    return {
        **picture_sets.hooks(tape),
        "os": system,
        "builtins": files,
        "io": files,
        "pandas": table.pandas,
        "glob": missing.glob,
        "pathlib": paths,
        "posixpath": asked.paths,
        "gzip": network.gzip,
        "json": records.json,
        "xml.etree.ElementTree": boxed.xml,
        "pycocotools.coco": boxed.pycocotools,
        "nltk.tokenize": words.tokenize,
        "nltk.tag": words.tags,
        "nltk.corpus.util": words.corpora,
        "nltk.stem.wordnet": words.lemmas,
        "nltk": words.tokenize,
        "spacy": words.spacy,
        "torch_geometric.data.in_memory_dataset": graphs.Graphs(tape).install,
        "torchaudio": heard.torchaudio,
        "soundfile": heard.soundfile,
        "librosa": heard.librosa,
        "scipy.io.wavfile": heard.scipy,
        "PIL.Image": missing.pictures,
        "cv2": missing.opencv,
        "imageio": missing.readers,
        "imageio.v2": missing.readers,
        "skimage.io": missing.readers,
        "matplotlib.image": missing.readers,
        "matplotlib.pyplot": missing.readers,
        "torchvision.io": missing.tensors,
        "timm.data.readers.reader_factory": missing.timm,
        "tiktoken": lambda module: downloads.encodings(module, tape),
        "urllib.request": network.urllib,
        "requests.sessions": network.requests,
        "httpx": network.httpx,
        "httpx2": network.httpx,
        "fsspec.implementations.http": network.fsspec,
        "numpy": numbers,
        "h5py": stated.h5py,
        "pickle": stated.pickle,
        "joblib": stated.pickle,
        "scipy.io": stated.scipy,
        "optuna.trial._trial": search.optuna,
        "wandb": search.wandb,
        "lmdb": lambda module: databases.lmdb(module, tape),
        "torch.jit": lambda module: compiled.tracing(module, tape),
        "torchprofile.profile": lambda module: compiled.counted("profile_macs")(module, tape),
        "zipfile": fetching.archives,
        "tarfile": fetching.tars,
        "gdown": fetching.to("download", "download_folder"),
        "wget": fetching.to("download"),
        "kagglehub": fetching.to("dataset_download", "competition_download", at=9),
        "torchvision.datasets.utils": torchvision_files,
        "huggingface_hub": fetching.hub,
        "torch.hub": lambda module: weights.hub(module, tape),
        "timm.models._builder": lambda module: weights.timm(module, tape),
        "timm.models.helpers": lambda module: weights.timm(module, tape),
        "torch.utils.tensorboard.writer": lambda module: setattr(module, "SummaryWriter", Sink),
        "torch.utils.tensorboard": lambda module: setattr(module, "SummaryWriter", Sink),
        "torch.distributed.tensor._sharding_prop": lambda module: shapes_alone(module, tape),
        "deepspeed.ops.op_builder.builder": lambda module: deepspeed.extensions(module, refuse),
        "deepspeed.runtime.engine": lambda module: deepspeed.engine(module, loops),
        "deepspeed.runtime.pipe.engine": lambda module: deepspeed.pipeline(module, refuse),
        "torch.distributed.tensor.parallel": sharding,
        "torch.distributed.tensor.parallel.api": sharding,
        "bitsandbytes": layers.bitsandbytes,
        "transformers.configuration_utils": models.configurations,
        "transformers.modeling_utils": modeling,
        "transformers.modeling_flash_attention_utils": flash.transformers,
        "transformers.tokenization_utils_base": lambda module: known.install(module.PreTrainedTokenizerBase),
        "transformers.models.auto.tokenization_auto": lambda module: known.install(module.AutoTokenizer),
        "transformers.utils.hub": hub_models.copies,
        "transformers.feature_extraction_utils": hub_models.preprocessing(
            "get_feature_extractor_dict", "FeatureExtractionMixin", tape
        ),
        "transformers.image_processing_base": hub_models.preprocessing(
            "get_image_processor_dict", "ImageProcessingMixin", tape
        ),
        "diffusers.configuration_utils": components.configurations,
        "diffusers.models.modeling_utils": components.models,
        "huggingface_hub.hf_api": lambda module: hub_models.uploads(module, tape),
        "transformers.generation.utils": generation.Generation(tape).install,
        "transformers.trainer": lambda module: trainers.transformers(module, settings),
        "trl.trainer.grpo_trainer": trainers.grpo,
        "datasets": texts,
        "evaluate": lambda module: data_sets.metrics(module, tape),
        "torchvision.datasets.mnist": lambda module: vision.mnist(module, tape),
        "torchvision.datasets.cifar": lambda module: vision.cifar(module, tape),
        "torchvision.datasets.folder": lambda module: vision.folder(module, tape),
        "lightning.pytorch.trainer.trainer": lambda module: trainers.lightning(module, settings),
        "pytorch_lightning.trainer.trainer": lambda module: trainers.lightning(module, settings),
        "lightning.pytorch.strategies.launchers.subprocess_script": lambda module: trainers.one_rank(module, tape),
        "lightning.fabric.strategies.launchers.subprocess_script": lambda module: trainers.one_rank(module, tape),
        "pytorch_lightning.strategies.launchers.subprocess_script": lambda module: trainers.one_rank(module, tape),
        "safetensors.torch": lambda module: weights.safetensors(module, tape, loops.note_saved),
    }
