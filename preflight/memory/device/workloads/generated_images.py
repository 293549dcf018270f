"""GPU memory for the images that a denoiser's job generates for validation, and for saving the denoiser.

Read from diffusers' example scripts (0.19 to 0.39: examples/dreambooth, text_to_image, controlnet), which leave all of
training on the GPU but gradients: the denoiser, the optimizer's states, the VAE. Images come one after another, each
with and without its prompt in one batch (classifier-free guidance), under autocast, at the pipeline's own side; then
the VAE decodes them whole. Scripts with adapters generate once more in the end with a pipeline that is loaded anew:
accelerate still holds the trained model (Accelerator._models), so the denoiser is there twice.

Saving takes nothing as a rule: state dictionaries are references, and files are written storage by storage. Two things
do. Before 0.22, accelerate's `get_state_dict`, which `save_state` calls, made an fp32 copy of every fp16 weight on the
GPU. And most scripts with adapters cast the denoiser to fp32 in place before its adapters are written
(`unet.to(torch.float32)`), which stays so for the last images: `train.saved_as`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from preflight.memory.device.law.adapters import CONTROLNET
from preflight.memory.device.law.made import Weight
from preflight.memory.device.law.workload import ExtraPhase
from preflight.memory.device.workloads.pipelines import DENOISER, Companion, companions, pipeline
from preflight.vocabulary.job import Job
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.values import Unknown

REFERENCES = (0, 22)
"""The release of accelerate from which a saved state is references (accelerator.py, get_state_dict)."""


def on_gpu(job: Job, model: str) -> tuple[Companion, ...]:
    """The models of the pipeline that are on the GPU while training."""
    found = companions(job, model)
    return () if isinstance(found, Unknown) else found


def decodes(job: Job, model: str) -> Companion | None:
    """The VAE that decodes: the one that is on the GPU while training, else the one that is loaded."""
    every = (*on_gpu(job, model), *pipeline(job, model).values())
    return next((one for one in every if one.config is not None), None)


def loads(job: Job, model: str) -> tuple[str, ...]:
    """Names of the models that are loaded to generate: as stated, else as the scripts do: those of the pipeline that
    are not on the GPU, and with adapters a second denoiser."""
    stated = job.validation.loads
    if stated is not None:
        return tuple(stated)
    here = {one.name.partition(":")[0] for one in on_gpu(job, model)}
    missing = [one for one in pipeline(job, model) if ":" not in one and one not in here]
    method = job.train.peft.method
    fresh = {None: (), "none": (), CONTROLNET: (CONTROLNET,)}.get(method, ("denoiser",))
    return (*fresh, *missing)


def loaded(job: Job, model: str, whole: Sequence[Weight], here: Sequence[Weight]) -> tuple[int, ...]:
    """Bytes of the storages that are on the GPU for the images and not while training. `whole`: the denoiser's weights;
    `here`: those on this GPU."""
    known = pipeline(job, model)
    each = 4 if (job.train.precision or "fp32") == "fp32" else 2
    controlled = job.train.peft.method == CONTROLNET
    found: list[int] = []
    for name in loads(job, model):
        if name in DENOISER:
            found += [n * each for n, _, trains in whole if not (controlled and trains)]
        elif name == CONTROLNET:
            found += [n * each for n, _, trains in whole if trains]
        elif name in known:
            found.append(known[name].nbytes)
    return (*found, *_widened(job, here))


def _widened(job: Job, here: Sequence[Weight]) -> tuple[int, ...]:
    """Memory that is added when the trained model's 16-bit weights are cast to fp32 in place."""
    if job.train.saved_as != "fp32":
        return ()
    return tuple(2 * n for n, each, _ in here if each == 2)


def saving(job: Job, here: Sequence[Weight]) -> Iterator[ExtraPhase]:
    """Memory of saving the model."""
    for taken in (_copied(job, here), _widened(job, here)):
        if taken:
            yield ExtraPhase("save", loaded=taken)


def _copied(job: Job, here: Sequence[Weight]) -> tuple[int, ...]:
    """The fp32 copies of fp16 weights in the state that an old accelerate saves; bf16 was left as it was."""
    installed = release(job.software.get("accelerate"))
    precision = (job.train.weights_dtype or job.train.precision or "").removesuffix("-mixed")
    if (installed or NEWEST) >= REFERENCES or precision != "fp16":
        return ()
    return tuple(math.ceil(4 * n) for n, each, _ in here if each == 2)


def notes(job: Job, model: str) -> Iterator[str]:
    """Notes about assumptions for the images that a job generates."""
    if job.validation.generates and job.validation.loads is None:
        names = ", ".join(loads(job, model)) or "nothing"
        yield (
            f"assumed: {names} loaded to generate the validation images, as in diffusers' example scripts; "
            "state validation.loads"
        )
