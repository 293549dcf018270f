"""Calls that make models and adapters, and the lengths that tokenizers are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from calls_as_text import told

from preflight.vocabulary.values import Unknown

# --- models -----------------------------------------------------------------------------------------------------------

MODELS = [
    (
        "transformers.AutoModelForSequenceClassification.from_pretrained('bert-base-uncased')",
        {"model.name": "bert-base-uncased", "task": "sequence-classification"},
    ),
    ("transformers.GPT2LMHeadModel.from_pretrained('gpt2')", {"model.name": "gpt2", "task": "causal-lm"}),
    ("transformers.AutoModelForSeq2SeqLM.from_pretrained('t5-small')", {"task": "seq2seq-lm"}),
    ("transformers.WhisperForConditionalGeneration.from_pretrained('w')", {"task": "speech-seq2seq"}),
    ("transformers.CLIPModel.from_pretrained('c')", {"task": "contrastive"}),
    (
        "transformers.AutoModelForCausalLM.from_pretrained('m', dtype=torch.float16, attn_implementation='eager')",
        {"train.weights_dtype": "fp16", "train.attention": "eager"},
    ),
    (
        "transformers.LlamaForCausalLM(transformers.LlamaConfig(hidden_size=64, num_hidden_layers=2))",
        {"model.architecture": "llama", "model.config.hidden_size": 64, "model.config.num_hidden_layers": 2},
    ),
    (
        "transformers.AutoModelForMaskedLM.from_config(transformers.XLMRobertaConfig(vocab_size=9))",
        {"model.architecture": "xlm-roberta", "model.config.vocab_size": 9, "task": "masked-lm"},
    ),
    ("torchvision.models.resnet50()", {"model.target": "torchvision:resnet50", "task": "image-classification"}),
    ("torchvision.models.resnet50().cuda()", {"model.target": "torchvision:resnet50", "task": "image-classification"}),
    (
        'torchvision.models.resnet50().to("cuda").train()',
        {"model.target": "torchvision:resnet50", "task": "image-classification"},
    ),
    ("timm.create_model('vit_base_patch16_224', num_classes=9)", {"model.target": "timm:vit_base_patch16_224"}),
    ("timm.create_model('vit_base_patch16_224')", {"train.image_size": 224}),
    ("open_clip.create_model_and_transforms('ViT-B-32')", {"model.name": "openai/clip-vit-base-patch32"}),
]


@pytest.mark.parametrize(("call", "expected"), MODELS)
def test_models(call: str, expected: dict[str, object], tmp_path: Path) -> None:
    found = told(f"import open_clip, timm, torchvision, transformers\nmodel = {call}", tmp_path)
    assert {field: found.get(field) for field in expected} == expected


@pytest.mark.parametrize("name", ["AutoModelForMultipleChoice", "BertForMultipleChoice"])
def test_the_samples_say_how_many_sequences_a_multiple_choice_has(name: str, tmp_path: Path) -> None:
    found = told(f"import transformers\nmodel = transformers.{name}.from_pretrained('bert-base-uncased')", tmp_path)
    assert isinstance(found["train.sequences_per_sample"], Unknown)


@pytest.mark.parametrize("name", ["AutoTokenizer", "AutoConfig", "AutoImageProcessor", "GenerationConfig"])
def test_what_is_no_model(name: str, tmp_path: Path) -> None:
    found = told(f"import transformers\nx = transformers.{name}.from_pretrained('bert-base-uncased')", tmp_path)
    assert "model.name" not in found


def test_a_teacher_is_a_copy_and_not_what_is_trained(tmp_path: Path) -> None:
    body = """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("student")
        teacher = AutoModelForCausalLM.from_pretrained("teacher")
    """
    found = told(body, tmp_path)
    assert (found["model.name"], found["train.copies.reference"]) == ("student", 1)


def test_a_name_that_is_in_code_that_was_not_read_is_unknown(tmp_path: Path) -> None:
    """`settings.LLAMA_7B` says what the constant is called."""
    call = "transformers.AutoModelForCausalLM.from_pretrained(settings.LLAMA_7B)"
    value = told(f"from thing import settings\n{call}", tmp_path)["model.name"]
    assert isinstance(value, Unknown)
    assert value.words == "thing.settings.LLAMA_7B is in code that was not read"


def test_a_folder_with_a_configuration_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    found = told("import transformers\nm = transformers.AutoModelForCausalLM.from_pretrained('mine')", tmp_path)
    assert found["model.path"] == "mine"
    assert "model.name" not in found


@pytest.mark.parametrize("prepare", ["prepare_model_for_kbit_training", "prepare_model_for_int8_training"])
def test_qlora(prepare: str, tmp_path: Path) -> None:
    body = f"""
        from peft import LoraConfig, get_peft_model, {prepare}
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig
        bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        model = AutoModelForCausalLM.from_pretrained("m", quantization_config=bnb)
        model = {prepare}(model)
        model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.1))
    """
    found = told(body, tmp_path)
    assert found["train.quantization.type"] == "nf4"
    assert found["train.quantization.compute_dtype"] == "bf16"
    assert found["train.quantization.upcast_rest"] is True
    assert found["train.gradient_checkpointing"] is True
    assert (found["train.peft.method"], found["train.peft.r"]) == ("lora", 16)
    assert found["train.peft.targets"] == ("q_proj", "v_proj")


@pytest.mark.parametrize(("config", "kind"), [("bnb", "nf4"), ("None", "fp4")])
def test_a_quantization_config_decides_over_keywords(config: str, kind: str, tmp_path: Path) -> None:
    body = f"""
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig
        bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
        model = AutoModelForCausalLM.from_pretrained("m", load_in_4bit=True, quantization_config={config})
    """
    assert told(body, tmp_path)["train.quantization.type"] == kind


@pytest.mark.parametrize(("option", "method"), [("use_dora=True", "dora"), ("use_dora=False", "lora"), ("", "lora")])
def test_dora_is_not_lora(option: str, method: str, tmp_path: Path) -> None:
    body = f"from peft import LoraConfig, get_peft_model\nm = get_peft_model(m, LoraConfig(r=8, {option}))"
    assert told(body, tmp_path)["train.peft.method"] == method


def test_checkpointing_under_a_flag(tmp_path: Path) -> None:
    body = """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("m")
        if args.amp:
            model.gradient_checkpointing_enable()
    """
    assert "train.gradient_checkpointing" not in told(body, tmp_path)
    assert told(body, tmp_path, amp=True)["train.gradient_checkpointing"] is True


# --- lengths ----------------------------------------------------------------------------------------------------------

LENGTHS = [
    ("tok(texts)", (None, None)),
    ("tok(texts, max_length=128, truncation=True, padding='max_length')", (128, "exact")),
    ("tok(texts, max_length=256, truncation=True, padding=True)", (256, "bound")),
    ("tok(texts, max_length=min(64, tok.model_max_length), truncation=True)", (64, "bound")),
]


@pytest.mark.parametrize(("call", "expected"), LENGTHS)
def test_lengths(call: str, expected: tuple[object, object], tmp_path: Path) -> None:
    found = told(f"import transformers\ntok = transformers.AutoTokenizer.from_pretrained('b')\nx = {call}", tmp_path)
    assert (found.get("train.seq_len"), found.get("train.sequences")) == expected


def test_text_beside_images_has_a_length_of_its_own(tmp_path: Path) -> None:
    body = "import transformers\nmodel = transformers.CLIPModel.from_pretrained('c')\n"
    found = told(body, tmp_path)
    assert found["train.text_len"] == 77
    assert "train.seq_len" not in found
