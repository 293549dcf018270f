"""Images that a denoiser's job generates for validation, and what saving it takes on the GPU.

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
from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.memory.device.law import store
from preflight.memory.device.law.law import Peak
from preflight.memory.device.law.laws import Laws, laws_for
from preflight.memory.device.law.setup import NEWEST, release
from preflight.memory.device.law.tape import Tape
from preflight.memory.device.step.validation import Phase
from preflight.memory.device.workload import Resolved
from preflight.memory.device.workloads.pipelines import CONTROLNET, DENOISER, Companion, pipeline
from preflight.vocabulary.values import Unknown

if TYPE_CHECKING:
    from preflight.memory.device.prepare import Ready
    from preflight.memory.device.workloads.denoisers import Denoiser

REFERENCES = (0, 22)
"""The release of accelerate from which a saved state is references (accelerator.py, get_state_dict)."""
NOTHING = Tape((), (), (), {})


def phases(ready: Ready, denoiser: Denoiser, smooth: bool = False) -> Iterator[Phase]:
    """The phases of a denoiser's job that generates, and of its saving where that takes something."""
    yield from _saving(ready)
    if ready.job.validation.generates:
        yield from rounds(ready, denoiser, smooth)


def rounds(ready: Ready, denoiser: Denoiser, smooth: bool = False) -> Iterator[Phase]:
    """Generating the images: a step of the denoiser, and decoding; empty where no law covers one of the two. In a
    fresh pipeline the scripts of text_to_image have autocast and those of dreambooth have not: the larger counts."""
    job, resolved = ready.job, ready.resolved
    step = denoiser.generator(resolved, job.validation.batch_size or 1)
    vae = _decodes(ready)
    anew = loaded(ready)
    asked = [step]
    if vae is not None:
        asked.append(denoiser.decoder(step, vae, True))
        if any(name in DENOISER for name in _loads(ready)):
            asked.append(denoiser.decoder(step, vae, False))
    found: list[tuple[Resolved, Laws]] = []
    for one in asked:
        laws = laws_for(one, "eval", ready.tracing)
        if isinstance(laws, Unknown):
            return
        found.append((one, laws))
    for one, laws in found:
        dims = one.all_dims
        peak = laws.plain.peak(dims, smooth=smooth)
        yield Phase("validation", peak, laws.made.tape, dims, loaded=anew)


def _decodes(ready: Ready) -> Companion | None:
    """The VAE that decodes: the one on the GPU, or the one that is loaded for it."""
    here = [one for one in ready.rank.held if isinstance(one, Companion)]
    known = pipeline(ready.job, ready.resolved.name).values()
    return next((one for one in (*here, *known) if one.config is not None), None)


def _loads(ready: Ready) -> tuple[str, ...]:
    """What is loaded for the images, by name: as stated, or as the scripts do in the end: what the pipeline has and the
    GPU has not, and beside adapters a fresh denoiser."""
    stated = ready.job.validation.loads
    if stated is not None:
        return tuple(stated)
    here = {one.name.partition(":")[0] for one in ready.rank.held if isinstance(one, Companion)}
    missing = [one for one in pipeline(ready.job, ready.resolved.name) if ":" not in one and one not in here]
    method = ready.job.train.peft.method
    fresh = {None: (), "none": (), CONTROLNET: (CONTROLNET,)}.get(method, ("denoiser",))
    return (*fresh, *missing)


def loaded(ready: Ready) -> tuple[int, ...]:
    """Bytes of the storages that are there for the images and not while training."""
    job = ready.job
    known = pipeline(job, ready.resolved.name)
    each = 4 if (job.train.precision or "fp32") == "fp32" else 2
    controlled = job.train.peft.method == CONTROLNET
    found: list[int] = []
    for name in _loads(ready):
        if name in DENOISER:
            found += [n * each for n, _, trains in ready.parameters if not (controlled and trains)]
        elif name == CONTROLNET:
            found += [n * each for n, _, trains in ready.parameters if trains]
        elif name in known:
            found.append(known[name].nbytes)
    return (*found, *_widened(ready))


def _widened(ready: Ready) -> tuple[int, ...]:
    """What casting the trained model's 16-bit weights to fp32 in place adds."""
    if ready.job.train.saved_as != "fp32":
        return ()
    return tuple(2 * n for n, each, _ in ready.rank.rows if each == 2)


def _saving(ready: Ready) -> Iterator[Phase]:
    state = _copied(ready)
    for taken in (state, _widened(ready)):
        if taken:
            yield Phase("save", Peak(0, {}, "save", ""), NOTHING, {}, loaded=taken)


def _copied(ready: Ready) -> tuple[int, ...]:
    """The fp32 copies of fp16 weights in the state that an old accelerate saves; bf16 was left as it was."""
    installed = release(ready.job.software.get("accelerate"))
    precision = (ready.job.train.weights_dtype or ready.job.train.precision or "").removesuffix("-mixed")
    if (installed or NEWEST) >= REFERENCES or precision != "fp16":
        return ()
    return tuple(math.ceil(4 * n) for n, each, _ in ready.rank.rows if each == 2)


def notes(ready: Ready, denoiser: Denoiser) -> tuple[str, ...]:
    """What a user should know of the images."""
    job = ready.job
    if job.validation.generates:
        if job.validation.loads is not None:
            return ()
        names = ", ".join(_loads(ready)) or "nothing"
        return (f"loaded for the images of validation: {names}, as diffusers' example scripts have it in the end; "
                "state validation.loads",)  # fmt: skip
    if "generates" in job.validation.model_fields_set:
        return ()
    if store.load(store.key_of(denoiser.generator(ready.resolved, 1), "eval")) is None:  # not worth a trace
        return ()
    found = list(rounds(ready, denoiser))
    if not found:
        return ()
    takes = ready.weights + ready.held + sum(ready.optimizer.states) + sum(found[0].loaded)
    takes += max(one.peak.bytes for one in found)
    return (f"generating an image for validation would take {takes / 2**30:.1f} GiB of tensors, and nothing says that "
            "the job does: state validation.generates",)  # fmt: skip
