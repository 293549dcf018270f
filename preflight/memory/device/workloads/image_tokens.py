"""Tokens of an image in vision-language models, and the other inputs that a processor makes of it.

Each function takes a model's config and the side of a square image in pixels (None: not stated) and says what one image
is: how long each run of placeholders is, and the shapes of what goes with it. Sources are the image processors and
processors of transformers 5 (models/<name>/image_processing_*.py, processing_*.py), named at each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from preflight.vocabulary.values import Cause, Unknown, missing

Config: TypeAlias = Mapping[str, Any]
Feed: TypeAlias = "dict[str, Any]"


class Image(Struct, frozen=True):
    """One image of a sample: its `tokens`, and its share of the model's inputs. The first number of a
    feed's shape counts images, tiles or patches of one image."""

    tokens: int
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    tiles: int = 1
    note: str = ""


def _pixels(count: int, side: int, per: str = "row", *rest: int) -> Feed:
    return {"shape": [count, *rest, 3, side, side], "per": per, "dtype": "float"}


def _number(value: Any) -> int:
    """A side that a config gives as a number or as [height, width]."""
    return int(value[0] if isinstance(value, Sequence) else value)


def _vision(config: Config, side: int, patch: int) -> tuple[int, int]:
    """Side of the images that a tower takes, and of its patches; defaults are those of its class."""
    vision = config.get("vision_config") or {}
    return _number(vision.get("image_size", side)), _number(vision.get("patch_size", patch))


def _resized(image: Image, side: int | None, own: int) -> Image | Unknown:
    """`image`, unless another side is stated than the vision tower's `own`, to which the processor resizes images."""
    if side is None or side == own:
        return image
    return Unknown(
        f"train.image_size {side}: the processor resizes images to {own} pixels a side before this model sees them",
        Cause.not_modelled,
    )


def llava(config: Config, side: int | None) -> Image | Unknown:
    """processing_llava.py: a placeholder for each patch, and one for the class token where it is kept."""
    own, patch = _vision(config, 336, 14)
    kept = config.get("vision_feature_select_strategy", "default") == "full"
    return _resized(Image((own // patch) ** 2 + kept, {"pixel_values": _pixels(1, own)}), side, own)


_PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
"""LlavaNextConfig.image_grid_pinpoints."""


def llava_next(config: Config, side: int | None) -> Image | Unknown:
    """processing_llava_next.py, image_processing_utils.py (select_best_resolution): the smallest grid of tiles that
    loses least of the image, and the whole image as one more tile. Rows of the grid end in a token of their own."""
    if side is None:
        return missing("train.image_size", "it decides the number of tiles")
    own, patch = _vision(config, 336, 14)
    best = max((_fit(side, *grid) for grid in config.get("image_grid_pinpoints") or _PINPOINTS), key=lambda one: one[0])
    high, wide = best[1] // own, best[2] // own
    rows, columns = high * own // patch, wide * own // patch
    kept = min(rows, columns)  # what a square leaves of the grid once padding is taken off, evenly at both ends
    down, across = (rows - 2 * ((rows - kept) // 2), columns - 2 * ((columns - kept) // 2))
    feeds = {
        "pixel_values": _pixels(1, own, "row", 1 + high * wide),
        "image_sizes": {"shape": [1, 2], "per": "row", "dtype": "int", "values": [side, side]},
    }
    return Image((own // patch) ** 2 + down * (across + 1), feeds)


def _fit(side: int, height: int, width: int) -> tuple[tuple[int, int], int, int]:
    scaled = int(side * min(width / side, height / side))
    used = min(scaled * scaled, side * side)
    return (used, used - height * width), height, width


def _packed(patch: int, least: int, most: int) -> Callable[[Config, int | None], Image | Unknown]:
    """image_processing_qwen2_vl.py: sides become multiples of two patches, between `least` and `most` pixels; two
    frames make a patch, four patches a token."""

    def image(config: Config, side: int | None) -> Image | Unknown:
        if side is None:
            return missing("train.image_size", "it decides the number of tokens")
        vision = config.get("vision_config") or {}
        each = int(vision.get("patch_size", patch))
        merged = each * int(vision.get("spatial_merge_size", 2))
        grid = round(min(max(side, least), most) / merged) * merged // each
        wide = 3 * int(vision.get("temporal_patch_size", 2)) * each * each
        feeds: dict[str, Feed] = {
            "pixel_values": {"shape": [grid * grid, wide], "per": "row", "dtype": "float"},
            "image_grid_thw": {"shape": [1, 3], "per": "row", "dtype": "int", "values": [1, grid, grid]},
        }
        return Image((grid * each // merged) ** 2, feeds)

    return image


def paligemma(config: Config, side: int | None) -> Image | Unknown:
    """processing_paligemma.py: a placeholder for each patch."""
    own, patch = _vision(config, 224, 14)
    return _resized(Image((own // patch) ** 2, {"pixel_values": _pixels(1, own)}), side, own)


def gemma3(config: Config, side: int | None) -> Image | Unknown:
    """processing_gemma3.py: as many placeholders for any image; panning and scanning are off."""
    own, _ = _vision(config, 896, 14)
    tokens = int(config.get("mm_tokens_per_image", 256))
    return _resized(Image(tokens, {"pixel_values": _pixels(1, own)}), side, own)


_IDEFICS2 = (378, 980)
"""Pixels that the processor of Idefics2 keeps a side between (image_processing_idefics2.py, size)."""


def idefics2(config: Config, side: int | None) -> Image | Unknown:
    """processing_idefics2.py: quarters of the image and the whole of it, each as many tokens as the resampler has."""
    shortest, longest = _IDEFICS2
    whole = longest if side is None else min(max(side, shortest), longest)
    splits = bool(config.get("do_image_splitting", True))
    tiles = 5 if splits else 1
    tokens = tiles * int((config.get("perceiver_config") or {}).get("resampler_n_latents", 64))
    split = "assumed: each image is split in four and also used whole, as in Idefics2's processor"
    note = f"{split}; state model.config.do_image_splitting"
    return Image(tokens, _padded(tiles, whole), tiles, note if "do_image_splitting" not in config else "")


def _padded(tiles: int, side: int) -> dict[str, Feed]:
    mask = {"shape": [tiles, side, side], "per": "sample", "dtype": "bool", "ones": True}
    return {"pixel_values": _pixels(tiles, side, "sample"), "pixel_attention_mask": mask}


_TILES = 4
"""Tiles along the longer side that processors of Idefics3 and SmolVLM resize an image to (size.longest_edge of
image_processing_idefics3.py, 4 x 364; of the published SmolVLM processors, 4 x 384 and 4 x 512)."""


def idefics3(config: Config, side: int | None) -> Image | Unknown:
    """image_processing_idefics3.py: tiles of the tower's size and the whole image as one more; pixels are shuffled
    into the width (`scale_factor`)."""
    own, patch = _vision(config, 224, 32)
    across = _TILES if side is None else max(1, -(-side // own))
    tiles = across * across + 1 if across > 1 else 1
    tokens = tiles * (own // patch) ** 2 // int(config.get("scale_factor", 2)) ** 2
    note = f"assumed: images are resized to {_TILES} x {_TILES} tiles, as in the processor; state train.image_size"
    return Image(tokens, _padded(tiles, own), tiles, note if side is None else "")


_MOST_TILES = 12
"""max_patches of GotOcr2ImageProcessor, which InternVL has."""


def internvl(config: Config, side: int | None) -> Image | Unknown:
    """image_processing_got_ocr2.py (get_optimal_tiled_canvas): of a square, 1, 4 or 9 tiles, and the whole image where
    there are more than one."""
    if side is None:
        return missing("train.image_size", "it decides the number of tiles")
    own, patch = _vision(config, 448, 14)
    squares = [n for n in range(1, _MOST_TILES + 1) if n * n <= _MOST_TILES]
    across = max(n for n in squares if n == 1 or side * side > 0.5 * own * own * n * n)
    tiles = across * across + 1 if across > 1 else 1
    tokens = tiles * round((own // patch) ** 2 * float(config.get("downsample_ratio", 0.5)) ** 2)
    return Image(tokens, {"pixel_values": _pixels(tiles, own)}, tiles)


def mllama(config: Config, side: int | None) -> Image | Unknown:
    """processing_mllama.py: one token of text; images are padded to the most tiles, and text attends to them in layers
    of its own."""
    own, _ = _vision(config, 448, 14)
    most = int((config.get("vision_config") or {}).get("max_num_tiles", 4))
    ones = {"dtype": "int", "ones": True}
    feeds: dict[str, Feed] = {
        "pixel_values": {"shape": [1, most, 3, own, own], "per": "sample", "dtype": "float"},
        "aspect_ratio_ids": {"shape": [1], "per": "sample", **ones},
        "aspect_ratio_mask": {"shape": [1, most], "per": "sample", **ones},
        "cross_attention_mask": {"shape": [1, most], "per": "token", "dtype": "int"},
    }
    return Image(1, feeds)


def blip2(config: Config, side: int | None) -> Image | Unknown:
    """processing_blip_2.py: as many placeholders as the Q-Former has queries."""
    own, _ = _vision(config, 224, 14)
    tokens = int(config.get("num_query_tokens", 32))
    return _resized(Image(tokens, {"pixel_values": _pixels(1, own)}), side, own)


IMAGES: Mapping[str, Callable[[Config, int | None], Image | Unknown]] = {
    "llava": llava,
    "llava_next": llava_next,
    "qwen2_vl": _packed(14, 56, 3584),
    "qwen2_5_vl": _packed(14, 56, 3584),
    "qwen3_vl": _packed(16, 256, 4096),
    "paligemma": paligemma,
    "gemma3": gemma3,
    "idefics2": idefics2,
    "idefics3": idefics3,
    "smolvlm": idefics3,
    "internvl": internvl,
    "mllama": mllama,
    "blip_2": blip2,
}
"""By transformers' name of the architecture. Qwen's least and most pixels: 56^2 and 28^2 x 16,384 of its processor's
config, 2^16 and 2^24 of Qwen3-VL's."""
MARKED = {
    "qwen2_vl": "mm_token_type_ids",
    "qwen2_5_vl": "mm_token_type_ids",
    "qwen3_vl": "mm_token_type_ids",
    "gemma3": "token_type_ids",
}
"""Inputs that are 1 where a token is a placeholder of an image."""
