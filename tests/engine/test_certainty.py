"""What may be called "fits": first what must not, then what must."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import Write

from preflight.engine.ask import job_of
from preflight.engine.certainty import Certainty
from preflight.engine.check import CheckOptions, analyse, setup
from preflight.engine.estimator import Estimator
from preflight.engine.files import batches
from preflight.engine.worst_values import WORST, with_ranks
from preflight.machines.gpus import find_gpu
from preflight.memory.device.law.workload import Resolved
from preflight.vocabulary.edits_of_job import possible
from preflight.vocabulary.estimates import Estimates
from preflight.vocabulary.job import Job, build, fields
from preflight.vocabulary.outcome import StudyResult
from preflight.vocabulary.spelling import kind_of
from preflight.vocabulary.standing import Held, Standing
from preflight.vocabulary.tracing import SHIPPED_ONLY, Tracing

LOOP = """\
import argparse
import copy
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="gpt2")
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--max_length", type=int, default=512)
args = parser.parse_args()
tokenizer = AutoTokenizer.from_pretrained(args.model)
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=args.max_length)
model = AutoModelForCausalLM.from_pretrained(args.model).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for batch in DataLoader(rows, batch_size=args.batch_size):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
"""
BY_NAME = LOOP.replace("DataLoader(rows, batch_size=args.batch_size)", "loader_of(args)").replace(
    "from torch.utils.data import DataLoader", "from mine import loader_of"
)
TRAINER = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("gpt2")
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=512)
model = AutoModelForCausalLM.from_pretrained("gpt2")
arguments = TrainingArguments("out", per_device_train_batch_size=SIZE)
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""
JOB = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n"
SWEEP = "program: train.py\nmethod: grid\nparameters:\n  batch_size: {values: [2, 4, 8]}\n  max_length: {value: 512}\n"


def judged(root: Path, path: str, gpu: str | None = "T4", **stated: object) -> StudyResult:
    [batch] = batches([path], root, from_hook=False)
    options = CheckOptions(gpu=gpu, set={name.replace("__", "."): value for name, value in stated.items()})  # type: ignore[misc]
    [found] = analyse(*setup(batch, options, root, rules=False)).studies
    return found


def worst(found: StudyResult) -> Estimates:
    return found.space.worst.estimates


@pytest.mark.parametrize(
    ("files", "gpu", "field", "standing"),
    [
        ({"train.py": BY_NAME}, "T4", "train.batch_size", Standing.by_name),
        ({"job.sh": JOB, "train.py": BY_NAME}, "T4", "train.batch_size", Standing.by_name),
        # nobody shows the launch: under DDP there are buckets of gradients beside the gradients
        ({"train.py": TRAINER.replace("SIZE", "14")}, "T4", "parallel.strategy", Standing.assumed),
        (
            {"job.sh": JOB.replace("python", "accelerate launch"), "train.py": TRAINER.replace("SIZE", "14")},
            "T4", "parallel.strategy", Standing.assumed,
        ),
        # nobody knows the word: it may choose the attention
        (
            {"job.sh": JOB.replace("train.py", "train.py --attn eager --batch_size 12"), "train.py": LOOP},
            "T4", "train.attention", Standing.assumed,
        ),
        # whoever starts the script may set it
        (
            {"job.sh": JOB.replace("train.py", "train.py --batch_size ${BS:-12}"), "train.py": LOOP},
            "T4", "train.batch_size", Standing.assumed,
        ),
        (
            {"job.sh": JOB.replace("python train.py", "N=${1:-12}\npython train.py --batch_size $N"), "train.py": LOOP},
            "T4", "train.batch_size", Standing.assumed,
        ),
        # every round keeps a copy of the weights
        ({"train.py": LOOP + "    states.append(copy.deepcopy(model.state_dict()))\n"}, "T4", "train.copies.ema",
         Standing.unknown),
        # what runs beside it may take the GPU
        ({"job.sh": JOB.replace("python", "./server &\npython"), "train.py": LOOP}, "T4", "machine.gpu_memory",
         Standing.assumed),
        # only a run decides whether it is switched on
        (
            {"job.sh": JOB.replace("train.py", "train.py --batch_size 24"), "train.py": LOOP.replace(
                "optimizer = ", "if tried():\n    model.gradient_checkpointing_enable()\noptimizer = ", 1)},
            "T4", "train.gradient_checkpointing", Standing.assumed,
        ),
        # nobody finds the program: only names are known
        ({"sweep.yaml": SWEEP + "  model_name: {value: gpt2}\n"}, "A100-80GB", "model.name", Standing.by_name),
    ],
)  # fmt: skip
def test_what_is_not_certain_does_not_fit(
    files: dict[str, str], gpu: str, field: str, standing: Standing, project: Write
) -> None:
    found = judged(project(files), next(iter(files)), gpu)
    assert worst(found).verdict == "fits-if"
    assert {one.field: one.standing for one in worst(found).assumptions}.get(field) is standing
    assert all(one.why for one in worst(found).assumptions)
    counts = found.space.counts
    assert (counts.fits, counts.unsafe, counts.fits_if > 0) == (0, 0, True)
    assert found.standings[field] is standing


@pytest.mark.parametrize(
    ("standing", "verdict"),
    [(Standing.by_name, "unknown"), (Standing.read, "exceeds"), (Standing.assumed, "exceeds")],
)
def test_a_model_that_only_a_name_suggests_does_not_exceed(standing: Standing, verdict: str) -> None:
    """Another model may be the one that is trained."""
    large = {"model.name": "meta-llama/Llama-2-7b-hf", "train.batch_size": 1, "train.seq_len": 128}
    known = {"model.name": Held(standing, "only a name suggests it")}
    device = Certainty(known, Estimator(find_gpu("T4"))).estimate(build({**large, "parallel.strategy": "none"})).device
    assert device is not None
    assert device.verdict == verdict
    assert [one.field for one in device.assumptions] == (["model.name"] if verdict == "unknown" else [])


@pytest.mark.parametrize(
    ("files", "gpu", "stated"),
    [
        ({"train.py": LOOP}, "T4", {}),
        ({"job.sh": JOB, "train.py": LOOP}, "T4", {}),
        ({"sweep.yaml": SWEEP, "train.py": LOOP}, "T4", {}),
        # the user states what only a name suggests
        ({"train.py": BY_NAME}, "T4", {"train__batch_size": 4}),
        # the script sets it itself
        (
            {
                "job.sh": JOB.replace("python", "BS=12\npython").replace("n.py", "n.py --batch_size ${BS:-99}"),
                "train.py": LOOP,
            },
            "T4",
            {},
        ),
        # one copy at the most
        ({"train.py": LOOP + "first = copy.deepcopy(model)\n"}, "T4", {}),
        # whatever the launch and the release are, it fits
        ({"train.py": TRAINER.replace("SIZE", "4")}, "A100-80GB", {}),
        ({"job.sh": JOB.replace("train.py", "train.py --attn eager"), "train.py": LOOP}, "RTX 4090", {}),
    ],
)
def test_what_holds_with_the_worst_values_fits(
    files: dict[str, str], gpu: str, stated: dict[str, object], project: Write
) -> None:
    found = judged(project(files), next(iter(files)), gpu, **stated)
    assert (worst(found).verdict, worst(found).assumptions) == ("fits", ())
    assert found.space.counts.fits == found.space.combinations
    assert found.space.counts.fits_if == 0


def test_a_part_of_a_search_may_be_certain(project: Write) -> None:
    command = "program: train.py\ncommand: [python, '${program}', --attn, eager, '${args}']"
    text = SWEEP.replace("program: train.py", command).replace("8]", "12]")
    found = judged(project({"sweep.yaml": text, "train.py": LOOP}), "sweep.yaml", "RTX 3090")
    assert (found.space.counts.fits, found.space.counts.fits_if) == (2, 1)


@pytest.mark.parametrize(
    ("placed", "gpus", "verdict"),
    [
        (', device_map="auto"', "", "unknown"),
        ("", "", "exceeds"),
        (', device_map="auto"', "#SBATCH --gres=gpu:1\n", "exceeds"),
    ],
)
def test_layers_may_be_on_any_number_of_gpus(placed: str, gpus: str, verdict: str, project: Write) -> None:
    """`device_map="auto"` shares the model among all GPUs that the process sees."""
    loaded = LOOP.replace("(args.model).cuda()", f'("gpt2-xl"{placed})')
    assert loaded != LOOP
    files = {"train.py": loaded, **({"job.sh": f"#!/bin/bash\n{gpus}python train.py\n"} if gpus else {})}
    found = judged(project(files), "job.sh" if gpus else "train.py", "T4", train__batch_size=2)
    assert worst(found).verdict == verdict


LARGE = TRAINER.replace("SIZE", "1").replace('"gpt2"', '"gpt2-xl"').replace("512", "64")
ON_EIGHT = JOB.replace("gpu:1", "gpu:8")


@pytest.mark.parametrize(
    ("launch", "verdict"),
    [
        # accelerate reads a file in the user's home: it may shard the states over the GPUs
        (ON_EIGHT.replace("python", "accelerate launch"), "unknown"),
        (ON_EIGHT.replace("python", "accelerate launch --num_processes 8"), "unknown"),
        # one GPU has nothing to split them over
        (JOB.replace("python", "accelerate launch"), "exceeds"),
        (ON_EIGHT.replace("python", "accelerate launch --num_processes 8 --multi_gpu"), "exceeds"),
        (ON_EIGHT.replace("python", "torchrun --nproc_per_node 8"), "exceeds"),
        (JOB, "exceeds"),
    ],
)
def test_states_exceed_unless_a_file_that_was_not_read_may_split_them(
    launch: str, verdict: str, project: Write
) -> None:
    found = judged(project({"job.sh": launch, "train.py": LARGE}), "job.sh")
    device = worst(found).device
    assert device is not None
    assert device.verdict == verdict
    assert [one.field for one in device.assumptions] == (["parallel.strategy"] if verdict == "unknown" else [])
    assert (device.largest_batch_size is None) == (verdict == "unknown")


MIXED = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.1")
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=512)
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")
arguments = TrainingArguments("out", per_device_train_batch_size=SIZE, bf16=True)
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("size", "release", "gpu", "verdict"),
    [
        # in bf16, as transformers 5 loads it, 54 GiB of states: not certain of 80
        (1, "", "A100 80GB", "unknown"),
        (1, "transformers==4.50.0\n", "A100 80GB", "exceeds"),
        # too much in either type: the states, or half of the need
        (1, "", "RTX 4090", "exceeds"),
        (64, "", "A100 80GB", "exceeds"),
    ],
)
def test_the_type_of_the_weights_beside_autocast_is_the_releases(
    size: int, release: str, gpu: str, verdict: str, project: Write
) -> None:
    root = project({"job.sh": JOB, "train.py": MIXED.replace("SIZE", str(size)), "requirements.txt": release})
    device = worst(judged(root, "job.sh", gpu)).device
    assert device is not None
    assert device.verdict == verdict
    assert [one.field for one in device.assumptions] == (["train.weights_dtype"] if verdict == "unknown" else [])


FOUR_BITS = """\
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, Trainer, TrainingArguments
NAME = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
rows = AutoTokenizer.from_pretrained(NAME)(texts, padding="max_length", truncation=True, max_length=2048)
four_bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(NAME, quantization_config=four_bits)
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
arguments = TrainingArguments("out", per_device_train_batch_size=SIZE, bf16=True, gradient_checkpointing=True)
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""


@pytest.mark.slow
def test_a_trace_tells_that_a_job_exceeds_in_either_type(project: Write) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    # more than half of the GPU and less than twice: only a law for the other type can say it
    device = worst(judged(project({"job.sh": JOB, "train.py": FOUR_BITS.replace("SIZE", "20")}), "job.sh", "T4")).device
    assert device is not None
    assert device.capacity is not None
    assert device.capacity < device.process.low < 2 * device.capacity
    assert device.verdict == "exceeds"
    assert not device.assumptions


@pytest.mark.parametrize(("release", "verdict"), [("", "fits-if"), ("transformers==4.50.0\n", "exceeds")])
def test_a_copy_of_the_weights_on_the_host_is_the_releases(release: str, verdict: str, project: Write) -> None:
    job = JOB.replace("#SBATCH", "#SBATCH --mem=16G\n#SBATCH", 1)
    root = project({"job.sh": job, "train.py": MIXED.replace("SIZE", "1"), "requirements.txt": release})
    host = worst(judged(root, "job.sh", "A100 80GB")).host
    assert host is not None
    assert host.verdict == verdict
    assert [one.field for one in host.assumptions] == (["model.load"] if verdict == "fits-if" else [])


@pytest.mark.parametrize(
    ("kind", "settings", "asked", "size", "verdict"),
    [
        # 59 GiB: an a100 may have 80 of them
        ("a100", "", None, 60, "unknown"),
        ("a100", 'gpu = "A100 40GB"\n', None, 60, "exceeds"),
        ("a100", 'gpu = "A100 80GB"\n', None, 60, "fits"),
        ("a100", "", "A100 40GB", 60, "exceeds"),
        ("a100-40gb", "", None, 60, "exceeds"),
        # too much for either, and little enough for the smaller
        ("a100", "", None, 200, "exceeds"),
        ("a100", "", None, 8, "fits"),
    ],
)
def test_a_name_of_several_gpus_is_no_error_where_the_larger_may_hold_it(
    kind: str, settings: str, asked: str | None, size: int, verdict: str, project: Write
) -> None:
    program = TRAINER.replace("SIZE", str(size))
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:{kind}:1\npython train.py\n"
    root = project({"job.sh": script, "train.py": program, "preflight.toml": settings})
    device = worst(judged(root, "job.sh", asked)).device
    assert device is not None
    assert device.verdict == verdict
    assert [one.field for one in device.assumptions] == (["machine.gpu"] if verdict == "unknown" else [])


def test_a_search_counts_what_is_not_known_to_exceed_as_unknown(project: Write) -> None:
    sweep = (
        "program: train.py\nmethod: grid\n"
        "command: [accelerate, launch, --num_processes, '8', '${program}', '${args}']\n"
        "parameters:\n  model: {values: [gpt2, gpt2-xl]}\n  batch_size: {value: 1}\n  max_length: {value: 64}\n"
    )
    program = LARGE.replace('"gpt2-xl"', "args.model").replace(
        "tokenizer =",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--model')\n"
        "parser.add_argument('--batch_size', type=int)\nparser.add_argument('--max_length', type=int)\n"
        "args = parser.parse_args()\ntokenizer =",
        1,
    )
    counts = judged(project({"sweep.yaml": sweep, "train.py": program}), "sweep.yaml").space.counts
    assert (counts.exceeds, counts.at_risk, counts.unknown, counts.fitting) == (0, 0, 1, 1)


UNKNOWN_MODEL = """\
from torch.utils.data import DataLoader
from mine import make, rows
model = make().cuda()
for batch in DataLoader(rows, batch_size=4):
    model(batch).backward()
"""


@pytest.mark.parametrize(
    ("memory", "more", "verdict"),
    [
        # 12 GiB hold the weights of 2.7 billion parameters beside the process: a GPU of 15 GiB holds more of them
        ("12G", {}, "fits-if"),
        ("12G", {"model__parameters": 10**9}, "fits"),
        # what the host cannot load, the GPU cannot hold
        ("120G", {}, "fits"),
        # with sharding, a model may be larger than its GPU
        ("120G", dict.fromkeys(("parallel__ranks_per_node", "parallel__gpus_per_node"), 4)
         | {"parallel__strategy": "fsdp"}, "fits-if"),
    ],
)  # fmt: skip
def test_the_weights_of_an_unknown_model_may_not_fit_the_host(
    memory: str, more: dict[str, object], verdict: str, project: Write
) -> None:
    script = JOB.replace("gpu:1\n", f"gpu:1\n#SBATCH --mem={memory}\n")
    root = project({"job.sh": script, "train.py": UNKNOWN_MODEL})
    found = judged(root, "job.sh", data__sample_bytes=1024, data__workers=0, **more)
    host = worst(found).host
    assert host is not None
    assert host.verdict == verdict
    assert [one.field for one in host.assumptions] == (["model.parameters"] if verdict == "fits-if" else [])


def test_a_need_that_no_gpu_has_is_doubted(project: Write) -> None:
    found = judged(project({"train.py": LOOP.replace("default=4", "default=1_000_000")}), "train.py", "A100-80GB")
    device = worst(found).device
    assert device is not None
    assert device.verdict == "at-risk"
    assert [one.field for one in device.assumptions] == ["train.batch_size"]
    assert found.space.counts.exceeds == 0


FROZEN = """\
import torch, torchvision
from torch.utils.data import DataLoader
model = torchvision.models.resnet50()
for name, p in model.named_parameters():
    p.requires_grad = is_new(name)
optimizer = torch.optim.SGD(p for p in model.parameters() if p.requires_grad)
for x, y in DataLoader(data, batch_size=SIZE):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("size", "verdict"), [("8", "fits"), ("512", "unknown")])
def test_training_of_frozen_parts_is_no_more_than_of_all(size: str, verdict: str, project: Write) -> None:
    found = judged(project({"train.py": FROZEN.replace("SIZE", size)}), "train.py", train__image_size=224)
    device = worst(found).device
    assert device is not None
    assert device.verdict == verdict
    assert [one.field for one in device.assumptions] == (["train.frozen"] if verdict == "unknown" else [])


OWN = """\
import torch
from torch.utils.data import DataLoader
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(1000, 1000, bias=False)
    def forward(self, x):
        return self.body(x)
model = Net()
HOW
optimizer = torch.optim.Adam(model.parameters())
for x, y in DataLoader(data, batch_size=8):
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


SOME = 'for name, p in model.named_parameters():\n    p.requires_grad = "head" in name'


@pytest.mark.parametrize(("how", "copies"), [("", 4), (SOME, 1)])
def test_an_own_model_takes_at_least_its_states(how: str, copies: int, project: Write) -> None:
    """Weights, gradients and both moments of Adam; weights alone where a part that is not named has no gradients."""
    device = worst(judged(project({"train.py": OWN.replace("HOW", how)}), "train.py")).device
    assert device is not None
    assert (device.lower_bound, device.verdict) == (True, "unknown")
    assert device.requested.expected == copies * 4 * 1_000_000


ADAPTED = """\
from peft import get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("acme/Thing-1.3B")
HOW
Trainer(model, TrainingArguments("out", per_device_train_batch_size=1, gradient_checkpointing=False)).train()
"""


@pytest.mark.parametrize(("how", "copies"), [("", 4), ("model = get_peft_model(model, ask())", 1)])
def test_a_model_that_may_be_adapted_takes_at_least_its_weights(how: str, copies: int, project: Write) -> None:
    """Where no file says which adapter is trained, nothing of the model itself is known to have gradients."""
    device = worst(judged(project({"train.py": ADAPTED.replace("HOW", how)}), "train.py")).device
    assert device is not None
    assert device.lower_bound
    least = device.requested.expected / (4 * 1.3e9)
    assert 0.85 * copies < least < 1.1 * copies


LOSSES = """\
import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-13b-hf", torch_dtype=torch.bfloat16).cuda()
MADE
for batch in DataLoader(data, batch_size=1):
    loss = model(**batch).loss
    loss.backward()
    HOW
"""


@pytest.mark.parametrize(
    ("made", "how", "verdict"),
    [
        ("", "keep(model)", "unknown"),
        ("optimizer = torch.optim.SGD(model.parameters(), 0.1)", "optimizer.step()", "exceeds"),
    ],
)
def test_a_program_without_an_optimizer_may_keep_no_gradients(
    made: str, how: str, verdict: str, project: Write
) -> None:
    """26 GB of weights fit 40 GB, and 26 GB of gradients beside them do not."""
    text = LOSSES.replace("MADE", made).replace("HOW", how)
    device = worst(judged(project({"train.py": text}), "train.py", gpu="A100 40GB")).device
    assert device is not None
    assert device.verdict == verdict


TEXT = {
    "task": "causal-lm", "model.name": "gpt2", "train.batch_size": 8, "train.seq_len": 512, "data.workers": 4,
    "data.sample_bytes": 10**6, "data.in_memory_bytes": 10**9,
}  # fmt: skip
LLAMA = {**TEXT, "model.name": "TinyLlama/TinyLlama-1.1B-Chat-v1.0"}
LORA = {**LLAMA, "train.peft.method": "lora"}
JOBS: dict[str, dict[str, object]] = {
    "fp32": TEXT,
    "autocast": {**TEXT, "train.precision": "bf16-mixed"},
    "16 bits": {**TEXT, "train.precision": "bf16"},
    "LoRA": {**LORA, "train.precision": "bf16-mixed"},
    "QLoRA": {**LORA, "train.precision": "bf16", "train.quantization.type": "nf4"},
    "sharded": {
        **LLAMA, "parallel.gpus_per_node": 4, "parallel.ranks_per_node": 4, "parallel.strategy": "zero3",
    },
    "images": {
        "task": "image-classification", "model.target": "torchvision:resnet50", "train.batch_size": 32,
        "train.image_size": 224, "data.workers": 4, "data.sample_bytes": 600_000, "validation.batch_size": 32,
        "data.validation_workers": 4,
    },
}  # fmt: skip


def choices(name: str) -> tuple[object, ...]:
    """The values of a field that has a few."""
    kind = kind_of(name)
    return () if kind is None else (False, True) if kind.name == "bool" else kind.choices


@pytest.mark.parametrize("said", JOBS.values(), ids=JOBS)
def test_no_other_value_takes_more_than_the_worst(said: dict[str, object]) -> None:
    job, estimator = job_of(said), Estimator(None, SHIPPED_ONLY)

    def sizes(name: str, value: object) -> tuple[int | None, int | None]:
        changed = possible(job, with_ranks(job, name, value))
        bounds = (estimator.device_bound(changed), estimator.host_bound(changed)) if changed is not None else ()
        device, host = [None if bound is None else bound[1] for bound in bounds] or [None, None]
        return device, None if device is None else host

    for name in (one for one in WORST if choices(one)):
        for side in (0, 1):
            worst_ones = (*WORST[name], job.get(name))  # its own value is estimated, too
            most = max((size for value in worst_ones if (size := sizes(name, value)[side]) is not None), default=None)
            others = {value: sizes(name, value)[side] or 0 for value in choices(name)}
            worse = {value: size for value, size in others.items() if most is not None and size > most}
            assert not worse, f"{name}: {worse} > {most}"


def test_a_field_with_a_worst_value_is_a_field() -> None:
    assert set(WORST) <= set(fields())


def test_an_unknown_number_of_gpus_that_share_the_model_makes_no_error(project: Write) -> None:
    """A file of settings names ZeRO-3 and nobody shows how many processes there are: one has nothing to share."""
    settings = (
        "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: full\ntemplate: llama3\n"
        "cutoff_len: 512\ndeepspeed: z3.json\nper_device_train_batch_size: 1\nbf16: true\n"
    )
    root = project({"x.yaml": settings, "z3.json": '{"zero_optimization": {"stage": 3}}'})
    unsure = worst(judged(root, "x.yaml", "A100 80GB")).device
    assert unsure is not None
    assert unsure.verdict == "unknown"
    assert [one.field for one in unsure.assumptions] == ["parallel.gpus_per_node"]
    alone = worst(judged(root, "x.yaml", "A100 80GB", parallel__gpus_per_node=1)).device
    assert alone is not None
    assert alone.verdict == "exceeds"


def test_no_compiled_step_is_traced_of_a_job_that_nobody_wrote(
    project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown word may compile the step, and its bound is too near to the capacity to decide."""
    traced = []

    def laws(job: Job, resolved: Resolved, tracing: Tracing) -> None:
        if job.train.compile:
            traced.append(tracing.compiled)

    monkeypatch.setattr("preflight.memory.device.prepare.compiled_laws", laws)
    for batch in (12, 14, 16):
        project({"job.sh": JOB.replace("train.py", f"train.py --fast --batch_size {batch}"), "train.py": LOOP})
        judged(tmp_path, "job.sh")
    assert set(traced) == {False}


PARSED = """\
from transformers import AutoModelForCausalLM, AutoTokenizer, HfArgumentParser, Trainer, TrainingArguments
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
tokenizer = AutoTokenizer.from_pretrained("mistralai/Mistral-7B-v0.1")
rows = tokenizer(texts, padding="max_length", truncation=True, max_length=512)
model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1")
Trainer(model=model, args=arguments, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (None, "unknown"),
        ("python train.py --output_dir runs", "exceeds"),
    ],
)
def test_defaults_of_a_command_line_that_no_file_gives_are_assumed(
    command: str | None, verdict: str, project: Write
) -> None:
    """A trainer's arguments are for its command to say: the sharding, the precision, the adapters."""
    files = {"train.py": PARSED, "requirements.txt": "transformers==4.50.0\n"}
    if command is not None:
        files["job.sh"] = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{command}\n"
    root = project(files)
    found = worst(judged(root, "job.sh" if command is not None else "train.py", "A100 80GB"))
    assert found.device is not None
    assert found.device.verdict == verdict
    if command is None:
        assert {one.why for one in found.device.assumptions} == {"no file gives its command line"}


NAMED_LENGTH = LOOP.replace("args.max_length", "int(sys.argv[1])").replace(
    "import argparse", "import argparse\nimport sys"
)


@pytest.mark.parametrize(("gpu", "verdict"), [("T4", "fits-if"), ("A100-80GB", "fits")])
def test_a_length_is_doubted_up_to_the_table_of_positions(project: Write, gpu: str, verdict: str) -> None:
    device = worst(judged(project({"train.py": NAMED_LENGTH}), "train.py", gpu, train__batch_size=12)).device
    assert device is not None
    assert device.verdict == verdict  # the name of a setting says 512, gpt2 takes 1,024


DATA_PARALLEL = LOOP.replace(".cuda()", "\nmodel = torch.nn.DataParallel(model.cuda(){})")


@pytest.mark.parametrize(
    ("size", "gpus", "verdict", "assumed"),
    [
        (4, "", "fits", set()),
        # on one GPU too much, and not on eight
        (64, "", "unknown", {"train.batch_size"}),
        (192, "", "exceeds", set()),
        (512, "", "at-risk", {"train.batch_size"}),  # more than any GPU has
        # a half of the batch fits; with the outputs of the other half nobody knows
        (24, ", device_ids=[0, 1]", "fits-if", {"train.batch_size"}),
        (128, ", device_ids=[0, 1]", "exceeds", set()),
    ],
)
def test_data_parallel_has_between_its_share_and_the_whole_batch(
    size: int, gpus: str, verdict: str, assumed: set[str], project: Write
) -> None:
    root = project({"train.py": DATA_PARALLEL.format(gpus).replace("default=4", f"default={size}")})
    device = worst(judged(root, "train.py")).device
    assert device is not None
    assert (device.verdict, {one.field for one in device.assumptions}) == (verdict, assumed)
