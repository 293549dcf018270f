"""The tensors of a batch for each kind of model, as the library's processors and example scripts make it, and the
losses of classes without a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from .building import Output
from .losses_without_data import Together, picks

Zeros = Callable[..., torch.Tensor]
Point = Mapping[str, int]
Batch = dict[str, Any]
I64, F32 = torch.int64, torch.float32
IGNORED = 255
SHORTEST, LONGEST = 800, 1333
"""Sides that detectors' processors resize images to (size: shortest_edge, longest_edge)."""
MASK_SIDE = 4
"""Pixels of the image for one of the mask that SAM predicts."""


def _sides(p: Point) -> tuple[int, int]:
    return p["i"], p.get("wide", p["i"])


def _pixels(config: Any, p: Point, zeros: Zeros) -> torch.Tensor:
    channels = getattr(config, "num_channels", 3)
    return zeros(p["b"], channels if isinstance(channels, int) else 3, *_sides(p))


def classification(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {"pixel_values": _pixels(config, p, zeros), "labels": zeros(p["b"], of=I64)}


def segmentation(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {"pixel_values": _pixels(config, p, zeros), "labels": zeros(p["b"], *_sides(p), of=I64)}


def depth(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {"pixel_values": _pixels(config, p, zeros), "labels": zeros(p["b"], *_sides(p))}


def _objects(config: Any, p: Point) -> int:
    """Objects of a batch: of each image as many as there are queries at most."""
    queries = getattr(config, "num_queries", None) or getattr(config, "num_detection_tokens", None) or p["t"]
    return p["b"] * min(p["t"], int(queries))


def masks(config: Any, p: Point, zeros: Zeros) -> Batch:
    """A mask of the image's size for each object, in fp32 (image_processing_mask2former.py)."""
    found = {"pixel_values": _pixels(config, p, zeros), "pixel_mask": zeros(p["b"], *_sides(p), of=I64)}
    count = _objects(config, p)
    return {**found, "mask_labels": [zeros(count, *_sides(p), of=F32)], "class_labels": [zeros(count, of=I64)]}


def boxes(config: Any, p: Point, zeros: Zeros) -> Batch:
    count = _objects(config, p)
    labels = Together([{"class_labels": zeros(count, of=I64), "boxes": zeros(count, 4, of=F32)}])
    labels.images = p["b"]
    return {"pixel_values": _pixels(config, p, zeros), "labels": labels}


def denoised_boxes(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Boxes of models that learn from noisy copies of them as well (RT-DETR, D-FINE)."""
    return boxes(config, p, zeros)


def padded_boxes(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {**boxes(config, p, zeros), "pixel_mask": zeros(p["b"], *_sides(p), of=I64)}


def prompted(config: Any, p: Point, zeros: Zeros) -> Batch:
    """An image with one box as a prompt, and the object's mask."""
    side = p["i"] // MASK_SIDE
    return {
        "pixel_values": _pixels(config, p, zeros),
        "input_boxes": zeros(p["b"], 1, 4, of=F32),
        "multimask_output": False,
        "labels": zeros(p["b"], side, side, of=F32),
    }


def prompted_loss(inner: Any, batch: Batch) -> Output:
    """Binary cross-entropy and Dice on the mask at a quarter of the image's side, in fp32 (monai.losses.DiceCELoss with
    sigmoid and squared_pred, as fine-tuning notebooks of SAM have it)."""
    labels = batch.pop("labels")
    out = inner(**batch)
    logits = out.pred_masks.squeeze(1).squeeze(1).float()
    entropy = F.binary_cross_entropy_with_logits(logits, labels)
    found = torch.sigmoid(logits)
    meet = (found * labels).sum(dim=(1, 2))
    both = (found**2).sum(dim=(1, 2)) + (labels**2).sum(dim=(1, 2))
    dice = 1.0 - (2.0 * meet + 1e-5) / (both + 1e-5)
    return Output(dice.mean() + entropy, pred_masks=out.pred_masks)


def masked_image(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {"pixel_values": _pixels(config, p, zeros)}


def masked_patches(config: Any, p: Point, zeros: Zeros) -> Batch:
    """run_mim.py: as many patches masked as its generator has it (mask_ratio 0.6, patches of 32 pixels)."""
    across = p["i"] // config.patch_size
    masked = zeros(p["b"], across * across, of=torch.bool)
    return {"pixel_values": _pixels(config, p, zeros), "bool_masked_pos": masked}


def video(config: Any, p: Point, zeros: Zeros) -> Batch:
    found = zeros(p["b"], p["frames"], getattr(config, "num_channels", 3), *_sides(p))
    return {"pixel_values": found, "labels": zeros(p["b"], of=I64)}


def masked_video(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Tubes: nine in ten patches are masked, the same in every frame (VideoMAE, run_mae_pretraining.py: mask_ratio)."""
    found = zeros(p["b"], p["frames"], getattr(config, "num_channels", 3), *_sides(p))
    each = (p["i"] // config.patch_size) ** 2
    tubes = p["frames"] // config.tubelet_size
    masked = zeros(p["b"], tubes * each, of=torch.bool)
    return {"pixel_values": found, "bool_masked_pos": picks(masked, p["b"] * tubes * int(0.9 * each))}


def captioning(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Images to text (TrOCR, Donut): labels are shifted to be the decoder's input."""
    return {"pixel_values": zeros(p["b"], 3, *_sides(p)), "labels": zeros(p["b"], p["t"], of=I64)}


def texts_and_images(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Captions of BLIP and GIT: every token is a label."""
    ids = zeros(p["b"], p["t"], of=I64)
    return {
        "pixel_values": zeros(p["b"], 3, *_sides(p)),
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.zeros_like(ids),
    }


def pairs(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Texts and images (AltCLIP, ALIGN, Chinese CLIP)."""
    ids = zeros(p["b"], p["t"], of=I64)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": zeros(p["b"], 3, *_sides(p)),
        "return_loss": True,
    }


def heard_pairs(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Texts and mel spectrograms of ten seconds (CLAP: 1,001 frames of 64 bins)."""
    ids, audio = zeros(p["b"], p["t"], of=I64), config.audio_config
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "return_loss": True,
        "input_features": zeros(p["b"], 1, 1001, audio.num_mel_bins),
    }


def documents(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Words, their boxes, and the page (LayoutLMv3): a label for every token."""
    ids = zeros(p["b"], p["s"], of=I64)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "bbox": zeros(p["b"], p["s"], 4, of=I64),
        "pixel_values": zeros(p["b"], 3, *_sides(p)),
        "labels": zeros(p["b"], p["s"], of=I64),
    }


def classified_document(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {**documents(config, p, zeros), "labels": zeros(p["b"], of=I64)}


def spectrogram(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {"input_values": zeros(p["b"], config.max_length, config.num_mel_bins), "labels": zeros(p["b"], of=I64)}


def whole_spectrogram(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Whisper's: thirty seconds, whatever was said."""
    frames = 2 * config.max_source_positions
    return {"input_features": zeros(p["b"], config.num_mel_bins, frames), "labels": zeros(p["b"], of=I64)}


def sound(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {"input_values": zeros(p["b"], p["s"]), "labels": zeros(p["b"], of=I64)}


def sound_ctc(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {"input_values": zeros(p["b"], p["s"]), "labels": zeros(p["b"], p["t"], of=I64)}


FRAME = {"parakeet_ctc": 160, "wav2vec2-bert": 320}
"""Samples of one frame of features: 10 ms of 16 kHz, wav2vec2-bert's two of them together (its stride)."""


def _features(config: Any, p: Point, zeros: Zeros) -> Batch:
    frames = p["s"] // FRAME.get(config.model_type, 160)
    inside = getattr(config, "encoder_config", config)
    width = getattr(config, "feature_projection_input_dim", None) or inside.num_mel_bins
    mask = zeros(p["b"], frames, of=I64)
    return {"input_features": zeros(p["b"], frames, width), "attention_mask": torch.ones_like(mask)}


def features(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {**_features(config, p, zeros), "labels": zeros(p["b"], of=I64)}


def features_ctc(config: Any, p: Point, zeros: Zeros) -> Batch:
    return {**_features(config, p, zeros), "labels": zeros(p["b"], p["t"], of=I64)}


def spoken(config: Any, p: Point, zeros: Zeros) -> Batch:
    """Text to mel spectrograms (SpeechT5): s tokens, t frames, a vector of the speaker."""
    ids = zeros(p["b"], p["s"], of=I64)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": zeros(p["b"], p["t"], config.num_mel_bins),
        "speaker_embeddings": zeros(p["b"], config.speaker_embedding_dim),
    }


Recipe = Callable[[Any, Point, Zeros], Batch]
RECIPES: Mapping[str, Recipe] = {
    one.__name__.replace("_", "-"): one
    for one in (
        classification, segmentation, depth, masks, boxes, denoised_boxes, padded_boxes, prompted, masked_image,
        masked_patches, video, masked_video, captioning, texts_and_images, pairs, heard_pairs, documents,
        classified_document, spectrogram, whole_spectrogram, sound, sound_ctc, features, features_ctc, spoken,
    )
}  # fmt: skip
LOSSES: Mapping[str, Callable[[Any, Batch], Output]] = {"prompted": prompted_loss}
