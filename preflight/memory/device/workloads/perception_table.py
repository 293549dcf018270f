"""Classes of transformers for images, video and sound, and the inputs of a batch of each (`tracer.perception_batches`).

Facts of transformers 5: names of classes, and the defaults of their configurations and processors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct


class Trained(Struct, frozen=True):
    """A class of transformers, or an automatic class by its task, and the recipe of its batches."""

    name: str
    recipe: str = ""
    refused: str = ""
    """Why no law holds for it."""


_CLASSES = """
    segformer SegformerForSemanticSegmentation segmentation
    upernet UperNetForSemanticSegmentation segmentation
    beit BeitForSemanticSegmentation segmentation
    data2vec-vision Data2VecVisionForSemanticSegmentation segmentation
    dpt DPTForSemanticSegmentation segmentation
    mobilevit MobileViTForSemanticSegmentation segmentation
    mobilevitv2 MobileViTV2ForSemanticSegmentation segmentation
    mobilenet-v2 MobileNetV2ForSemanticSegmentation segmentation
    glpn GLPNForDepthEstimation depth
    maskformer MaskFormerForInstanceSegmentation masks
    mask2former Mask2FormerForUniversalSegmentation masks
    detr DetrForObjectDetection padded-boxes
    conditional-detr ConditionalDetrForObjectDetection padded-boxes
    deformable-detr DeformableDetrForObjectDetection padded-boxes
    table-transformer TableTransformerForObjectDetection padded-boxes
    dab-detr DabDetrForObjectDetection padded-boxes
    rt-detr RTDetrForObjectDetection denoised-boxes
    rt-detr-v2 RTDetrV2ForObjectDetection denoised-boxes
    d-fine DFineForObjectDetection denoised-boxes
    yolos YolosForObjectDetection boxes
    sam SamModel prompted
    vit-mae ViTMAEForPreTraining masked-image
    videomae VideoMAEForVideoClassification video
    videomae VideoMAEForPreTraining masked-video
    timesformer TimesformerForVideoClassification video
    vivit VivitForVideoClassification video
    vision-encoder-decoder VisionEncoderDecoderModel captioning
    layoutlmv3 LayoutLMv3ForTokenClassification documents
    layoutlmv3 LayoutLMv3ForSequenceClassification classified-document
    blip BlipForConditionalGeneration texts-and-images
    git GitForCausalLM texts-and-images
    altclip AltCLIPModel pairs
    chinese-clip ChineseCLIPModel pairs
    align AlignModel pairs
    clap ClapModel heard-pairs
    audio-spectrogram-transformer ASTForAudioClassification spectrogram
    wav2vec2-bert Wav2Vec2BertForCTC features-ctc
    wav2vec2-bert Wav2Vec2BertForSequenceClassification features
    wav2vec2-conformer Wav2Vec2ConformerForCTC sound-ctc
    wav2vec2-conformer Wav2Vec2ConformerForSequenceClassification sound
    sew SEWForCTC sound-ctc
    sew SEWForSequenceClassification sound
    unispeech UniSpeechForCTC sound-ctc
    unispeech UniSpeechForSequenceClassification sound
    unispeech-sat UniSpeechSatForCTC sound-ctc
    unispeech-sat UniSpeechSatForSequenceClassification sound
    parakeet-ctc ParakeetForCTC features-ctc
    speecht5 SpeechT5ForTextToSpeech spoken
"""
CLASSES: Mapping[str, Mapping[str, str]] = {
    architecture: {
        row.split()[1]: row.split()[2] for row in _CLASSES.strip().splitlines() if row.split()[0] == architecture
    }
    for architecture in dict.fromkeys(row.split()[0] for row in _CLASSES.strip().splitlines())
}
"""Architecture -> classes and their recipes, the usual class first."""
_CLASSIFIERS = (
    "swin swinv2 convnext convnextv2 resnet mobilenet-v1 mobilenet-v2 efficientnet levit pvt pvt-v2 cvt "
    "dinov2-with-registers regnet segformer beit data2vec-vision poolformer focalnet hiera mobilevit mobilevitv2 bit "
    "swiftformer vit-msn"
)
IMAGE_CLASSIFIERS = frozenset(_CLASSIFIERS.split())
_SCAN = (
    "its scan is a separate CUDA kernel; without it, transformers keeps the state of every position, "
    "which no run with that kernel does"
)
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("mamba", "mamba2", "falcon-mamba", "bamba", "jamba", "zamba", "zamba2", "falcon-h1"), _SCAN),
    "rwkv": "its attention is a separate CUDA kernel; without it, positions are computed one by one",
    "xlstm": "its cells are separate kernels (mlstm_kernels); without them, positions are computed one by one",
    "recurrent-gemma": "its layers compute positions one by one: no law for every length can be made of that",
    "owlvit": "transformers computes no loss for OWL-ViT's boxes, so every training loop is custom",
    "owlv2": "transformers computes no loss for OWLv2's boxes, so every training loop is custom",
    "vilt": "ViLT chooses patches of an image by the values of its mask",
    "layoutlmv2": "LayoutLMv2's backbone is detectron2's",
    "oneformer": "OneFormer's step takes texts as well as masks, and the tracer makes none",
    "sam2": "transformers computes no loss for SAM 2, so every training loop is custom",
    "dinov3-vit": "transformers has no DINOv3 with a head, and the head that a program adds is not read",
    "zoedepth": "transformers computes no loss for ZoeDepth",
    "depth-anything": "transformers computes no loss for Depth Anything",
    "sew-d": "SEW-D's attention reads values of its positions",
    "musicgen": "MusicGen is trained on codes of EnCodec, and the tracer makes none",
    "encodec": "transformers computes no loss for EnCodec",
    "vits": "transformers does not train VITS",
}
NEEDS: Mapping[str, tuple[str, ...]] = {
    "classification": ("i",), "segmentation": ("i",), "depth": ("i",), "masks": ("i", "objects"),
    "boxes": ("i", "objects"), "padded-boxes": ("i", "objects"), "denoised-boxes": ("i", "objects"),
    "prompted": ("i",), "masked-image": ("i",), "video": ("i", "frames"), "masked-video": ("i", "frames"),
    "captioning": ("i", "labels"), "documents": ("i", "s"), "classified-document": ("i", "s"),
    "texts-and-images": ("i", "words"), "pairs": ("i", "words"), "heard-pairs": ("words",), "spectrogram": (),
    "whole-spectrogram": (), "sound": ("s",), "sound-ctc": ("s", "labels"), "features": ("s",),
    "features-ctc": ("s", "labels"), "spoken": ("s", "labels"),
}  # fmt: skip
WITH_OBJECTS = tuple(recipe for recipe, needs in NEEDS.items() if "objects" in needs)
HEARD = ("sound", "sound-ctc", "features", "features-ctc")
PADDED = ("padded-boxes", "documents", "classified-document", "texts-and-images", "pairs", "heard-pairs", "features",
          "features-ctc", "spoken")  # fmt: skip
"""Recipes with a padding mask."""
PROMPTED = ("sam",)
SIDED = ("segformer",)
"""Architectures whose laws hold at every side that 64 pixels divide."""
WITHOUT_CONVOLUTIONS = (
    "swin", "swinv2", "dinov2-with-registers", "vit-msn", "hiera", "vit-mae", "videomae", "timesformer", "vivit",
    "vision-encoder-decoder", "layoutlmv3", "blip", "git", "altclip", "chinese-clip", "clap", "yolos",
    "audio-spectrogram-transformer", "speecht5",
)  # fmt: skip
"""Architectures whose only convolutions make patches, or are small compared with the rest."""
SHORTEST, LONGEST = 800, 1333
"""Sides to which processors of DETR and similar models resize images."""
OBLONG = ("detr", "conditional-detr", "deformable-detr", "table-transformer", "dab-detr")
USUAL_IMAGE = 224
IMAGES: Mapping[str, int] = {
    **dict.fromkeys(OBLONG, SHORTEST), **dict.fromkeys(("rt-detr", "rt-detr-v2", "d-fine"), 640),
    **dict.fromkeys(("segformer", "upernet", "mobilevit", "mobilevitv2", "glpn"), 512), "mobilenet-v2": 224,
    "maskformer": 512, "mask2former": 512, "dpt": 384, "sam": 1024, "blip": 384, "align": 289, "beit": 224,
    "vision-encoder-decoder": 384,
}  # fmt: skip
"""Default sides of these models' processors (maskformer, mask2former: ADE20K's checkpoints)."""
FRAMES = {"videomae": 16, "timesformer": 8, "vivit": 32}
TEXTS = {"altclip": 77, "chinese-clip": 52, "align": 64, "clap": 77}
"""Tokens that processors pad a text to."""
ADE20K = 150
NO_SIZES = ("vocab_size", "classes", "num_labels", "id2label", "label2id", "torch_dtype", "dtype", "initializer_range",
            "layer_norm_eps", "transformers_version", "model_type", "semantic_loss_ignore_index")  # fmt: skip
"""Keys of a config that move no storage, or that a law is a function of."""


def chosen(architecture: str, task: str, stated: Sequence[str]) -> Trained | None:
    """The class of an architecture that is trained: the one stated, else that of the task, else the usual one; None
    where another kind of model resolves it."""
    known = CLASSES.get(architecture, {})
    named = next((one for one in stated if one in known), None)
    if task == "image-classification" and architecture in IMAGE_CLASSIFIERS:
        return Trained("image-classification", "classification")
    if architecture == "whisper" and task == "sequence-classification":
        return Trained("audio-classification", "whole-spectrogram")
    if architecture in REFUSED:
        return Trained("", "", REFUSED[architecture])
    if task == "sequence-classification":
        named = next((one for one in known if "Classification" in one and "Token" not in one), named)
    if known:
        named = named or next(iter(known))
        return Trained(named, known[named])
    if architecture in IMAGE_CLASSIFIERS:
        return Trained("image-classification", "classification")
    return None


def classes(config: Mapping[str, Any]) -> int:
    """How many classes a pixel may have; where a config does not say, ADE20K's."""
    labels = config.get("id2label") or config.get("label2id")
    return int(config.get("num_labels") or (len(labels) if labels else ADE20K))


def usual(architecture: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Config keys without a default that a class needs."""
    if architecture in ("beit", "data2vec-vision"):  # configs of the published checkpoints
        return {"out_indices": [3, 5, 7, 11] if config.get("num_hidden_layers", 12) == 12 else [7, 11, 15, 23]}
    if architecture in ("wav2vec2-bert", "wav2vec2-conformer"):
        return {"vocab_size": 32}
    return {}
