"""TRL's configurations, in addition to transformers' TrainingArguments: lengths, reference models, losses, vLLM.

Read from TRL 1.16 and, where a default changed, from the pull request that changed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight.frameworks.library_defaults import Use, truth
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin, fold, when
from preflight.vocabulary.notation import release
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Unknown

_OLD_PPO = frozenset({
    "model_name", "log_with", "ppo_epochs", "init_kl_coef", "adap_kl_ctrl", "target", "horizon", "optimize_cuda_cache",
    "optimize_device_cache", "mini_batch_size", "use_score_scaling", "tracker_project_name", "forward_batch_size",
})  # fmt: skip
"""Arguments that only PPOConfig before TRL 0.12 had (trl/trainer/ppo_config.py of 0.11); mini_batch_size without
per_device_train_batch_size."""
_ONLINE = ("grpo", "rloo", "ppo")
"""Flavours that make the text they train on."""
_CHUNKED_DEFAULT = (1, 7)
"""SFTConfig.loss_type is "chunked_nll" from here on (TRL's pull request 5846)."""
_CHUNKED = Unknown(
    "TRL's chunked loss is not modelled: whole logits are counted, which is too high", Cause.not_modelled
)


def is_old_ppo(given: Mapping[str, Expr]) -> bool:
    """Whether a PPOConfig is one of TRL before 0.12, which had no TrainingArguments in it."""
    return bool(_OLD_PPO & set(given)) and "per_device_train_batch_size" not in given


def old_ppo(args: Arguments, base: Expr) -> list[Binding]:
    """Bindings of PPOConfig before TRL 0.12: of `batch_size` samples, `mini_batch_size` go through the model at once
    (ppo_trainer.py, `step`). Nothing says how long they are."""
    lengths = Const(Unknown("PPO limits neither the prompt nor the answer", Cause.not_set))
    copies = Const(Unknown("PPO also holds a reference model and a value head: not modelled", Cause.not_modelled))
    return [
        bind("train.batch_size", args.get("mini_batch_size", 1), Rank.literal),
        bind("train.grad_accum", args.get("gradient_accumulation_steps", 1), Rank.read),
        bind("train.precision", base, Rank.read),
        bind("train.optimizer", Const("adam"), Rank.default),
        bind("train.seq_len", lengths, Rank.literal),
        bind("train.copies.reference", copies, Rank.literal),
    ]


def trl(args: Arguments, flavour: str, use: Use, version: str | None = None) -> list[Binding]:
    """Bindings of the arguments that TRL's configurations add to the Trainer's; `version` is that of TRL."""
    found = [*_lengths(args, flavour), *_references(args, flavour, use), *_vllm(args)]
    if flavour == "sft" and not ("use_liger_kernel" in args and constant(args["use_liger_kernel"]) is not False):
        found += _sft_loss(args, version)
    return found


def _lengths(args: Arguments, flavour: str) -> Iterator[Binding]:
    if flavour in _ONLINE:
        prompt = args["max_prompt_length"]
        completion = args["response_length" if flavour == "ppo" else "max_completion_length"]
        unbounded = Const(
            Unknown(f"{flavour.upper()} does not limit the prompt: max_prompt_length is not set", Cause.not_set)
        )
        total = fold(Op("+", (prompt, completion)), first_origin(prompt, completion))
        yield bind("train.seq_len", when(fold(Op("is", (prompt, Const(None)))), unbounded, total))
        return
    yield args.bind("train.seq_len", "max_length")
    yield args.bind("train.sequences", "packing", when(args["packing"], Const("packed"), Const("bound")))


def _references(args: Arguments, flavour: str, use: Use) -> Iterator[Binding]:
    """The frozen model that a preference loss compares with; with adapters the base model serves as it."""
    field = "train.copies.reference"
    if flavour == "ppo":
        reason = "PPO also holds a reference, a reward and a value model: not modelled"
        yield bind(field, Const(Unknown(reason, Cause.not_modelled)), Rank.read)
    elif flavour in ("dpo", "kto") and not use.peft:
        yield bind(field, Const(1), Rank.default)
        for name in ("precompute_ref_log_probs", "reference_free"):
            if name in args:
                yield args.bind(field, name, when(truth(args[name]), Const(0), Const(1)))
    elif flavour in ("grpo", "rloo") and "beta" in args and not use.peft:
        none = fold(Op("==", (args["beta"], Const(0))), first_origin(args["beta"]))
        yield args.bind(field, "beta", when(none, Const(0), Const(1)))


def _vllm(args: Arguments) -> Iterator[Binding]:
    """vLLM in the training process takes its share of the GPU first; asleep or on another GPU it takes none."""
    if constant(truth(args["use_vllm"])) is not True or constant(args["vllm_mode"]) != "colocate":
        return
    if constant(truth(args["vllm_enable_sleep_mode"])) is True:
        return
    share = args["vllm_gpu_memory_utilization"]
    left = fold(Op("round", (Op("-", (Const(1), share)), Const(6))), first_origin(share))
    yield args.bind("train.allocator.per_process_fraction", "vllm_gpu_memory_utilization", left)


def _sft_loss(args: Arguments, version: str | None) -> Iterator[Binding]:
    if "loss_type" in args and constant(args["loss_type"]) is not None:
        kind = constant(args["loss_type"])
        expr = Const(_CHUNKED if kind == "chunked_nll" else "full", first_origin(args["loss_type"]))
        yield bind("train.loss", expr, Rank.read)
    elif (release(version) or ()) >= _CHUNKED_DEFAULT:
        yield bind("train.loss", Const(_CHUNKED), Rank.read)
