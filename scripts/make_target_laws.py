"""Make the shipped laws of image models: `python scripts/make_target_laws.py [timm-NAME ...] [--jobs N]`.

Needs torch, timm and torchvision. A law is a function of the batch at the size that the model was made for; it is
fitted at two batches and proved, event by event, at a third (preflight.memory.device.fit.make). Convolutional networks
that are much used have laws of any side that 32 divides (preflight.memory.device.fit.image_sides). Each model is a file
of its own, compressed, because its tape is one long block. A model of torchvision whose tape is timm's of the same
name, event by event, points to it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

from law_files import run, versions, write

from preflight.memory.device.fit.image_sides import ANY, GRAIN, make_at_sides, sides
from preflight.memory.device.fit.make import CannotMake, verify
from preflight.memory.device.fit.one_model import make_at
from preflight.memory.device.fit.subprocess import TraceError
from preflight.memory.device.law.expand import expand
from preflight.memory.device.law.made import MadeLaw, TraceRequest
from preflight.memory.device.law.setup import Setup
from preflight.memory.device.law.store import FORMAT, LAWS, LawKey, image_path, key_text, load, pack
from preflight.memory.device.law.tape import NotRegular
from preflight.memory.device.workloads.image_models import usual_size

LIBRARIES = ("timm", "torch", "torchvision")
PRECISIONS = {"fp32": ("fp32", None), "mixed": ("fp32", "bf16")}
KINDS = ("train", "eval")
TWIN_BATCH = 5
TARGETS: Mapping[str, str] = {
    "timm": """
        resnet10t resnet18 resnet18d resnet26 resnet26d resnet34 resnet34d resnet50 resnet50d resnet101 resnet101d
        resnet152 wide_resnet50_2 wide_resnet101_2 resnext50_32x4d resnext101_32x8d seresnet50 seresnext50_32x4d
        ecaresnet50d skresnet18 resnest50d res2net50_26w_4s resnetv2_50 resnetrs50 densenet121 densenet161 densenet169
        densenet201 vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn inception_v3 inception_v4
        inception_resnet_v2 xception41 legacy_xception mobilenetv2_100 mobilenetv2_140 mobilenetv3_small_050
        mobilenetv3_small_100 mobilenetv3_large_100 mobilenetv4_conv_small mobilenetv4_conv_medium mnasnet_100
        semnasnet_100 lcnet_050 lcnet_100 tinynet_a efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3
        efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 tf_efficientnet_b0 tf_efficientnet_b3
        tf_efficientnet_b4 tf_efficientnet_b5 tf_efficientnet_b7 efficientnetv2_s efficientnetv2_rw_s
        tf_efficientnetv2_s tf_efficientnetv2_m tf_efficientnetv2_l efficientnet_lite0 regnetx_002 regnetx_004
        regnetx_008 regnetx_016 regnetx_032 regnety_002 regnety_004 regnety_008 regnety_016 regnety_032 regnety_080
        regnety_160 convnext_atto convnext_nano convnext_tiny convnext_small convnext_base convnext_large
        convnextv2_nano convnextv2_tiny convnextv2_base mixnet_s mixnet_m mixnet_l ghostnet_100 dla34 dla60 dla102
        hrnet_w18 hrnet_w32 hrnet_w48 rexnet_100 rexnet_150 dpn68 dpn92 darknet53 cspdarknet53 cspresnet50 repvgg_a0
        repvgg_a2 gernet_s deit_tiny_patch16_224 deit_small_patch16_224 deit_base_patch16_224 deit3_base_patch16_224
        vit_tiny_patch16_224 vit_small_patch16_224 vit_base_patch16_224 vit_large_patch16_224 vit_small_patch32_224
        vit_base_patch32_224 vit_base_patch16_384 vit_base_patch16_clip_224 vit_small_patch14_dinov2
        vit_base_patch14_dinov2 beit_base_patch16_224 eva02_tiny_patch14_224 eva02_base_patch14_224
        swin_tiny_patch4_window7_224 swin_small_patch4_window7_224 swin_base_patch4_window7_224 swinv2_tiny_window8_256
        cait_xxs24_224 cait_s24_224 pit_s_224 maxvit_tiny_tf_224 coatnet_0_rw_224 mixer_s32_224 mixer_b16_224
        gmlp_s16_224 resmlp_12_224 poolformer_s12 levit_128 mobilevit_s mobilevit_xs edgenext_small fastvit_t8
        efficientformer_l1 xcit_small_12_p16_224 test_vit test_resnet
    """,
    "torchvision": """
        resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d wide_resnet50_2 densenet121 vgg11 vgg16 vgg19
        vgg16_bn alexnet squeezenet1_1 googlenet inception_v3 mnasnet1_0 mobilenet_v2 mobilenet_v3_large
        shufflenet_v2_x1_0 efficientnet_b0 efficientnet_b4 efficientnet_v2_s convnext_tiny vit_b_16 vit_l_16 swin_t
        mobilenet_v3_small efficientnet_b1 efficientnet_b2 efficientnet_b3 convnext_small convnext_base regnet_y_400mf
        regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_3_2gf wide_resnet101_2
        resnext101_32x8d densenet169 densenet201 vgg13 vgg11_bn vgg13_bn vgg19_bn shufflenet_v2_x0_5 squeezenet1_0
        vit_b_32 vit_l_32 swin_s swin_b
    """,
}
TRAINED = """
    coat_tiny coatnet_rmlp_nano_rw_224 darknet17 dm_nfnet_f0 dm_nfnet_f6 efficientvit_m0 eva_giant_patch14_clip_224
    lcnet_035 legacy_seresnet18 mnasnet_small mobilenetv3_small_075 mobilenetv4_conv_aa_large nextvit_small nf_resnet50
    nfnet_f5 regnetx_160 repghostnet_111 repvit_m2 res2net50_14w_8s resnest14d resnet26t semnasnet_050 test_byobnet
    test_efficientnet tinynet_e vit_medium_patch16_gap_256 vit_so400m_patch14_siglip_224 xception65
"""
"""More of timm's, in fp32 and without a law for validation."""
SIDED = """
    timm-resnet18 timm-resnet34 timm-resnet50 timm-resnet101 timm-resnet152 timm-wide_resnet50_2 timm-resnext50_32x4d
    timm-densenet121 timm-mobilenetv2_100 timm-mobilenetv3_large_100 timm-mobilenetv3_small_100 timm-efficientnet_b0
    timm-efficientnet_b3 timm-tf_efficientnet_b0 timm-tf_efficientnetv2_s timm-convnext_tiny timm-convnext_small
    timm-convnext_base timm-seresnet50 timm-resnet50d torchvision-resnet18 torchvision-resnet34 torchvision-resnet50
    torchvision-resnet101 torchvision-resnet152 torchvision-resnext50_32x4d torchvision-wide_resnet50_2
    torchvision-densenet121 torchvision-vgg11 torchvision-vgg16 torchvision-vgg19 torchvision-vgg16_bn
    torchvision-mobilenet_v2 torchvision-mobilenet_v3_large torchvision-mobilenet_v3_small torchvision-efficientnet_b0
    torchvision-efficientnet_b1 torchvision-efficientnet_b2 torchvision-efficientnet_b3 torchvision-efficientnet_b4
    torchvision-convnext_tiny torchvision-convnext_small torchvision-convnext_base torchvision-regnet_y_400mf
    torchvision-regnet_y_800mf torchvision-regnet_y_1_6gf torchvision-regnet_y_3_2gf torchvision-regnet_x_400mf
    torchvision-regnet_x_800mf torchvision-regnet_x_3_2gf torchvision-shufflenet_v2_x1_0 torchvision-shufflenet_v2_x0_5
    torchvision-mnasnet1_0 torchvision-wide_resnet101_2 torchvision-resnext101_32x8d torchvision-densenet169
    torchvision-densenet201 torchvision-vgg13 torchvision-vgg11_bn torchvision-vgg13_bn torchvision-vgg19_bn
"""
"""Files whose laws hold at every side that 32 divides. timm's VGGs have a convolution of 7x7 behind their maps, and
take other steps where those are smaller."""
MIXED = """
    timm-resnet18 timm-resnet34 timm-resnet50 timm-resnet101 timm-resnet152 timm-resnext50_32x4d timm-wide_resnet50_2
    timm-densenet121 timm-vgg16 timm-mobilenetv2_100 timm-mobilenetv3_large_100 timm-mobilenetv3_small_100
    timm-efficientnet_b0 timm-efficientnet_b3 timm-tf_efficientnet_b0 timm-tf_efficientnetv2_s timm-convnext_tiny
    timm-convnext_small timm-convnext_base timm-resnet50d timm-seresnet50 timm-vit_tiny_patch16_224
    timm-vit_small_patch16_224 timm-vit_base_patch16_224 timm-vit_large_patch16_224 timm-deit_small_patch16_224
    timm-deit_base_patch16_224 timm-swin_tiny_patch4_window7_224 timm-swin_base_patch4_window7_224
    timm-vit_base_patch32_224 timm-mixer_b16_224 timm-resnet10t timm-resnet18d timm-resnet26 timm-resnet26d
    torchvision-resnet18 torchvision-resnet34 torchvision-resnet50 torchvision-resnet101 torchvision-resnet152
    torchvision-resnext50_32x4d torchvision-wide_resnet50_2 torchvision-densenet121 torchvision-vgg16
    torchvision-mobilenet_v2 torchvision-mobilenet_v3_large torchvision-efficientnet_b0 torchvision-convnext_tiny
    torchvision-swin_t torchvision-vit_b_16 torchvision-vit_l_16
"""
"""Files that have laws in mixed precision as well."""


def names() -> list[str]:
    """Names of all files: "timm-resnet50"."""
    trained = [f"timm-{name}" for name in TRAINED.split()]
    return [*(f"{home}-{name}" for home, text in TARGETS.items() for name in text.split()), *trained]


def laws_of(family: str) -> dict[str, MadeLaw | str]:
    """Every law of a model by its key, or the file and key of the law that it is as well; those that are there are
    kept. Raises CannotMake, TraceError, NotRegular."""
    target = family.replace("-", ":", 1)
    image = usual_size(target)
    kinds = ("train",) if family.partition("-")[2] in TRAINED.split() else KINDS
    model = {"target": target, "kwargs": {}, "task": "image-classification", "image_size": image}
    made: dict[str, MadeLaw | str] = {}
    for name, (weights, autocast) in PRECISIONS.items():
        setup = Setup(weights, autocast)
        for kind in KINDS:
            key = key_of(kind, setup, f"image={image}")
            there = load(LawKey(family, key))
            wanted = kind in kinds and (name != "mixed" or family in MIXED.split())
            if family in SIDED.split() and (wanted or there is not None):
                made |= at_all_sides(family, model, kind, setup)
                if key in made:
                    continue
            if there is not None:
                twin = family.replace("torchvision-", "timm-")
                made[key] = f"{twin}|{key}" if twin != family and there is load(LawKey(twin, key)) else there
            elif wanted:
                made[key] = twin_of(family, key, model, kind, setup) or make_at(
                    model, kind, setup, {"b": 1, "i": image}, run
                )
    return made


def key_of(kind: str, setup: Setup, side: str) -> str:
    """The key of a law; `side`: "image=224"."""
    return key_text("image-classification", kind, setup, {}, side)


def at_all_sides(family: str, model: Mapping[str, Any], kind: str, setup: Setup) -> dict[str, MadeLaw | str]:
    """The law of any side, under a key of its own and, by reference, under those of the sides. Raises CannotMake."""
    key = key_of(kind, setup, ANY)
    law: MadeLaw | str | None = load(LawKey(family, key)) or twin_of(family, key, model, kind, setup)
    if law is None:
        law = make_at_sides(model, kind, setup, run)
        check_at_own_side(law, family, key_of(kind, setup, f"image={model['image_size']}"), model["image_size"])
    target = law if isinstance(law, str) else f"{family}|{key}"
    filed: dict[str, MadeLaw | str] = {key_of(kind, setup, f"image={side}"): target for side in sides()}
    return {key: law, **filed, **at_grain(family, key, model, kind, setup)}


def at_grain(family: str, key: str, model: Mapping[str, Any], kind: str, setup: Setup) -> dict[str, MadeLaw | str]:
    """The law of a side of GRAIN pixels, whose last maps are single points: that of any side where its events are the
    same there, else one of its own; none of a model that takes no such images."""
    small = key_of(kind, setup, f"image={GRAIN}")
    there, law = load(LawKey(family, small)), load(LawKey(family, key))
    if there is not None or law is None:
        return {} if there is None else {small: there}
    point = {"b": TWIN_BATCH, "i": GRAIN}
    request = TraceRequest({**model, "image_size": GRAIN}, setup, kind, True).at(point)
    try:
        (trace,) = run([request])
    except TraceError:
        return {}
    try:
        verify(law, trace, point)
    except CannotMake:
        return {small: make_at({**model, "image_size": GRAIN}, kind, setup, {"b": 1, "i": GRAIN}, run)}
    return {small: f"{family}|{key}"}


def check_at_own_side(law: MadeLaw, family: str, key: str, side: int) -> None:
    """Where a law of the model's own side is there, the law of any side comes to it. Raises CannotMake."""
    there = load(LawKey(family, key)) if side in sides() else None
    if there is None:
        return
    dims = {"b": TWIN_BATCH, "i": side}
    events = [
        [(kind, birth, made.tape.values(dims)[size] if kind == "b" else 0, mark)
         for kind, birth, size, mark, _ in expand(made.tape, dims)]
        for made in (law, there)
    ]  # fmt: skip
    if events[0] != events[1]:
        raise CannotMake(f"at {side} pixels the law of any side is not that of {side} pixels")


def twin_of(family: str, key: str, model: Mapping[str, Any], kind: str, setup: Setup) -> str | None:
    """timm's law that a model of torchvision has as well, event by event; None where there is none."""
    name = family.replace("torchvision-", "timm-")
    law = load(LawKey(name, key)) if name != family else None
    if law is None:
        return None
    point = {"b": TWIN_BATCH, "i": model["image_size"]}
    (trace,) = run([TraceRequest(model, setup, kind, True).at(point)])
    numbers = [(elements, nbytes // elements) for _, nbytes, elements, _ in trace["parameters"]]
    if [(n, round(size)) for n, size, _ in law.parameters.sizes({}, point)] != numbers:
        return None
    try:
        verify(law, trace, point)
    except CannotMake:
        return None
    return f"{name}|{key}"


def make_one(family: str, again: bool = False) -> str:
    """Make and write the laws of one model; what came of it, in words."""
    start = time.perf_counter()
    if again:
        image_path(family).unlink(missing_ok=True)
    try:
        made = laws_of(family)
    except (CannotMake, TraceError, NotRegular) as error:
        return f"{family}: not made: {str(error)[:200]}"
    body = pack({key: law for key, law in made.items() if isinstance(law, MadeLaw)})
    body["laws"] |= {key: law for key, law in made.items() if isinstance(law, str)}
    size = write(image_path(family), {"format": FORMAT, "family": family, "made_by": versions(LIBRARIES), **body})
    return f"{family}: {len(made)} laws, {size} bytes, {time.perf_counter() - start:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--again", action="store_true", help="make what is there as well")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    make = partial(make_one, again=options.again)
    with ProcessPoolExecutor(options.jobs) as pool:
        for home in TARGETS:  # timm first: torchvision's point to it
            for said in pool.map(make, [n for n in options.names or names() if n.startswith(home)]):
                print(said, file=sys.stderr if "not made" in said else sys.stdout, flush=True)
    total = sum(path.stat().st_size for path in (LAWS / "images").glob("*.json.gz"))
    print(f"{total:,} bytes in all")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
