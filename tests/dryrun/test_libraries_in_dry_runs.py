"""Libraries that train, in a dry run: DeepSpeed's engine, texts that a model generates, parts of pipelines, the hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import STEP, Ran, dry_run

pytest.importorskip("torch")


def ran(folder: Path, program: str, *words: str, files: dict[str, str] | None = None) -> Ran:
    """The program, with modules beside it, in a folder of its own."""
    folder = folder / "work"
    for name, text in {"train.py": program, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return dry_run(folder, "--output-format", "json", *words, "--", "python", "train.py")


DEEPSPEED = {
    "deepspeed/__init__.py": "from .runtime.engine import DeepSpeedEngine\n",
    "deepspeed/ops/__init__.py": "",
    "deepspeed/ops/op_builder/__init__.py": "from .builder import OpBuilder\n",
    "deepspeed/ops/op_builder/builder.py": (
        "class OpBuilder:\n"
        "    def __init__(self, name): self.name = name\n"
        "    def load(self, verbose=True): raise RuntimeError('it would be compiled')\n"
    ),
    "deepspeed/runtime/__init__.py": "",
    "deepspeed/runtime/engine.py": """\
import torch
from deepspeed.ops.op_builder import OpBuilder

class DeepSpeedEngine(torch.nn.Module):
    def __init__(self, module, kernels):
        super().__init__()
        self.module, self.kernels = module.cuda(), OpBuilder(kernels).load()
        self.optimizer = torch.optim.AdamW([{"params": [one]} for one in module.parameters()])
        self.groups = list(self.optimizer.param_groups)
    def zero_optimization_stage(self):
        return 1
    def forward(self, x):
        return self.module(x)
    def _take_model_step(self, lr_kwargs):
        for one in self.groups:  # as ZeRO's optimizer: a step for each group
            self.optimizer.param_groups = [one]
            self.optimizer.step()
            self.kernels.multi_tensor_adam(1, one)
        self.optimizer.zero_grad()
    def step(self):
        self._take_model_step(None)
""",
}
"""DeepSpeed's names, and how its engine calls its optimizer."""
ENGINE = """\
import torch
from deepspeed import DeepSpeedEngine
engine = DeepSpeedEngine(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)), "KERNELS")
for _ in range(4):
    engine(torch.zeros(8, 64, device="cuda")).sum().backward()
    engine.step()
"""


@pytest.mark.slow
def test_a_step_of_deepspeeds_engine_is_one(tmp_path: Path) -> None:
    """Four groups of parameters, each with a step of the optimizer: both steps of the engine are needed, in the second
    of which the states are there from the start."""
    found = ran(tmp_path, ENGINE.replace("KERNELS", "fused_adam"), "--gpus", "2", files=DEEPSPEED)
    assert found.status == 0, found.err
    assert found.data["dry_run"]["steps"] == [4]
    assert found.data["job"]["train"]["optimizer"] == "adamw"


@pytest.mark.slow
def test_kernels_of_deepspeed_that_are_not_known_are_named(tmp_path: Path) -> None:
    found = ran(tmp_path, ENGINE.replace("KERNELS", "sparse_attn"), files=DEEPSPEED)
    assert found.status == 2
    assert "wants DeepSpeed's extension sparse_attn, whose kernels a dry run does not know" in found.error


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "weights"), [(1, 1.0), (3, 0.25)])
def test_deepspeeds_own_engine_shards(tmp_path: Path, stage: int, weights: float) -> None:
    """On four ranks: the states of a quarter of the weights, and from stage 3 on a quarter of the weights in 16 bits.
    The bucket is stated."""
    pytest.importorskip("deepspeed")
    program = (
        "import torch, deepspeed\n"
        "net = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(8)])\n"
        "zero = {'stage': STAGE, 'reduce_bucket_size': 1024, 'stage3_param_persistence_threshold': 0}\n"
        "config = {'train_micro_batch_size_per_gpu': 4, 'bf16': {'enabled': True}, 'zero_optimization': zero,\n"
        "          'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-3}}}\n"
        "engine = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)[0]\n"
        "for _ in range(3):\n"
        "    engine.backward(engine(torch.zeros(4, 512, device='cuda', dtype=torch.bfloat16)).float().sum())\n"
        "    engine.step()\n"
    ).replace("STAGE", str(stage))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(program)
    found = dry_run(tmp_path / "work", "--output-format", "json", "--gpus", "4", "--", "deepspeed", "train.py")
    assert found.status == 0, found.err
    data = found.data
    assert data["job"]["parallel"]["strategy"] == f"zero{stage}"
    count = 8 * 512 * 512
    parts = {one["part"]: one["bytes"] for one in reversed(data["dry_run"]["lines"])}
    assert parts["optimizer"] == pytest.approx(2 * 4 * count / 4, rel=0.01)
    assert data["device"]["requested"]["expected"] >= 3 * 4 * count / 4 + 2 * count * weights


GENERATED = """\
from transformers import LlamaConfig, LlamaForCausalLM
llama = LlamaForCausalLM(LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=128,
)).cuda()
prompt = torch.arange(20, 30, device="cuda")[None].repeat(8, 1)
peaks = []
for more in ({}, {"return_dict_in_generate": True}):  # the second keeps all tokens: it is run to its end
    out = llama.generate(prompt, max_new_tokens=100, do_sample=True, **more)
    out = getattr(out, "sequences", out)
    peaks.append(torch.cuda.max_memory_allocated())
    assert out.shape == (8, 110) and out[:, :10].tolist() == prompt.tolist()
    assert not torch.isin(out[:, 10:].cpu(), torch.tensor([1, 2])).any(), "no token ends a text"
assert peaks[0] <= peaks[1] < 1.01 * peaks[0], peaks  # the ids and masks are in two copies
step(); step()
"""


@pytest.mark.slow
def test_a_text_that_is_generated_has_the_most_tokens(tmp_path: Path) -> None:
    """The last token is run with the cache of all others: the peak is that of all."""
    pytest.importorskip("transformers")
    found = ran(tmp_path, STEP + GENERATED)
    assert found.status == 0, found.err
    assumed = found.data["dry_run"]["assumptions"]
    assert "of 100 tokens that are generated the first two and the last were run" in assumed
    assert any(one.startswith("the tokens that a model generates are made up") for one in assumed)
    assert found.data["verdict"] != "fits"


VALUES = """\
known = torch.arange(6, device="cuda")
assert known[known > 3].tolist() == [4, 5]
known[known > 3] = known[known > 4].repeat(2)
assert known.tolist() == [0, 1, 2, 3, 5, 5]
drawn = torch.distributions.Categorical(logits=net(torch.zeros(4, 64, device=0)))
assert torch.randint(0, 9, (3,), device=0).is_cuda and torch.zeros_like(known, device=0).is_cuda
torch.set_default_device("cuda")
assert torch.zeros(3).is_cuda
torch.set_default_device("cpu")
step(); step()
"""


@pytest.mark.slow
def test_masks_of_known_values_and_devices_by_number(tmp_path: Path) -> None:
    """What a mask picks has values where all are known; distributions check made-up values; `device=0` is the GPU."""
    found = ran(tmp_path, STEP + VALUES)
    assert found.status == 0, found.err


PIPELINE = """\
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from transformers import CLIPTextModel, CLIPTokenizer
name = "CompVis/stable-diffusion-v1-4"
noise = DDPMScheduler.from_pretrained(name, subfolder="scheduler")
words = CLIPTokenizer.from_pretrained(name, subfolder="tokenizer")
sizes = [
    sum(one.numel() for one in kind.from_pretrained(name, subfolder=part).parameters())
    for kind, part in ((AutoencoderKL, "vae"), (CLIPTextModel, "text_encoder"), (UNet2DConditionModel, "unet"))
]
assert sizes == [83653863, 123060480, 859520964], sizes
assert words.model_max_length == 77 and noise.config.num_train_timesteps == 1000
step(); step()
"""


@pytest.mark.slow
def test_the_parts_of_a_pipeline(tmp_path: Path) -> None:
    """Each part has the parameters of the published one."""
    pytest.importorskip("diffusers")
    found = ran(tmp_path, STEP + PIPELINE)
    assert found.status == 0, found.err


@pytest.mark.slow
def test_what_is_sent_to_the_hub_stays(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    program = (
        "from huggingface_hub import HfApi, create_repo, upload_folder\n"
        "assert create_repo('my-model', exist_ok=True).repo_id == 'user/my-model'\n"
        "assert HfApi().create_repo(repo_id='me/my-model').repo_id == 'me/my-model'\n"
        "upload_folder(repo_id='me/my-model', folder_path='.')\nstep(); step()\n"
    )
    found = ran(tmp_path, STEP + program)
    assert found.status == 0, found.err
    assert "nothing was uploaded to the hub" in found.data["dry_run"]["assumptions"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "why"),
    [
        (
            "import argparse, wandb\n"
            "wandb.init(project='p', config={'width': 64, 'lr': 0.1})\n"
            "wandb.config.update(argparse.Namespace(epochs=3), allow_val_change=True)\n"
            "assert dict(wandb.config) == {'width': 64, 'lr': 0.1, 'epochs': 3} == wandb.run.config\n"
            "assert [name for name, _ in wandb.config.items()] == ['width', 'lr', 'epochs']\n"
            "assert getattr(wandb.config, 'depth', 4) == 4 and wandb.config.get('depth') is None\n"
            "assert wandb.config.width == 64\nstep(); step()\n",
            "",
        ),
        ("import wandb\nwandb.init()\nfor _ in range(wandb.config.epochs): step()\n", "takes epochs from its search"),
    ],
)
def test_the_settings_of_a_logger_that_is_not_there(tmp_path: Path, program: str, why: str) -> None:
    found = ran(tmp_path, STEP + program)
    assert (found.status == 0) is (not why), found.err
    assert why in found.err


OF_THE_DEVICE = {
    "packed sequences": """\
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
net = torch.nn.LSTM(8, 16, batch_first=True).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    x = torch.zeros(4, 6, 8, device="cuda", requires_grad=True)
    packed = pack_padded_sequence(x, torch.tensor([6, 3, 5, 2]), batch_first=True, enforce_sorted=False)
    assert packed.data.shape == (16, 8) and packed.batch_sizes.tolist() == [4, 4, 3, 2, 2, 1]
    y, lengths = pad_packed_sequence(net(packed)[0], batch_first=True)
    assert y.shape == (4, 6, 16) and y.is_cuda and lengths.tolist() == [6, 3, 5, 2]
    y.sum().backward()
    optimizer.step()
""",
    "gradients through DataParallel": """\
net = torch.nn.DataParallel(torch.nn.Linear(8, 8).cuda(), [0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.zeros(4, 8, device="cuda", requires_grad=True)
for _ in range(2):
    net(x).sum().backward()
    optimizer.step()
""",
    "a GRU": """\
net = torch.nn.GRU(8, 16, bidirectional=True).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.zeros(5, 4, 8, device="cuda"))[0].sum().backward()
    optimizer.step()
""",
    "weight_norm before the device": """\
net = torch.nn.utils.weight_norm(torch.nn.Conv1d(4, 4, 3)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.zeros(2, 4, 9, device="cuda")).sum().backward()
    optimizer.step()
assert net.weight_g.is_cuda and net.weight_g.grad.is_cuda
""",
    "a default type of the device": """\
torch.set_default_tensor_type("torch.cuda.FloatTensor")
net = torch.nn.Linear(64, 64)
assert net.weight.is_cuda and torch.zeros(3).is_cuda
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.zeros(8, 64)).sum().backward()
    optimizer.step()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OF_THE_DEVICE)
def test_what_asks_the_device_in_a_way_of_its_own_trains(tmp_path: Path, kind: str) -> None:
    found = ran(tmp_path, "import torch\n" + OF_THE_DEVICE[kind])
    assert found.status == 0, found.err
    assert found.data["dry_run"]["steps"] == [2]


LIBRARIES = {
    "nltk/__init__.py": "from .tokenize import word_tokenize\nfrom . import corpus\n",
    "nltk/tokenize.py": "def word_tokenize(text):\n    raise LookupError('punkt')\n",
    "nltk/corpus/__init__.py": "from .util import LazyCorpusLoader\nstopwords = LazyCorpusLoader('stopwords')\n",
    "nltk/corpus/util.py": (
        "class LazyCorpusLoader:\n"
        "    def __init__(self, name): self.__name = name\n"
        "    def __getattr__(self, name): raise LookupError(self.__name)\n"
    ),
    "spacy/__init__.py": (
        "def blank(language): return lambda text: [language, *text.split()]\ndef load(name): raise OSError(name)\n"
    ),
    "pycocotools/__init__.py": "",
    "pycocotools/coco.py": (
        "class COCO:\n"
        "    def __init__(self, annotation_file=None): self.dataset = {}\n"
        "    def createIndex(self): self.imgs = {one['id']: one for one in self.dataset['images']}\n"
    ),
}
"""Names of nltk, spaCy and pycocotools, and what they say where a resource is not there."""
RESOURCES = """\
import nltk, spacy
from nltk.corpus import stopwords
from pycocotools.coco import COCO
assert nltk.word_tokenize("a cat. sat") == ["a", "cat", ".", "sat"]
assert "the" in stopwords.words("english")
assert spacy.load("en_core_web_sm")("a b") == ["en", "a", "b"]
kept = COCO("nothing/instances.json")
assert len(kept.imgs) == 1024 and {one["category_id"] for one in kept.dataset["annotations"]} <= set(range(1, 91))
step(); step()
"""


@pytest.mark.slow
def test_resources_that_are_not_there_are_said(tmp_path: Path) -> None:
    found = ran(tmp_path, STEP + RESOURCES, "--gpu", "RTX 4090", files=LIBRARIES)
    assert found.status == 0, found.err
    said = " ".join(one["why"] for one in found.data["assumptions"])
    for words in ("nltk's model of sentences", "nltk's stopwords", "spaCy's en_core_web_sm", "8 boxes in a picture"):
        assert words in said
    assert found.data["verdict"] == "fits-if"


COPIES = """\
from transformers import AutoConfig, AutoModelForSequenceClassification, BertTokenizer
config = AutoConfig.from_pretrained("/data/models/bert-base-uncased")
made = AutoModelForSequenceClassification.from_pretrained("/data/models/bert-base-uncased", config=config)
assert made.config.hidden_size == 768
assert AutoConfig.from_pretrained("/data/DeepSeek-R1-0528-Qwen3-8B").num_hidden_layers == 36
tokenizer = BertTokenizer.from_pretrained("bert-base-uncased")
assert isinstance(tokenizer, BertTokenizer) and tokenizer("some words")["input_ids"]
step(); step()
"""


@pytest.mark.slow
def test_copies_of_models_and_tokenizers_of_a_class(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    found = ran(tmp_path, STEP + COPIES)
    assert found.status == 0, found.err
    said = found.data["dry_run"]["assumptions"]
    assert any("Qwen3-8B is taken to be that of qwen3-8b, by its name" in one for one in said)
