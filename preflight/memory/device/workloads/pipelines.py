"""The pipelines of published denoisers: the frozen models on the GPU in addition to the denoiser.

The VAE and the text encoders of a pipeline are frozen: on the GPU they are weights only. Facts of published
models are in denoisers.json: counts, which models diffusers' example scripts keep on the GPU, and their dtypes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from preflight.memory.device.law.adapters import CONTROLNET
from preflight.memory.device.law.workload import Config, Storage
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown

DATA = Path(__file__).with_name("denoisers.json")
DENOISER = ("denoiser", "unet", "transformer")
"""Names of the denoiser itself in `validation.loads`."""


class Companion(Storage, frozen=True):
    """A frozen model on the GPU, by its name in the pipeline. `config`: of a VAE, whose pass over the images counts."""

    name: str = ""
    dtype: str = "fp32"
    config: Config | None = None


@lru_cache(maxsize=1)
def data() -> dict[str, Any]:
    """denoisers.json: text tokens, defaults of diffusers' classes, VAEs, models."""
    found: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return found


def companions(job: Job, model: str) -> tuple[Companion, ...] | Unknown:
    """The models on the GPU in addition to a denoiser: as stated, else as in diffusers' script."""
    known = pipeline(job, model)
    trained = (*DENOISER, CONTROLNET)
    stated = {
        "train.companions": job.train.companions or (),
        "validation.loads": [one for one in job.validation.loads or () if one not in trained],
    }
    for field, names in stated.items():
        for name in names:
            if name not in known:
                return Unknown(
                    f"{field}: the size of {name} for {model} is not known (known: {', '.join(known) or 'none'})",
                    Cause.not_modelled,
                )
    if job.train.companions is not None:
        return tuple(known[name] for name in job.train.companions)
    return tuple(known[name] for name in _scripts(job, model) if name in known)


def pipeline(job: Job, model: str) -> Mapping[str, Companion]:
    """Every other model of a denoiser's pipeline, by its name. Its dtype is that of its name (`vae:fp16`), else that of
    the scripts."""
    cast = (job.train.precision or "fp32").removesuffix("-mixed")
    rows = _row(model).get("companions", {})
    found = {}
    for name in (*rows, *(job.train.companions or ()), *(job.validation.loads or ())):
        plain, _, dtype = name.partition(":")
        row = rows.get(plain)
        if row is None or dtype not in ("", "fp32", "fp16", "bf16"):
            continue
        dtype = dtype or row.get("dtype", cast)
        config = data()["vaes"][row["vae"]] if "vae" in row else None
        found[name] = Companion(row["parameters"] * (4 if dtype == "fp32" else 2), "weights", name, dtype, config)
    return found


def parts(model: str, denoiser: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The architecture and configuration of each part of a pipeline that is known, by the part's folder. `denoiser`:
    those of the model itself."""
    rows = _row(model).get("companions", {})
    if not rows:
        return {}
    found: dict[str, Mapping[str, Any]] = {
        "unet" if denoiser["architecture"].startswith("UNet") else "transformer": denoiser
    }
    for name, row in rows.items():
        if "vae" in row:
            found[name] = {"architecture": "AutoencoderKL", "config": data()["vaes"][row["vae"]]}
        elif "text_encoder" in row:
            found[name] = data()["text_encoders"][row["text_encoder"]]
            found[name.replace("text_encoder", "tokenizer")] = found[name]
    return found


def _row(model: str) -> Mapping[str, Any]:
    row: Mapping[str, Any] = data()["models"].get(model, {})
    return row


def _scripts(job: Job, model: str) -> list[str]:
    adapted = job.train.peft.method not in (None, "none")
    found: list[str] = _row(model).get("lora" if adapted else "full", [])
    return found
