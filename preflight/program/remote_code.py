"""Models whose code comes with their weights (trust_remote_code) -> what that code decides is unknown.

No file of the project holds such code. What a program sets in its configuration beside the settings of transformers
(ChatGLM's `pre_seq_len`, which freezes all but a prefix), and what its own methods do (`model.quantize(4)`), may change
what is trained and in which type the weights are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.program.bindings import bind, constant, first_origin, under, when
from preflight.program.model_configurations import set_later
from preflight.program.names import dimensions
from preflight.python.objects import Abstract, CallRecord, Instance, alternatives
from preflight.vocabulary.reading import Binding, Rank
from preflight.vocabulary.values import Cause, Const, Expr, Unknown

_LOADS = ("from_pretrained", "from_config")
_OF_TRANSFORMERS = frozenset({
    "architectures", "attn_implementation", "bos_token_id", "classifier_dropout", "decoder_start_token_id", "dtype",
    "eos_token_id", "finetuning_task", "gradient_checkpointing", "id2label", "is_decoder", "is_encoder_decoder",
    "keys_to_ignore_at_inference", "label2id", "max_length", "max_new_tokens", "max_position_embeddings",
    "name_or_path", "num_labels", "output_attentions", "output_hidden_states", "pad_token_id", "problem_type",
    "return_dict", "rope_scaling", "rope_theta", "sep_token_id", "task_specific_params", "temperature",
    "tie_word_embeddings", "tokenizer_class", "torch_dtype", "torchscript", "use_cache", "use_return_dict",
    "vocab_size",
})  # fmt: skip
"""Settings that transformers reads itself (configuration_utils.py, PreTrainedConfig): they freeze nothing."""


def remote_code_bindings(records: Sequence[CallRecord]) -> list[Binding]:
    """train.frozen and train.quantization.type, unknown where code of a model that was not read may decide them."""
    found: list[Binding] = []
    loads = [one for one in records if one.method in _LOADS and _runs_remote_code(one)]
    for record in loads:
        frozen: Expr | None = None
        for key, expr in _settings(record, records):
            reason = Unknown(f"code that comes with the model reads {key}, and no file holds it", Cause.not_read)
            frozen = when(expr, Const(reason, first_origin(expr)), frozen or Const(None))
        if frozen is not None:
            found += under(record.conditions, [bind("train.frozen", frozen, Rank.read)])
    for record in records if loads else ():
        if record.method == "quantize" and _is_loaded(record.receiver_object, loads):
            reason = Unknown("a method of the model's own code quantises it", Cause.not_read)
            found += under(
                record.conditions, [bind("train.quantization.type", Const(reason, record.origin), Rank.read)]
            )
    return found


def _runs_remote_code(record: CallRecord) -> bool:
    given = record.kwargs.get("trust_remote_code")
    return given is not None and constant(given) is not False and "Tokenizer" not in record.name


def _settings(record: CallRecord, records: Sequence[CallRecord]) -> Iterator[tuple[str, Expr]]:
    """What a program puts into the configuration of a model that it loads, for the model's own code."""
    given = record.object("config")
    for config in alternatives(given) if given is not None else ():
        for key, expr in set_later(config, records):
            if not (key.startswith("_") or key in _OF_TRANSFORMERS or key in dimensions()):
                yield key, expr


def _is_loaded(value: Abstract | None, loads: Sequence[CallRecord]) -> bool:
    """Whether an object is one of the models that were loaded with code of their own."""
    made = [one.record for one in alternatives(value) if isinstance(one, Instance)] if value is not None else []
    return any(one is load for one in made for load in loads)
