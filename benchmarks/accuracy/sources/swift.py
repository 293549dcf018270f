"""ms-swift's benchmark (docs/source_en/LLM/Benchmark.md at 4692215; its script and code at 97e4d198b, January 2024).

scripts/benchmark/test_memory_time/run_single.py writes down torch.cuda.max_memory_reserved() of training on
cls-fudan-news-zh (3,234 tokens on average, 91 to 19,548): all of it, or 1,000 samples above a `max_length` of 2,048.
The script of December 2023 (cfcb67265) cut longer samples (`truncation_left`), so that nearly all had one length; the
one of January states no strategy, and SftArguments' is "delete": lengths vary, and the longest is about `max_length`.
The figures of the document are January's: Qwen-7B at 2,048 took 18.9 GiB in December's and 27.7 GiB in this one's.
"""

from __future__ import annotations

from benchmarks.accuracy.truth import Fields, Row

NAME = "ms-swift"
_MODELS = {
    "qwen-1_8b-chat": ("Qwen/Qwen-1_8B-Chat", ["c_attn"]),
    "qwen-7b-chat": ("Qwen/Qwen-7B-Chat", ["c_attn"]),
    "qwen-14b-chat": ("Qwen/Qwen-14B-Chat", ["c_attn"]),
    "chatglm3-6b": ("THUDM/chatglm3-6b", ["query_key_value"]),
    "yi-6b-chat": ("01-ai/Yi-6B-Chat", ["q_proj", "k_proj", "v_proj"]),
    "openbuddy-zephyr-7b-chat": ("OpenBuddy/openbuddy-zephyr-7b-v14.1", ["q_proj", "k_proj", "v_proj"]),
    "baichuan2-7b-chat": ("baichuan-inc/Baichuan2-7B-Chat", ["W_pack"]),
    "baichuan2-13b-chat": ("baichuan-inc/Baichuan2-13B-Chat", ["W_pack"]),
}
"""swift/llm/utils/model.py: the model behind each name, and LoRATM, its default LoRA targets."""
_QWEN_LINEAR = ["c_attn", "c_proj", "w1", "w2"]
"""find_all_linear_for_lora: every linear layer but the head."""


def recognises(row: Row) -> bool:
    return "modelscope/ms-swift" in row["source"]


def fields(row: Row) -> Fields:
    model, targets = _MODELS[row["model"]]
    length = str(row["seq_len"]).removeprefix("<=").split()[0]
    # Only models that take the flag use flash attention; chatglm's and baichuan's own code decides for itself.
    flash = "flash_attn=False" not in row["framework"]
    own = row["model"].startswith(("chatglm", "baichuan"))
    found: dict[str, object] = {
        "model.name": model,
        "task": "causal-lm",
        "train.batch_size": row["batch_size"],
        "train.grad_accum": 16,  # "Parameter Settings"
        "train.seq_len": int(length),
        "train.sequences": "dynamic",  # data_collate_fn pads to the longest of the batch; truncation_strategy: "delete"
        "train.precision": "bf16-mixed",  # select_dtype: AUTO is bf16, and Seq2SeqTrainingArguments(bf16=True)
        "train.outputs_cast": True,  # its Trainer has accelerate prepare the model
        "train.weights_dtype": "bf16",  # get_model_tokenizer(torch_dtype=bfloat16)
        "train.gradient_checkpointing": row["gradient_checkpointing"],
        "train.attention": None if own else "flash" if flash else "eager",
        "train.optimizer": "adamw",  # optim: adamw_torch (swift/llm/utils/argument.py)
        "train.optimizer_impl": "foreach",
        "machine.gpu": "A100-80GB",
        # requirements/framework.txt: transformers>=4.33,<4.37, of which 4.36.2 was the newest.
        "software": {"torch": "2.1.1", "transformers": "4.36.2", "ms-swift": "1.5"},
    }
    peft = row["peft"]
    if peft:
        every = str(peft.get("targets", "")).startswith("ALL")
        found |= {
            "train.peft.method": "lora",
            "train.peft.r": peft["r"],
            "train.peft.targets": _QWEN_LINEAR if every else targets,
            "train.peft.dropout": 0.05,  # lora_dropout_p
            "train.peft.dtype": "bf16",  # the adapter takes the dtype of the weight that it adapts
        }
    return found
