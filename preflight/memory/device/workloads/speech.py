"""Models of raw sound (wav2vec 2.0, HuBERT, WavLM, data2vec-audio): resolving a job that trains one.

`train.seq_len` counts samples of sound: 160,000 are ten seconds at 16 kHz. A law is a function of the frames that the
convolutions make of them, `w`. Without `task: sequence-classification` the loss is CTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from preflight.memory.device.law.made import CHECK_LAYERS, Depth
from preflight.memory.device.law.setup import Setup, with_kernel
from preflight.memory.device.law.workload import Resolved, WorkloadRequest
from preflight.memory.device.workloads.own_step import OwnStep, begin, digest
from preflight.vocabulary.job import Job
from preflight.vocabulary.values import Cause, Unknown

ARCHITECTURES = ("wav2vec2", "hubert", "wavlm", "data2vec-audio")
NEARLY = {"hubert": "wav2vec2"}
"""Architectures whose step is another's but for what that keeps longer: the features, and where batches are masked the
running sums of the mask (transformers, `_get_feature_vector_attention_mask` and the base models' `forward`)."""
STRIDE, SPARE = 320, 80
"""Samples of a frame, and those that the first one needs beyond (Wav2Vec2Config.conv_kernel: 10, 3, 3, 3, 3, 2, 2;
conv_stride: 5 and six times 2)."""
DEFAULTS: Mapping[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "hidden_dropout": 0.1, "activation_dropout": 0.1, "attention_dropout": 0.1,
    "feat_proj_dropout": 0.0, "final_dropout": 0.1, "feat_extract_norm": "group", "feat_extract_activation": "gelu",
    "conv_dim": [512] * 7, "conv_stride": [5, 2, 2, 2, 2, 2, 2], "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
    "conv_bias": False, "num_conv_pos_embeddings": 128, "num_conv_pos_embedding_groups": 16,
    "do_stable_layer_norm": False, "use_weighted_layer_sum": False, "classifier_proj_size": 256, "add_adapter": False,
}  # fmt: skip
"""Config keys that decide a tape, with the defaults of Wav2Vec2Config (the same in HubertConfig and WavLMConfig)."""
ADAPTED = ("q_proj", "v_proj")
"""Default targets of adapters (peft, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING)."""
FROZEN = "feature_encoder"


class Speech(OwnStep, frozen=True):
    """A model of raw sound."""

    kind: ClassVar[str] = "speech"
    head: str
    """"ctc" or "classification"."""
    mask: bool

    @classmethod
    def knows(cls, asked: WorkloadRequest) -> bool:
        return asked.known_as in ARCHITECTURES

    @classmethod
    def resolve(cls, asked: WorkloadRequest) -> Resolved | Unknown:
        train, architecture = asked.job.train, asked.known_as
        setup = begin(asked, "seq_len (samples of sound)")
        if isinstance(setup, Unknown):
            return setup
        other = [part for part in train.frozen if "feature" not in part]
        if other:
            return Unknown(f"train.frozen: {other[0]} of a speech model has no law", Cause.not_modelled)
        config = {"vocab_size": 32, "num_hidden_layers": DEFAULTS["num_hidden_layers"], **asked.config}
        # Feature extractors give a mask where the convolutions' norm is by layer (their return_attention_mask).
        by_layer = architecture == "data2vec-audio" or config.get("feat_extract_norm") == "layer"
        mask = by_layer and train.sequences not in ("exact", "packed")
        setup = _setup(with_kernel(setup, asked.job, asked.gpu, mask), asked.job)
        head = "classification" if asked.task == "sequence-classification" else "ctc"
        long = frames(train.seq_len or 1)
        lengths, dims = {"b": train.batch_size or 1, "w": long}, {}
        if head == "ctc":  # a label needs a frame: what is not stated is at most that
            lengths["t"] = min(train.target_len or long, long)
            size = train.vocab_size or config["vocab_size"]
            if not isinstance(size, int):
                return Unknown("the number of labels is not known", Cause.not_set, ("train.vocab_size",))
            dims["V"] = config["vocab_size"] = size
        model = cls(architecture, config, f"speech-{head}", head, mask)
        dims |= {one.name: config[one.key] for one in model.depths}
        return Resolved(model, asked.name, model.task, dims, lengths, setup)

    def told(self) -> dict[str, Any]:
        return {"head": self.head, "mask": self.mask}

    @property
    def filed(self) -> str:
        return f"{self.architecture}-{digest(self._said)}"

    @property
    def nearly(self) -> str | None:
        other = NEARLY.get(self.architecture)
        return f"{other}-{digest(self._said)}" if other is not None else None

    @property
    def _said(self) -> dict[str, Any]:
        """The config's values of DEFAULTS' keys."""
        said = {key: self.config.get(key, default) for key, default in DEFAULTS.items()}
        return {key: bool(value) if key.endswith("dropout") else value for key, value in said.items()}

    @property
    def convolutional(self) -> bool:
        return True

    @property
    def depths(self) -> tuple[Depth, ...]:
        deep = self.config.get("num_hidden_layers", DEFAULTS["num_hidden_layers"]) > CHECK_LAYERS
        return (Depth("encoder.layers", "num_hidden_layers", "L"),) if deep else ()

    def alternatives(self, job: Job, resolved: Resolved) -> Iterator[Job]:
        """Trained convolutions, where train.frozen is not stated."""
        if "frozen" not in job.train.model_fields_set:
            yield job.model_copy(update={"train": job.train.model_copy(update={"frozen": []})})

    def notes(self, job: Job, resolved: Resolved) -> Iterator[str]:
        if "frozen" not in job.train.model_fields_set:
            yield "assumed: the convolutions are frozen, as in transformers' example scripts; state train.frozen"


def frames(samples: int) -> int:
    """Frames of a recording; a part of one counts whole."""
    return max(1, -(-(samples - SPARE) // STRIDE))


def _setup(setup: Setup, job: Job) -> Setup:
    """With the convolutions frozen, and adapters where peft puts them."""
    peft = setup.peft
    if peft is not None and not peft.targets:
        peft = replace(peft, targets=ADAPTED)
    return replace(setup, peft=peft, frozen=(FROZEN,) if is_frozen(job) else ())


def is_frozen(job: Job) -> bool:
    """Whether the convolutions are frozen; where it is not stated, as in transformers' example scripts
    (run_speech_recognition_ctc.py, run_audio_classification.py: freeze_feature_encoder)."""
    return bool(job.train.frozen) or "frozen" not in job.train.model_fields_set
