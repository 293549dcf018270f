"""TRL's configurations, in addition to transformers' TrainingArguments: lengths, reference models, losses, vLLM.

Read from TRL 0.7 to 1.16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from preflight.frameworks.library_defaults import NO, Use, truth
from preflight.program.arguments import Arguments
from preflight.program.bindings import bind, constant, first_origin, fold, when
from preflight.vocabulary.notation import NEWEST, release
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Op, Origin, Unknown

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


def trl(
    args: Arguments, flavour: str, use: Use, version: str | None = None, keeps: bool | None = None
) -> list[Binding]:
    """Bindings of the arguments that TRL's configurations add to the Trainer's; `version` is that of TRL. `keeps`: see
    `keeps_reference`."""
    found = [*_lengths(args, flavour, version), *_references(args, flavour, use, keeps), *_vllm(args)]
    if flavour == "sft" and not ("use_liger_kernel" in args and constant(args["use_liger_kernel"]) is not False):
        found += _sft_loss(args, version)
    return found


PAIRS = frozenset({"dpo", "orpo", "cpo", "reward"})
"""Trainers that pass the chosen and the rejected answer of each sample through the model together. KTO's batch has one
answer for each sample; what it compares with is computed without gradients (trl/trainer/kto_trainer.py)."""
_PROMPTS = (0, 15)
"""Before this release a GRPO batch counted prompts, each with `num_generations` answers (grpo_trainer.py of 0.14)."""


def sequences(args: Arguments, flavour: str, version: str | None) -> list[Binding]:
    """Bindings of the sequences that go through the model together for each sample of a batch, where they are more than
    one."""
    if flavour in PAIRS:
        return [of_pairs()]
    if flavour == "grpo" and (release(version) or NEWEST) < _PROMPTS:
        return [args.bind("train.sequences_per_sample", "num_generations")]
    return []


def of_pairs(origin: Origin | None = None) -> Binding:
    """The binding of a trainer whose batch counts pairs. `origin`: where a setting chooses that trainer."""
    return bind("train.sequences_per_sample", Const(2, origin), Rank.read)


_LOSS_OF_ITS_OWN = ("use_liger_loss", "use_liger_kernel")
_KERNEL_FUSES = (0, 25)
"""From here on `use_liger_kernel` switches on Liger's loss of DPO, KTO and GRPO; before, `use_liger_loss` did, and
`use_liger_kernel` only changed the model, which is not given the labels and returns whole logits."""
_FUSED_ITSELF = (1, 14)
"""From here on TRL has a fused head of its own."""
_WITH_LIGER = ("dpo", "kto", "grpo")


def liger_loss(values: Mapping[str, Expr], flavour: str, version: str | None, known: bool) -> Binding | None:
    """train.loss of a trainer with a loss of its own. `known`: whether the release is."""
    name = next((one for one in _LOSS_OF_ITS_OWN if one in values and constant(values[one]) is not False), None)
    if name is None:
        return None
    place = first_origin(values[name])
    if flavour not in _WITH_LIGER:
        return bind("train.loss", Const("full", place), Rank.read)
    if name == "use_liger_loss":
        return bind("train.loss", when(truth(values[name]), Const("fused"), Const("full")), None, place)
    number = release(version) or NEWEST
    if not known or number >= _FUSED_ITSELF:
        why = "the release of TRL decides whether Liger has the loss: whole logits are counted, which may be too high"
        return bind("train.loss", Const(Unknown(why, Cause.not_set), place), Rank.read)
    fused = when(truth(values[name]), Const("fused"), Const("full"))
    return bind("train.loss", fused if number >= _KERNEL_FUSES else Const("full", place), Rank.read, place)


_OLD_LENGTH, _UNLIMITED = 1024, (0, 15)
"""Before this release None was the smaller one of the tokenizer's maximum and 1,024 (sft_trainer.py of 0.12)."""


def _lengths(args: Arguments, flavour: str, version: str | None) -> Iterator[Binding]:
    if flavour in _ONLINE:
        prompt = args["max_prompt_length"]
        completion = args["response_length" if flavour == "ppo" else "max_completion_length"]
        unbounded = Const(
            Unknown(f"{flavour.upper()} does not limit the prompt: max_prompt_length is not set", Cause.not_set)
        )
        total = fold(Op("+", (prompt, completion)), first_origin(prompt, completion))
        yield bind("train.seq_len", when(fold(Op("is", (prompt, Const(None)))), unbounded, total))
        return
    if flavour == "sft" and constant(args["max_length"]) is None and (release(version) or NEWEST) < _UNLIMITED:
        yield bind("train.seq_len", Const(_OLD_LENGTH), Rank.default)
    else:
        yield args.bind("train.seq_len", "max_length")
    yield args.bind("train.sequences", "packing", when(args["packing"], Const("packed"), Const("bound")))


_KEPT_ANYWAY = ((0, 29), (1, 1))
"""Between these releases DPO keeps the reference model although its probabilities were computed before the training
(trl/trainer/dpo_trainer.py of 0.29 and 1.0)."""

_MAY_BE_KEPT = Unknown(
    "TRL 0.29 and 1.0 keep the reference model after precompute_ref_log_probs, other releases do not, and no file "
    "states the release",
    Cause.not_set,
)


def keeps_reference(releases: Iterable[str]) -> bool | None:
    """Whether DPO keeps a reference model that it computed the probabilities with; None: the releases differ."""
    numbers = [release(one) or NEWEST for one in releases]
    found = {_KEPT_ANYWAY[0] <= number < _KEPT_ANYWAY[1] for number in numbers}
    return None if len(found) != 1 else found.pop()


def _references(args: Arguments, flavour: str, use: Use, keeps: bool | None) -> Iterator[Binding]:
    """The frozen model that a preference loss compares with; with adapters the base model serves as it.

    A model that the program passes is kept, whatever the arguments say. `reference_free` changes the loss alone.
    """
    field = "train.copies.reference"
    if flavour == "ppo":
        reason = "PPO also holds a reference, a reward and a value model: not modelled"
        yield bind(field, Const(Unknown(reason, Cause.not_modelled)), Rank.read)
        return
    if flavour not in ("dpo", "kto", "grpo", "rloo"):
        return
    own = when(use.peft, Const(0), Const(1))
    place = first_origin(use.peft) or first_origin(use.reference)
    rank = Rank.default if use.peft is NO and use.reference is NO else Rank.read
    if flavour in ("grpo", "rloo"):
        none = fold(Op("==", (args["beta"], Const(0))), first_origin(args["beta"]))
        rank = Rank.read if "beta" in args or constant(own) == 0 else Rank.default
        yield bind(field, when(none, Const(0), own), rank, first_origin(args["beta"]) or place)
        return
    yield bind(field, when(use.reference, Const(1), own), rank, place)
    if "precompute_ref_log_probs" in args and keeps is not True:
        computed = truth(args["precompute_ref_log_probs"])
        freed = Const(0) if keeps is False or constant(own) == 0 or flavour != "dpo" else Const(_MAY_BE_KEPT)
        without, otherwise = when(use.reference, Const(1), freed), when(use.reference, Const(1), own)
        yield bind(field, when(computed, without, otherwise), Rank.read, first_origin(args["precompute_ref_log_probs"]))


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
