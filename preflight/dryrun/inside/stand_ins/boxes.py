"""Boxes of pictures that are not there, in the formats of VOC (XML) and COCO (JSON): made up, some in each picture."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from .. import places
from ..patches import wrap
from ..tape import Tape
from .own_code import asked_by_program, may_be_missing
from .vision import PICTURE

BOXES = 8
"""Boxes of a made-up picture: COCO has 7.3 on average, VOC 2.4."""
PICTURES_OF_COCO = 1024
_SIZE_OF_COCO = (640, 480)
_CLASSES_OF_COCO = tuple(i for i in range(1, 91) if i not in (12, 26, 29, 30, 45, 66, 68, 69, 71, 83))
"""The 80 numbers of COCO's classes."""
_NAMES = ("class", "label", "categor", "name")
_BACKGROUND = ("background", "__background__", "bg", "_background_")


def corners(width: int, height: int) -> Iterator[tuple[int, int, int, int]]:
    """Corners of the boxes of a picture: different ones, of a third to a half of its side."""
    for i in range(BOXES):
        left, top = 1 + i * width // 16, 1 + i * height // 16
        yield left, top, left + width // (2 + i % 2), top + height // (2 + i % 2)


def voc(folder: str, name: str, of_class: str) -> dict[str, Any]:
    """The annotation of a picture as VOC's are, with numbers as texts."""
    width, height = PICTURE
    objects = [
        {
            "name": of_class,
            "pose": "Unspecified",
            "truncated": "0",
            "difficult": "0",
            "bndbox": dict(zip(("xmin", "ymin", "xmax", "ymax"), map(str, box))),
        }
        for box in corners(width, height)
    ]
    size = {"width": str(width), "height": str(height), "depth": "3"}
    return {"folder": folder, "filename": name, "path": name, "size": size, "segmented": "0", "object": objects}


def coco() -> dict[str, Any]:
    """The content of a file of COCO's: objects with boxes, outlines and key points, and sentences."""
    width, height = _SIZE_OF_COCO
    images = [
        {"id": i, "file_name": f"{i:012}.jpg", "width": width, "height": height} for i in range(1, PICTURES_OF_COCO + 1)
    ]
    found: list[dict[str, Any]] = []
    for image in images:
        for left, top, right, bottom in corners(width, height):
            wide, high = right - left, bottom - top
            outline = [left, top, right, top, right, bottom, left, bottom]
            found.append(
                {
                    "id": len(found) + 1,
                    "image_id": image["id"],
                    "category_id": _CLASSES_OF_COCO[len(found) % len(_CLASSES_OF_COCO)],
                    "bbox": [left, top, wide, high],
                    "area": wide * high,
                    "iscrowd": 0,
                    "segmentation": [outline],
                    "keypoints": [left + 1, top + 1, 2] * 17,
                    "num_keypoints": 17,
                    "caption": "a picture of some things on a table",
                }
            )
    kinds = [{"id": i, "name": f"class {i}", "supercategory": "thing"} for i in _CLASSES_OF_COCO]
    return {"info": {}, "licenses": [], "images": images, "annotations": found, "categories": kinds}


class Annotations:
    """What stands for files of annotations that are not there."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape

    def said(self, path: Any, size: tuple[int, int] = PICTURE) -> None:
        """A file is made up, and what in it decides sizes."""
        self._tape.data_made_up = True
        where = os.path.dirname(os.fspath(path)) or os.fspath(path)
        words = f"the annotations in {where} are made up: {BOXES} boxes in a picture of {size[0]} x {size[1]}"
        self._tape.assume(words, "train.image_size")

    def xml(self, module: Any) -> None:
        """xml.etree.ElementTree: `parse` of a file that is not there."""

        def parsed(real: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return real(source, *args, **kwargs)
            except FileNotFoundError:
                if not isinstance(source, (str, os.PathLike)) or not str(source).endswith(".xml"):
                    raise
                if not asked_by_program() or may_be_missing():
                    raise
            self.said(source)
            stem = os.path.splitext(os.path.basename(os.fspath(source)))[0]
            root = module.Element("annotation")
            _add(module, root, voc("pictures", f"{stem}.jpg", _class_of_program()))
            return module.ElementTree(root)

        wrap(module, "parse", parsed)

    def pycocotools(self, module: Any) -> None:
        """pycocotools.coco: `COCO` of a file that is not there."""

        def made(real: Any, self_: Any, annotation_file: Any = None) -> None:
            if annotation_file is None or os.path.exists(annotation_file):
                real(self_, annotation_file)
                return
            real(self_)
            self.said(annotation_file, _SIZE_OF_COCO)
            self._tape.assume(f"the classes of {annotation_file} are made up: those of COCO", "model.config")
            self_.dataset = coco()
            self_.createIndex()

        wrap(module.COCO, "__init__", made)


def _add(module: Any, parent: Any, given: dict[str, Any]) -> None:
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            child = module.SubElement(parent, name)
            if isinstance(one, dict):
                _add(module, child, one)
            else:
                child.text = one


def _class_of_program() -> str:
    """A name that the program has among its classes: the last of them, since the first may be the background."""
    frame: Any = sys._getframe(2)
    while frame is not None and not places.is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return "person"
    own = getattr(frame.f_locals.get("self"), "__dict__", {})
    for scope in (frame.f_locals, own, frame.f_globals):
        for name, value in list(scope.items()):
            if not any(word in name.lower() for word in _NAMES):
                continue
            texts = [one for one in value if isinstance(one, str)] if isinstance(value, (list, tuple, dict)) else []
            known = [one for one in texts if one.lower() not in _BACKGROUND and "." not in one]
            if known and len(known) >= len(value) - 1:
                return known[-1]
    return "person"
