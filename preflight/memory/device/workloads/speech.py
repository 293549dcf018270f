"""Models of raw sound (wav2vec 2.0, HuBERT, WavLM, data2vec-audio): what their law is filed under.

`train.seq_len` counts samples of sound: 160,000 are ten seconds at 16 kHz. A law is a function of the frames that the
convolutions make of them, `w`. Without `task: sequence-classification` the loss is CTC.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from preflight.memory.device.fit.few_traces import Depth
from preflight.memory.device.fit.make import CHECK_LAYERS
from preflight.vocabulary.values import Cause, Unknown, missing

if TYPE_CHECKING:
    from preflight.memory.device.resolve import Resolved
    from preflight.vocabulary.job import Job
    from preflight.vocabulary.machine import Gpu

KIND = "speech"
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
"""What decides a tape, with the defaults of Wav2Vec2Config (HubertConfig's and WavLMConfig's are the same)."""
ADAPTED = ["q_proj", "v_proj"]
"""Where adapters stand when nothing is said (peft, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING)."""
FROZEN = "feature_encoder"


def knows(architecture: str) -> bool:
    """Whether this is a model of raw sound."""
    return architecture in ARCHITECTURES


def filed(architecture: str, config: Mapping[str, Any]) -> str:
    """The name of a model's law file: its architecture and what its config says of DEFAULTS' keys."""
    said = {key: config.get(key, default) for key, default in DEFAULTS.items()}
    said = {key: bool(value) if key.endswith("dropout") else value for key, value in said.items()}
    text = json.dumps(said, sort_keys=True, default=str)
    return f"{architecture}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def nearly(family: str) -> str | None:
    """The law file that stands in for one which nobody shipped: at most half a per cent above it."""
    architecture, _, of = family.partition("-")
    return f"{NEARLY[architecture]}-{of}" if architecture in NEARLY else None


def frames(samples: int) -> int:
    """Frames of a recording; a part of one counts whole."""
    return max(1, -(-(samples - SPARE) // STRIDE))


def depths_of(config: Mapping[str, Any]) -> tuple[Depth, ...]:
    """The encoder's layers, where they are more than a trace has."""
    deep = config.get("num_hidden_layers", DEFAULTS["num_hidden_layers"]) > CHECK_LAYERS
    return (Depth("encoder.layers", "num_hidden_layers", "L"),) if deep else ()


def resolve(job: Job, name: str, architecture: str, config: Mapping[str, Any], gpu: Gpu | None) -> Resolved | Unknown:
    """What a speech model's law is looked up by."""
    from preflight.memory.device.attention import kernel
    from preflight.memory.device.resolve import Resolved, setup_of

    train = job.train
    if train.batch_size is None:
        return missing("train.batch_size")
    if train.seq_len is None:
        return missing("train.seq_len", "samples of sound")
    other = [part for part in train.frozen if "feature" not in part]
    if other:
        return Unknown(f"train.frozen: {other[0]} of a speech model has no law", Cause.not_modelled)
    config = {"vocab_size": 32, **{k: DEFAULTS[k] for k in ("num_hidden_layers",)}, **config}
    setup = setup_of(job, None, config, gpu)
    if isinstance(setup, Unknown):
        return setup
    # Feature extractors give a mask where the convolutions' norm is by layer (their return_attention_mask).
    by_layer = architecture == "data2vec-audio" or config.get("feat_extract_norm") == "layer"
    mask = by_layer and train.sequences not in ("exact", "packed")
    chosen = kernel(train.attention or "sdpa", mask, train.precision != "fp32", gpu)
    setup = {**setup, "attention": "sdpa" if chosen == "flash" else chosen, "mask": mask}
    setup.pop("frozen", None)
    if is_frozen(job):
        setup["frozen"] = [FROZEN]
    if setup.get("peft") and not setup["peft"].get("targets"):
        setup["peft"] = {**setup["peft"], "targets": ADAPTED}
    head = "classification" if job.task == "sequence-classification" else "ctc"
    long = frames(train.seq_len)
    lengths = {"b": train.batch_size, "w": long}
    dims = {one.name: config[one.key] for one in depths_of(config)}
    if head == "ctc":  # a label needs a frame: what is not stated is at most that
        lengths["t"] = min(train.target_len or long, long)
        dims["V"] = train.vocab_size or int(config["vocab_size"])
        config = {**config, "vocab_size": dims["V"]}
    model = {"kind": KIND, "architecture": architecture, "config": dict(config), "head": head, "mask": mask,
             "task": f"speech-{head}", "filed": filed(architecture, config), "extra": "-"}  # fmt: skip
    return Resolved(None, f"speech-{head}", dims, lengths, {}, setup, model, name)


def is_frozen(job: Job) -> bool:
    """Whether the convolutions are not trained; where nothing is said, as transformers' example scripts have it
    (run_speech_recognition_ctc.py, run_audio_classification.py: freeze_feature_encoder)."""
    return bool(job.train.frozen) or "frozen" not in job.train.model_fields_set
