"""Pictures: Pillow, OpenCV, and the transforms of torchvision, albumentations and timm, by the sizes that they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from preflight.python.arrays import Array, Shape, arithmetic, array_of, known, make, new, number, shape_of
from preflight.python.evaluator import Evaluator, Hook
from preflight.python.headers import sizes_of_files
from preflight.python.objects import (
    ARRAY,
    Abstract,
    CallRecord,
    Container,
    Instance,
    alternatives,
    is_expr,
    to_expr,
)
from preflight.vocabulary.values import Cause, Const, Expr, Unknown, unknown

UNREAD: Expr = unknown("the size of a picture is in its file", cause=Cause.not_read)
"""A side of a picture that only its file says."""
_CHANNELS = {"RGB": 3, "L": 1, "RGBA": 4, "CMYK": 4, "YCbCr": 3, "HSV": 3}
_TRANSFORMS = ("torchvision.transforms", "albumentations", "timm.data")
DECODES = "decodes"
"""The key of an object's state: it was decoded from a file."""


def picture(record: CallRecord, shape: Shape, dtype: str = "uint8", library: str = "pil") -> Instance:
    made = make(record, Array(shape, dtype, library))
    assert made is not None
    return made


def _open(record: CallRecord, ev: Evaluator) -> Abstract | None:
    return picture(record, _of_file(record.object("fp", 0), record, ev, UNREAD))


def _of_file(path: Abstract | None, record: CallRecord, ev: Evaluator, channels: Expr) -> Shape:
    """Height, width and channels of a file's picture, where its header says them."""
    found = sizes_of_files(ev, path, record)
    if found is None:
        return (UNREAD, UNREAD, channels)
    high, wide = (UNREAD if one is None else Const(one, record.origin) for one in found[:2])
    return (high, wide, channels if known(channels) else Const(found[2], record.origin))


def _new(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`Image.new("RGB", (640, 480))`"""
    mode, size = record.argument("mode", 0), record.object("size", 1)
    sides = shape_of(ev, [size]) if size is not None else None
    channels = _CHANNELS.get(str(ev.value_of(mode))) if mode is not None else None
    return picture(record, (sides[1], sides[0], Const(channels))) if sides and len(sides) == 2 and channels else None


def _fromarray(record: CallRecord, ev: Evaluator) -> Abstract | None:
    array = array_of(record.arguments[0]) if record.arguments else None
    if array is None or len(array.shape) not in (2, 3):
        return None
    return picture(record, array.shape if len(array.shape) == 3 else (*array.shape, Const(1)))


def _convert(record: CallRecord, ev: Evaluator) -> Abstract | None:
    array, mode = array_of(record.receiver_object), record.argument("mode", 0)
    channels = _CHANNELS.get(str(ev.value_of(mode))) if mode is not None else None
    if array is None or array.library != "pil" or channels is None:
        return None
    return picture(record, (*array.shape[:2], Const(channels)))


def _resize(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`picture.resize((width, height))`"""
    array, size = array_of(record.receiver_object), record.object("size", 0)
    sides = shape_of(ev, [size]) if size is not None else None
    if array is None or array.library != "pil" or sides is None or len(sides) != 2:
        return None
    return picture(record, (sides[1], sides[0], array.shape[2]))


def _crop(record: CallRecord, ev: Evaluator) -> Abstract | None:
    array, box = array_of(record.receiver_object), record.object("box", 0)
    edges = shape_of(ev, [box]) if box is not None else None
    if array is None or array.library != "pil":
        return None
    if edges is None or len(edges) != 4:
        return picture(record, (UNREAD, UNREAD, array.shape[2]))
    sides = arithmetic(ev, "-", edges[3], edges[1]), arithmetic(ev, "-", edges[2], edges[0])
    return picture(record, (*sides, array.shape[2]))


# --- OpenCV -----------------------------------------------------------------------------------------------------------


def _imread(record: CallRecord, ev: Evaluator) -> Abstract | None:
    flag = record.object("flags", 1)
    shape = _of_file(record.object("filename", 0), record, ev, Const(3))
    if flag is None:
        return picture(record, shape, library="numpy")
    name = getattr(flag, "name", "").rpartition(".")[2]
    if name == "IMREAD_GRAYSCALE" or (isinstance(flag, Const) and flag.value == 0):
        return picture(record, shape[:2], library="numpy")
    return picture(record, shape, library="numpy") if name == "IMREAD_COLOR" else None


def _cv_resize(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`cv2.resize(image, (width, height))`"""
    array, size = array_of(record.object("src", 0)), record.object("dsize", 1)
    sides = shape_of(ev, [size]) if size is not None else None
    if array is None or sides is None or len(sides) != 2:
        return None
    return make(record, new(array, (sides[1], sides[0], *array.shape[2:])))


def _cv_color(record: CallRecord, ev: Evaluator) -> Abstract | None:
    array, code = array_of(record.object("src", 0)), getattr(record.object("code", 1), "name", "")
    if array is None or len(array.shape) < 2:
        return None
    gray, from_gray = code.endswith("GRAY"), "GRAY2" in code
    return make(
        record, new(array, array.shape[:2] if gray else (*array.shape[:2], Const(3)) if from_gray else array.shape)
    )


# --- transforms -------------------------------------------------------------------------------------------------------


class _Step(Struct, frozen=True):
    """A transform: its name, and the call that makes it. `ways`: what it may do instead of what its name says."""

    name: str
    record: CallRecord
    ways: tuple[tuple[_Step, ...], ...] = ()


_ONE_OF = ("RandomApply", "SomeOf", "OneOf", "RandomOrder", "RandomChoice")


def _steps(value: Abstract | None, ev: Evaluator) -> list[_Step] | None:
    """The transforms that one is made of, in order; None if they are not all known."""
    if not isinstance(value, Instance) or value.record is None or not value.made_by.startswith(_TRANSFORMS):
        return None
    record, name = value.record, value.record.method
    chance = record.argument("p")
    sure = chance is None or ((one := ev.value_of(chance)) == 1 and not isinstance(one, Unknown))
    if name not in ("Compose", "Sequential", *_ONE_OF):
        step = _Step(name, record)
        return [step if sure else _Step(name, record, ((step,), ()))]
    given = record.object("transforms", 0)
    items = ev.iterate(given) if given is not None else None
    found = [_steps(item, ev) for item in items] if items is not None else [None]
    known_steps = [tuple(one) for one in found if one is not None]
    if len(known_steps) < len(found):
        return None
    whole = tuple(step for one in known_steps for step in one)
    if name not in _ONE_OF:
        return list(whole) if sure else [_Step(name, record, (whole, ()))]
    ways = (whole,) if name == "RandomApply" else tuple(known_steps)
    always = name == "RandomChoice" or (name == "OneOf" and chance is not None and sure)
    return [_Step(name, record, ways if always else (*ways, ()))]


def _sides(step: _Step, ev: Evaluator, *names: str) -> Shape | None:
    """`size=224`, `size=(height, width)`, `height=, width=`; None if it is one side of a rectangle or not known."""
    high, wide = (step.record.argument(name) for name in (names or ("height", "width")))
    if high is not None and wide is not None:
        return (high, wide) if known(high) and known(wide) else None
    given = step.record.object("size", 0)
    if given is None:
        return None
    if not is_expr(given) or ev.iterate(given) is not None:
        sides = shape_of(ev, [given])
        return sides if sides is not None and len(sides) == 2 else (sides[0], sides[0]) if sides else None
    two = step.record.object("width", 1)
    if two is not None and is_expr(two) and step.record.name.startswith("albumentations"):
        return (to_expr(given), to_expr(two))
    one = to_expr(given)
    return (one, one) if known(one) and ev.value_of(one) is not None else None


_SQUARES = ("RandomResizedCrop", "CenterCrop", "RandomCrop", "RandomSizedCrop", "RandomSizedBBoxSafeCrop",
            "CropNonEmptyMaskIfExists", "RandomResizedCropAndInterpolation")  # fmt: skip
_TENSORS = ("ToTensor", "PILToTensor", "ToImage", "ToTensorV2", "ToImageTensor", "MaybeToTensor")
_SAME = ("Normalize", "ColorJitter", "Grayscale", "RandomGrayscale", "RandomHorizontalFlip", "RandomVerticalFlip",
         "RandomRotation", "RandomAffine", "GaussianBlur", "RandomErasing", "AutoAugment", "RandAugment",
         "TrivialAugmentWide", "AugMix", "RandomPerspective", "RandomAdjustSharpness", "RandomAutocontrast",
         "RandomInvert", "RandomSolarize", "RandomPosterize", "RandomEqualize", "ElasticTransform", "Identity",
         "HorizontalFlip", "VerticalFlip", "Flip", "RandomBrightnessContrast", "ShiftScaleRotate", "HueSaturationValue",
         "GaussNoise", "Blur", "MotionBlur", "CLAHE", "CoarseDropout", "Rotate", "RandomGamma", "Affine", "RGBShift",
         "ToGray", "Cutout", "Perspective", "RandomPhotometricDistort", "ToPureTensor", "GridDistortion",
         "ConvertImageDtype", "ToDtype", "RandomErasing", "Posterize", "Solarize", "ImageCompression", "ToFloat",
         "FromFloat", "OpticalDistortion", "MedianBlur", "Sharpen", "Emboss", "ChannelShuffle", "Downscale",
         "GaussianNoise", "SanitizeBoundingBoxes", "Rot90", "RandomRotate90", "D4", "Transpose")  # fmt: skip


class _Picture(Struct, frozen=True):
    """A picture between two transforms. `front`: its channels come first; `most`: both sides have at most so many
    pixels."""

    sides: Shape
    channels: Expr | None
    dtype: str
    library: str
    front: bool = False
    most: int | None = None

    def same_as(self, other: _Picture) -> bool:
        """Whether another takes the same memory in the same form, wherever its sizes are written."""
        sizes = [
            [number(size) if number(size) is not None else size for size in (*one.sides, one.channels or Const(0))]
            for one in (self, other)
        ]
        form = (self.dtype, self.library, self.front) == (other.dtype, other.library, other.front)
        return form and sizes[0] == sizes[1]


def transformed(array: Array, steps: Sequence[_Step], ev: Evaluator, mask: bool = False) -> Array | None:
    """A picture behind its transforms; None where one of them is not known. `mask`: labels of its pixels."""
    if len(array.shape) not in (2, 3):
        return None
    front = array.library == "torch" and len(array.shape) == 3
    channels = None if len(array.shape) == 2 else array.shape[0 if front else 2]
    sides = array.shape[1:] if front else array.shape[:2]
    found = _after(_Picture(sides, channels, array.dtype, array.library, front), steps, ev, mask)
    if found is None:
        return None
    if found.channels is None:
        return Array(found.sides, found.dtype, found.library)
    first = found.front and not mask
    shape = (found.channels, *found.sides) if first else (*found.sides, found.channels)
    return Array(shape, found.dtype, found.library)


def _after(one: _Picture | None, steps: Sequence[_Step], ev: Evaluator, mask: bool) -> _Picture | None:
    for step in steps:
        if one is None:
            return None
        ways = [_after(one, way, ev, mask) for way in step.ways]
        one = ways[0] if ways else _step(one, step, ev, mask)
        if any(way is None or one is None or not way.same_as(one) for way in ways[1:]):
            return None
    return one


def _step(one: _Picture, step: _Step, ev: Evaluator, mask: bool) -> _Picture | None:
    sized = _sized(step, one, ev)
    if sized is None and step.name not in (*_TENSORS, *_SAME, "ToPILImage"):
        return None
    most = one.most if sized is None else None
    if step.name == "LongestMaxSize":
        limit = step.record.argument("max_size", 0)
        most = number(limit) if limit is not None else None
    one = replace(one, sides=sized or one.sides, most=most)
    if step.name in ("Grayscale", "ToGray") and not step.record.name.startswith("albumentations"):
        given = step.record.argument("num_output_channels", 0)
        return replace(one, channels=given if given is not None else Const(1))
    if step.name == "ToPILImage":
        return replace(one, library="pil", front=False, dtype="uint8")
    if step.name in _TENSORS:
        dtype = "float32" if step.name == "ToTensor" and one.dtype == "uint8" else one.dtype
        return replace(one, library="torch", front=one.front or one.channels is not None, dtype=dtype)
    if step.name in ("Normalize", "ToFloat") and not mask:
        mean = step.record.object("mean", 0)
        means = ev.iterate(mean) if mean is not None else None
        told = one.channels is not None and not known(one.channels) and len(means or ()) > 1
        return replace(one, dtype="float32", channels=Const(len(means or ())) if told else one.channels)
    if step.name in ("ToDtype", "ConvertImageDtype"):
        said = step.record.object("dtype", 0)
        return replace(one, dtype=getattr(said, "name", "torch.float32").rpartition(".")[2])
    return one


_RESIZING = {"RandomRotation": "expand", "Affine": "fit_output", "Rotate": "crop_border"}
"""Transforms that keep the size, unless they are told this."""


def _sized(step: _Step, one: _Picture, ev: Evaluator) -> Shape | None:
    before = one.sides
    if step.name in _RESIZING:
        told = step.record.argument(_RESIZING[step.name], 2 if step.name == "RandomRotation" else None)
        return None if told is None or ev.value_of(told) is False else (UNREAD, UNREAD)
    if step.name == "Resize":
        given = step.record.object("size", 0)
        if step.record.name.startswith("torchvision") and given is not None and is_expr(given) and _one(given, ev):
            side = to_expr(given)
            square = all(known(s) for s in before) and before[0] == before[1]
            return (side, side) if square else (UNREAD, UNREAD)  # the shorter side
        return _sides(step, ev)
    if step.name in _SQUARES:
        return _sides(step, ev)
    if step.name in ("LongestMaxSize", "SmallestMaxSize", "RandomScale", "Crop", "BBoxSafeRandomCrop"):
        return (UNREAD, UNREAD)
    if step.name == "PadIfNeeded":  # to at least that
        return _padded(one, _sides(step, ev, "min_height", "min_width"))
    if step.name == "Pad":
        given, width = step.record.object("padding", 0), 0
        whole = ev.value_of(to_expr(given)) if given is not None and is_expr(given) else None
        if not isinstance(whole, int):
            return (UNREAD, UNREAD)
        width = 2 * whole
        return tuple(arithmetic(ev, "+", side, Const(width)) if known(side) else side for side in before)
    return None


def _padded(one: _Picture, least: Shape | None) -> Shape:
    """The sides of a picture that is made no smaller than `least`; larger ones stay."""
    whole = [number(side) for side in (least or ())]
    if least is None or None in whole:
        return (UNREAD, UNREAD)
    if one.most is not None and all(side is not None and one.most <= side for side in whole):
        return least
    both = [(number(side), side, other) for side, other in zip(one.sides, least, strict=True)]
    return tuple(UNREAD if now is None else side if now > (number(other) or 0) else other for now, side, other in both)


def _one(value: Abstract, ev: Evaluator) -> bool:
    return ev.iterate(value) is None


def apply(transform: Abstract | None, value: Abstract, record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`transform(picture)`, by a library's transform or a function of the project."""
    if isinstance(transform, Const) and transform.value is None:
        return value
    array, steps = array_of(value), _steps(transform, ev)
    if array is not None and steps is not None:
        return make(record, transformed(array, steps, ev))
    own = isinstance(transform, Instance) and transform.cls is not None
    if transform is not None and (own or not isinstance(transform, (Const, Instance))):
        return ev.call(transform, (value,))
    return None


def _transform(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """A transform is called: with a picture, or (albumentations) with named pictures and masks."""
    steps = _steps(record.receiver_object, ev)
    if steps is None:
        return None
    if record.keywords and not record.arguments:
        items: dict[object, Abstract] = {}
        for name, value in record.keywords.items():
            array = array_of(value)
            found = transformed(array, steps, ev, mask=name == "mask") if array is not None else None
            made = make(record, found)
            items[name] = made if made is not None else value if array is None else unknown("its size is not known")
        return Container("dict", items, record.origin)  # type: ignore[arg-type]
    if len(record.arguments) != 1:
        return None
    array = array_of(given_picture(record.arguments[0]))
    return make(record, transformed(array, steps, ev)) if array is not None else None


def _functional(maker: Callable[[Array], Array]) -> Hook:
    def hook(record: CallRecord, ev: Evaluator) -> Abstract | None:
        array = array_of(record.arguments[0]) if record.arguments else None
        return make(record, maker(array)) if array is not None else None

    return hook


def _to_tensor(array: Array) -> Array:
    shape = (array.shape[2], *array.shape[:2]) if len(array.shape) == 3 else (Const(1), *array.shape)
    return Array(shape, "float32" if array.dtype == "uint8" else array.dtype)


def _functional_resize(record: CallRecord, ev: Evaluator) -> Abstract | None:
    array, size = array_of(record.arguments[0]) if record.arguments else None, record.object("size", 1)
    sides = shape_of(ev, [size]) if size is not None else None
    if array is None or sides is None or len(sides) != 2:
        return None
    shape = (*sides, array.shape[2]) if array.library == "pil" else (*array.shape[:-2], *sides)
    return make(record, new(array, shape))


def _timm_transform(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`timm.data.create_transform(input_size=224)`: it ends with a tensor of that size."""
    given = record.object("input_size", 0)
    items = ev.iterate(given) if given is not None else None
    sides = shape_of(ev, [given]) if given is not None else None
    if sides is None:
        return None
    sides = sides[-2:] if items is not None else (sides[0], sides[0])
    made = Instance(record.qualified, record=record, origin=record.origin)
    made.state["sides"] = sides
    return made


def _timm_call(record: CallRecord, ev: Evaluator) -> Abstract | None:
    maker = record.receiver_object
    sides = maker.state.get("sides") if isinstance(maker, Instance) else None
    array = array_of(record.arguments[0]) if record.arguments else None
    if not isinstance(sides, tuple) or array is None:
        return None
    return make(record, Array((Const(3), *sides), "float32"))


def given_picture(value: Abstract | None) -> Abstract | None:
    """What a transform is given; where that is perhaps None, the picture that it else is: None has no pixels."""
    some = [one for one in alternatives(value) if one != Const(None)] if value is not None else []
    return some[0] if len(some) == 1 else value


def called(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """An object of a library is called."""
    return _timm_call(record, ev) or _transform(record, ev)


def _kept(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`picture.rotate(angle)`, `.filter(...)`: a picture of the same size, unless a turned one may grow."""
    array, grows = array_of(record.receiver_object), record.argument("expand", 2)
    if array is None or array.library != "pil":
        return None
    if record.method == "rotate" and grows is not None and ev.value_of(grows) not in (False, 0):
        return picture(record, (UNREAD, UNREAD, array.shape[2]))
    return make(record, new(array))


def _thumbnail(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`picture.thumbnail(size)` makes the picture itself smaller, as its sides allow."""
    array, made = array_of(record.receiver_object), record.receiver_object
    if array is None or array.library != "pil" or not isinstance(made, Instance):
        return None
    made.state[ARRAY] = replace(array, shape=(UNREAD, UNREAD, array.shape[2]))
    return Const(None, record.origin)


_TO_TENSOR = ("torchvision.transforms.functional.to_tensor", "torchvision.transforms.functional.pil_to_tensor",
              "torchvision.transforms.v2.functional.to_image")  # fmt: skip
HOOKS: Mapping[str, Hook] = {
    "PIL.Image.open": _open, "PIL.Image.new": _new, "PIL.Image.fromarray": _fromarray,
    "*.convert": _convert, "*.resize": _resize, "*.crop": _crop,
    **dict.fromkeys(("*.rotate", "*.filter"), _kept), "*.thumbnail": _thumbnail,
    "cv2.imread": _imread, "cv2.resize": _cv_resize, "cv2.cvtColor": _cv_color,
    "cv2.GaussianBlur": _functional(new), "cv2.flip": _functional(new),
    **dict.fromkeys(_TO_TENSOR, _functional(_to_tensor)),
    "torchvision.transforms.functional.normalize": _functional(new),
    "torchvision.transforms.functional.resize": _functional_resize,
    "torchvision.transforms.v2.functional.resize": _functional_resize,
    "torchvision.transforms.functional.hflip": _functional(new),
    "timm.data.create_transform": _timm_transform,
    "timm.data.transforms_factory.create_transform": _timm_transform,
    "*.__call__": called,
}  # fmt: skip
