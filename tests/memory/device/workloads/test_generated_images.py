"""Images that a denoiser's job generates, and its saving: what they add, without torch; the tapes against traces and
against a pipeline that runs, with it."""

from __future__ import annotations

import json
import weakref
from typing import Any

import pytest
from shipped import estimate as estimated
from shipped import laws_for, prepare

from preflight.memory.device import phases
from preflight.memory.device.step.prepared import PreparedJob
from preflight.memory.device.step.replay import Phase
from preflight.memory.device.workloads import denoisers, pipelines
from preflight.vocabulary.estimates import DeviceEstimate
from preflight.vocabulary.job import build
from preflight.vocabulary.values import Unknown

SDXL = "stabilityai/stable-diffusion-xl-base-1.0"
SD15 = "stable-diffusion-v1-5/stable-diffusion-v1-5"
LORA: dict[str, object] = {
    "model.name": SDXL, "train.batch_size": 1, "train.precision": "fp16-mixed", "train.peft.method": "lora",
    "train.gradient_checkpointing": True, "train.companions": ["vae", "text_encoder", "text_encoder_2"],
}  # fmt: skip
IMAGES: dict[str, object] = {**LORA, "validation.generates": True, "validation.loads": []}


def device(**changes: object) -> DeviceEstimate:
    found = estimated(build({**IMAGES, **{name.replace("__", "."): value for name, value in changes.items()}}), None)
    assert isinstance(found, DeviceEstimate), found
    return found


def ready(**changes: object) -> PreparedJob:
    found = prepare(build({**IMAGES, **{name.replace("__", "."): value for name, value in changes.items()}}))
    assert isinstance(found, PreparedJob), found
    return found


def rounds(one: PreparedJob) -> list[Phase]:
    return [phase for phase in phases.phases_beside(one) if phase.name == "validation"]


def notes(one: PreparedJob) -> tuple[str, ...]:
    return (*one.resolved.workload.notes(one.job, one.resolved), *phases.note_on_images(one))


def loaded(one: PreparedJob, phase: str) -> int:
    """Bytes that a phase has beside what is there while training."""
    found = phases.phases_beside(one)
    return max((sum(each.loaded) for each in found if each.name == phase), default=0)


def test_generating_is_a_phase_of_its_own() -> None:
    assert "validation" in device().phases
    assert "validation" not in device(validation__generates=False).phases


def test_what_is_loaded_lies_beside_what_is_there() -> None:
    some = ready(validation__loads=["text_encoder", "text_encoder_2:fp32"])
    row = pipelines.data()["models"][SDXL]["companions"]
    expected = 2 * row["text_encoder"]["parameters"] + 4 * row["text_encoder_2"]["parameters"]
    assert loaded(some, "validation") == expected


@pytest.mark.parametrize("name", ["denoiser", "unet"])
def test_a_fresh_denoiser_is_all_of_its_weights_in_16_bits(name: str) -> None:
    some = ready(validation__loads=[name])
    assert loaded(some, "validation") == 2 * sum(n for n, _, _ in some.parameters)


def test_unsaid_loads_are_what_the_scripts_have_in_the_end() -> None:
    some = prepare(build({**LORA, "validation.generates": True, "train.companions": ["vae"]}))
    assert isinstance(some, PreparedJob)
    stated = ready(validation__loads=["denoiser", "text_encoder", "text_encoder_2"], train__companions=["vae"])
    assert loaded(some, "validation") == loaded(stated, "validation")
    assert any("validation.loads" in note for note in notes(some))
    assert notes(stated) == ()


def test_full_training_loads_no_second_denoiser() -> None:
    full: dict[str, object] = {"model.name": SD15, "train.peft.method": None, "train.gradient_checkpointing": True}
    some = prepare(build({**LORA, **full, "train.companions": ["vae"], "validation.generates": True}))
    assert isinstance(some, PreparedJob)
    row = pipelines.data()["models"][SD15]["companions"]
    assert loaded(some, "validation") == 2 * row["text_encoder"]["parameters"]


def test_a_controlnets_script_loads_it_alone() -> None:
    changes: dict[str, object] = {"model.name": SD15, "train.peft.method": "controlnet", "validation.generates": True}
    some = prepare(build({**LORA, **changes, "train.companions": ["vae", "text_encoder"]}))
    assert isinstance(some, PreparedJob)
    assert loaded(some, "validation") == 2 * sum(n for n, _, trains in some.parameters if trains)
    beside = prepare(build({**LORA, **changes, "train.companions": ["vae"], "validation.loads": ["denoiser"]}))
    assert isinstance(beside, PreparedJob)
    assert loaded(beside, "validation") == 2 * sum(n for n, _, trains in some.parameters if not trains)


def test_casting_for_the_last_save_widens_16_bit_weights_and_stays() -> None:
    some = ready(train__saved_as="fp32")
    wider = 2 * sum(n for n, each, _ in some.parameters if each == 2)
    assert loaded(some, "save") == loaded(some, "validation") == wider
    assert device(train__saved_as="fp32").phases["save"] < device(train__saved_as="fp32").phases["validation"]


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        ({"software": {"accelerate": "0.21.0"}}, True),
        ({"software": {"accelerate": "0.22.0"}}, False),
        ({}, False),
        ({"software": {"accelerate": "0.21.0"}, "train__precision": "bf16-mixed"}, False),
    ],
)
def test_an_old_accelerate_copies_fp16_weights_to_save_them(changes: dict[str, object], copies: bool) -> None:
    some = ready(**changes)
    expected = 4 * sum(n for n, each, _ in some.parameters if each == 2)
    assert loaded(some, "save") == (expected if copies else 0)
    assert ("save" in device(**changes).phases) is copies


def test_images_have_the_pipelines_side_whatever_is_trained() -> None:
    small, large = ready(train__image_size=512), ready(train__image_size=1024)
    assert [p.peak.bytes for p in rounds(small)] == [p.peak.bytes for p in rounds(large)]


def test_more_images_at_once_take_more() -> None:
    peaks = [max(p.peak.bytes for p in rounds(ready(validation__batch_size=b))) for b in (1, 2)]
    assert peaks[0] < peaks[1] <= 2 * peaks[0]


def test_a_vae_in_16_bits_decodes_in_them() -> None:
    wide, half = (ready(train__companions=[name]) for name in ("vae", "vae:fp16"))
    peaks = [max(p.peak.bytes for p in rounds(one)) for one in (wide, half)]
    assert peaks[1] <= peaks[0]
    assert half.storage_bytes < wide.storage_bytes


def test_a_note_says_what_images_would_take_where_nothing_says_whether_there_are_any() -> None:
    unsaid = prepare(build(LORA))
    assert isinstance(unsaid, PreparedJob)
    (note,) = notes(unsaid)
    assert "validation.generates" in note
    assert "GiB" in note
    assert notes(ready(validation__generates=False)) == ()


def test_what_is_not_known_to_be_loaded_is_named() -> None:
    found = prepare(build({**IMAGES, "validation.loads": ["denoiser", "watermarker"]}))
    assert isinstance(found, Unknown)
    assert "validation.loads: the size of watermarker" in found.words


def test_images_without_a_law_are_said_not_to_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "laws_for", lambda *_: Unknown("no law"))
    assert any(note.startswith("validation is not counted") for note in device().notes)


def _peak(reply: dict[str, Any], left_out: set[int] | None = None) -> int:
    """The largest sum of live storages; `left_out`: births that do not count."""
    live = peak = 0
    for index, (value, _) in enumerate(reply["events"]):
        birth = index if value >= 0 else -1 - value
        if birth in (left_out or ()):
            continue
        live += value if value >= 0 else -reply["events"][birth][0]
        peak = max(peak, live)
    return peak


@pytest.mark.slow
@pytest.mark.parametrize("dims", [{"b": 1, "u": 8, "r": 4}, {"b": 3, "u": 10, "r": 16}])
@pytest.mark.parametrize("model", [SD15, SDXL])
def test_a_generating_steps_law_is_the_trace(model: str, dims: dict[str, int]) -> None:
    pytest.importorskip("diffusers")
    pytest.importorskip("peft")
    from preflight.tracer import steps

    some = ready(model__name=model, train__companions=["vae"]).resolved
    asked = some.workload.generator(some, 1)
    law = laws_for(asked, "eval")
    assert not isinstance(law, Unknown), law
    reply = steps.trace(asked.request("eval").at(dims))
    assert law.plain.peak(dims).bytes == pytest.approx(_peak(reply), rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("vae", ["sd", "sd3"])
@pytest.mark.parametrize("dims", [{"b": 1, "u": 16}, {"b": 3, "u": 9}])
def test_a_decoders_law_is_the_trace(vae: str, dtype: str, autocast: bool, dims: dict[str, int]) -> None:
    pytest.importorskip("diffusers")
    from preflight.tracer import steps

    one = pipelines.Companion(0, "weights", "vae", dtype, pipelines.data()["vaes"][vae])
    some = ready().resolved
    asked = some.workload.decoder(some, one, autocast)
    law = laws_for(asked, "eval")
    assert not isinstance(law, Unknown), law
    reply = steps.trace(asked.request("eval").at(dims))
    assert law.plain.peak(dims).bytes == _peak(json.loads(json.dumps(reply)))


UNET: dict[str, Any] = {
    "block_out_channels": [32, 64], "layers_per_block": 1, "cross_attention_dim": 32, "attention_head_dim": 8,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "sample_size": 32,
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}  # fmt: skip
VAE: dict[str, Any] = {
    "block_out_channels": [32, 32, 64, 64], "layers_per_block": 1, "latent_channels": 4,
    "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
}  # fmt: skip


@pytest.mark.slow
def test_a_pipeline_that_runs_has_as_much_alive_as_its_trace() -> None:
    pytest.importorskip("diffusers")
    from preflight.tracer import steps

    peaks = _run()
    setup = {"weights": "fp32", "autocast": None, "attention": "efficient", "checkpointing": False, "peft": None}
    traced = {
        "denoising": {"architecture": "UNet2DConditionModel", "config": UNET, "text": 77, "task": "generation"},
        "decoding": {"architecture": "AutoencoderKL", "config": VAE, "task": "decoding"},
    }
    for name, model in traced.items():
        point = {"b": 1, "i": 8 * UNET["sample_size"]}
        request = {"model": {"kind": denoisers.Denoiser.kind, **model}, "setup": setup, "point": point, "kind": "eval"}
        reply = steps.trace({**request, "warm_up": False})
        # A CPU's convolutions take what they need outside of torch.
        assert _peak(reply, set(reply["workspaces"])) == pytest.approx(peaks[name], rel=0.01), name


def _run() -> dict[str, int]:
    """Peaks of live bytes of a small pipeline on the CPU, before decoding and while it does."""
    import diffusers
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_

    class Live(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.live, self.phase = 0, "denoising"
            self.peaks: dict[str, int] = {}
            self.known: dict[int, object] = {}

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            tree_map_(self.note, out)
            return out

        def note(self, value: Any) -> None:
            storage = value.untyped_storage() if isinstance(value, torch.Tensor) else None
            if storage is None or storage._cdata in self.known:
                return
            key, nbytes = storage._cdata, storage.nbytes()

            def died(_: Any) -> None:
                self.live -= nbytes
                del self.known[key]

            self.known[key] = weakref.ref(storage, died)
            self.live += nbytes
            self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), self.live)

    diffusers.utils.logging.set_verbosity_error()
    unet, vae = diffusers.UNet2DConditionModel(**UNET).eval(), diffusers.AutoencoderKL(**VAE).eval()
    pipeline = diffusers.StableDiffusionPipeline(
        vae=vae, text_encoder=None, tokenizer=None, unet=unet, scheduler=diffusers.DDIMScheduler(clip_sample=False),
        safety_checker=None, feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip
    pipeline.set_progress_bar_config(disable=True)
    live, decode = Live(), vae.decode
    live.known = dict.fromkeys(p.untyped_storage()._cdata for m in (unet, vae) for p in m.parameters())

    def decoding(*args: Any, **kwargs: Any) -> Any:
        live.phase = "decoding"
        return decode(*args, **kwargs)

    vae.decode = decoding
    prompt = torch.randn(2, 1, 77, UNET["cross_attention_dim"])
    with live, torch.no_grad():
        pipeline(prompt_embeds=prompt[0], negative_prompt_embeds=prompt[1], num_inference_steps=2, output_type="pt")
    return live.peaks
