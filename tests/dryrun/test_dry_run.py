"""A program run dry from the command line: figures, places, and that nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import PARAMETERS, STEP, TRAINS, Ran, dry_run

pytest.importorskip("torch")

Run = Callable[..., Ran]


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Writes a program into a folder of its own and runs it dry. All that is in the folder afterwards was there before,
    and no directory for temporary files is left."""
    folder = tmp_path / "work"
    folder.mkdir()

    def ran(program: str, *options: str, arguments: tuple[str, ...] = (), words: tuple[str, ...] = ("python",)) -> Ran:
        (folder / "train.py").write_text(program)
        found = dry_run(folder, *options, "--output-format", "json", "--", *words, "train.py", *arguments)
        assert [path.name for path in folder.rglob("*")] == ["train.py"]
        assert [path.name for path in tmp_path.iterdir()] == ["work"], "a directory for temporary files is left"
        return found

    return ran


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--no-isolation",), marks=pytest.mark.slow)], ids=["isolated", "python's layer"]
)
def test_a_training_program(run: Run, options: tuple[str, ...]) -> None:
    found = run(TRAINS, "--gpu", "RTX 4090", *options)
    assert found.status == 0, found.err
    assert found.err.startswith("preflight dry-run executes your program: python train.py")
    data = found.data
    run_of = data["dry_run"]
    assert (run_of["end"], run_of["steps"], run_of["validated"]) == ("finished", [2], True)
    assert data["verdict"] == "fits"
    device = data["device"]
    assert device["requested"]["expected"] < device["allocated"]["expected"] < device["reserved"]["expected"]
    assert device["reserved"]["expected"] < device["process"]["expected"]
    assert sum(device["breakdown"].values()) == device["process"]["expected"]
    assert {"load", "forward", "backward", "optimizer", "validation"} <= device["phases"].keys()
    by_part = {one["part"]: one["bytes"] for one in run_of["lines"] if one["part"] in ("weights", "optimizer")}
    assert by_part["weights"] == PARAMETERS
    assert 2 * PARAMETERS <= by_part["optimizer"] <= 2 * PARAMETERS + 64
    assert [one["name"] for one in run_of["lines"] if one["part"] == "weights"] == ["train.py:5"]
    assert data["standings"]["train.batch_size"] == "dry-run"
    assert (data["job"]["train"]["batch_size"], data["job"]["validation"]["batch_size"]) == (64, 128)
    assert data["job"]["train"]["optimizer"] == "adamw"
    assert data["job"]["data"]["sample_bytes"] == 100 * 4 + 8, "100 numbers and a label"
    assert data["host"]["per_node"]["expected"] > 0
    assert run_of["findings"] == []


@pytest.mark.slow
def test_the_batch_decides(run: Run) -> None:
    """The activations of 64 more samples, through the layers of the program."""
    small, large = (run(TRAINS.replace("batch_size=64", f"batch_size={batch}")).data for batch in (64, 128))
    more = large["device"]["phases"]["forward"] - small["device"]["phases"]["forward"]
    assert more >= 64 * 4 * (100 + 400 + 10)


@pytest.mark.parametrize(
    ("loop", "steps", "accumulation"),
    [
        ("for _ in range(1000): step()", [8], 1),
        ("step(); step()", [2], 1),
        ("step()", [1], None),
    ],
)
@pytest.mark.slow
def test_loops_without_a_loader_end(run: Run, loop: str, steps: list[int], accumulation: int | None) -> None:
    data = run(STEP + loop).data
    assert data["dry_run"]["steps"] == steps
    if accumulation is not None:
        assert data["job"]["train"]["grad_accum"] == accumulation


@pytest.mark.slow
def test_accumulation_is_seen(run: Run) -> None:
    program = STEP.replace("    optimizer.step()\n", "") + (
        "for i in range(1000):\n    step()\n    if i % 4 == 3: optimizer.step()\n"
    )
    data = run(program.replace("    optimizer.zero_grad()\n", "")).data
    assert data["job"]["train"]["grad_accum"] == 4


@pytest.mark.slow
def test_updates_written_by_hand_end(run: Run) -> None:
    program = STEP.replace("    optimizer.step()\n", "").replace("    optimizer.zero_grad()\n", "") + (
        "while True:\n    step()\n    for p in net.parameters():\n        p.data.add_(p.grad, alpha=-0.1)\n"
    )
    data = run(program).data
    assert data["dry_run"]["end"] == "finished"
    assert data["job"]["train"]["optimizer"] == "other"


@pytest.mark.slow
def test_an_optimizer_that_steps_others_counts_once(run: Run) -> None:
    program = STEP + (
        "class Both(torch.optim.Optimizer):\n"
        "    def __init__(self):\n        super().__init__(net.parameters(), {})\n"
        "    def step(self, closure=None):\n        optimizer.step()\n        optimizer.step()\n"
        "both = Both()\n"
        "for _ in range(1000):\n    net(torch.zeros(8, 64, device='cuda')).sum().backward()\n    both.step()\n"
    )
    assert run(program).data["dry_run"]["steps"] == [8]


@pytest.mark.slow
def test_autocast_and_a_scaler(run: Run) -> None:
    program = TRAINS.replace(
        "        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())\n",
        "        with torch.autocast('cuda', dtype=torch.float16):\n"
        "            loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())\n",
    )
    program = program.replace("loss.backward()", "scaler.scale(loss).backward()")
    program = program.replace("optimizer.step()", "scaler.step(optimizer); scaler.update()")
    data = run(program.replace("for epoch", "scaler = torch.amp.GradScaler('cuda')\nfor epoch")).data
    assert data["dry_run"]["steps"] == [2]
    assert data["job"]["train"]["precision"] == "fp16-mixed"


DISTRIBUTED = TRAINS.replace(
    "net = nn", "torch.distributed.init_process_group('nccl')\nimport os\nassert os.environ['RANK'] == '0'\nnet = nn"
).replace("optimizer = ", "net = nn.parallel.DistributedDataParallel(net)\noptimizer = ")


@pytest.mark.slow
def test_a_launcher_gives_the_ranks(run: Run) -> None:
    alone = run(TRAINS).data
    words = ("python", "-m", "torch.distributed.run", "--nproc_per_node", "4")
    found = run(DISTRIBUTED, words=words)
    assert found.status == 0, found.err
    parallel = found.data["job"]["parallel"]
    assert (parallel["strategy"], parallel["ranks_per_node"]) == ("ddp", 4)
    buckets = found.data["device"]["requested"]["expected"] - alone["device"]["requested"]["expected"]
    assert buckets >= PARAMETERS // 2
    assert any("rank 0 of 4" in one for one in found.data["dry_run"]["assumptions"])


SHARDED = {
    "FSDP": "from torch.distributed.fsdp import FullyShardedDataParallel\n"
    "net = FullyShardedDataParallel(net, device_id=0, use_orig_params=True)\n",
    "fully_shard": "from torch.distributed.fsdp import fully_shard\nfully_shard(net[2]); fully_shard(net)\n",
}


SHARD = {"FSDP": 4 * 11103, "fully_shard": 4 * (100 * 100 + 100 + 3 * 400 + 3)}
"""Bytes of a rank's weights: of one flat tensor of 44,410 a quarter, rounded up; of each tensor a quarter of its rows,
where ten rows are three for the first."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FSDP", "fully_shard"])
def test_a_sharded_model(run: Run, kind: str) -> None:
    """What a rank of four holds; what is gathered comes and goes."""
    program = DISTRIBUTED.replace("net = nn.parallel.DistributedDataParallel(net)\n", SHARDED[kind])
    found = run(program, words=("python", "-m", "torch.distributed.run", "--nproc_per_node", "4"))
    assert found.status == 0, found.err
    data = found.data
    assert (data["dry_run"]["steps"], data["job"]["parallel"]["strategy"]) == ([2], "fsdp")
    parts = {one["part"]: one["bytes"] for one in data["dry_run"]["lines"] if one["part"] in ("weights", "optimizer")}
    assert parts == {"weights": SHARD[kind], "optimizer": 2 * SHARD[kind]}


CASES = {
    "double backward": (
        "x = torch.zeros(8, 64, device='cuda', requires_grad=True)\n"
        "first, = torch.autograd.grad(net(x).pow(2).sum(), x, create_graph=True)\n"
        "(first.norm() - 1).pow(2).backward(); optimizer.step()\n"
    ),
    "a function of its own": (
        "class Square(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x * x\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return 2 * g * ctx.saved_tensors[0]\n"
        "Square.apply(net(torch.zeros(8, 64, device='cuda'))).sum().backward(); optimizer.step()\n"
    ),
    "a device by its number": "net(torch.zeros(8, 64).to(torch.device(0))).sum().backward(); optimizer.step()\n",
    "a compiled model": "torch.compile(net)(torch.zeros(8, 64, device='cuda')).sum().backward(); optimizer.step()\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_what_programs_do(run: Run, kind: str) -> None:
    """Each makes two steps; weights and gradients of 64 x 64 and 64 are there at the end of each."""
    program = STEP + f"for _ in range(2):\n    optimizer.zero_grad()\n{indented(CASES[kind])}"
    found = run(program)
    assert found.status == 0, found.err
    assert found.data["dry_run"]["steps"] == [2]
    assert found.data["device"]["requested"]["expected"] >= 2 * 4 * (64 * 64 + 64)
    assert found.data["job"]["train"]["compile"] == (kind == "a compiled model")


@pytest.mark.slow
def test_spawned_ranks_run_as_one(run: Run) -> None:
    body = "".join(f"    {line}\n" for line in TRAINS.splitlines()[4:])
    program = f"{TRAINS.partition('net =')[0]}def main(rank, more):\n{body}" + (
        "if __name__ == '__main__':\n    import torch.multiprocessing as mp\n    mp.spawn(main, nprocs=2, args=(1,))\n"
    )
    assert run(program).data["dry_run"]["steps"] == [2]


@pytest.mark.slow
def test_an_environment_that_drops_the_path_changes_nothing(run: Run) -> None:
    """The hook is the program that is started, and no variable."""
    assert run(TRAINS, words=("env", "PYTHONPATH=..", "python")).data["dry_run"]["end"] == "finished"


@pytest.mark.slow
def test_values_of_small_tensors_are_true(run: Run) -> None:
    """What the program makes of its own data is not made up."""
    program = STEP + (
        "labels = torch.tensor([1, 5, 2, 7], device='cuda')\n"
        "assert labels[labels > 3].shape == (2,)\n"
        "assert (labels + 1).sum().item() == 19\n"
        "assert labels.max().item() == 7 and bool((labels > 0).all())\n"
        "step(); step()\n"
    )
    assert run(program).data["dry_run"]["end"] == "ended"


@pytest.mark.slow
def test_a_validation_that_was_not_seen_is_an_assumption(run: Run) -> None:
    data = run(STEP + "while True: step()", "--gpu", "RTX 4090").data
    assert data["verdict"] == "fits-if"
    assert [one["field"] for one in data["assumptions"]] == ["validation.batch_size"]


@pytest.mark.slow
def test_the_text(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(TRAINS)
    found = dry_run(tmp_path / "work", "--gpu", "RTX 4090", "--", "python", "train.py")
    assert found.status == 0, found.err
    for words in ("dry run of train.py, 2 optimizer steps", "process", "what nvidia-smi shows", "train.py:5", "fits"):
        assert words in found.out


@pytest.mark.slow
def test_every_optimizer_steps_before_the_end(run: Run) -> None:
    """Five steps of one for each of another, as generative networks have it: the second's states are on the tape."""
    program = TRAINS.replace(
        "        optimizer.step()\n",
        "        optimizer.step()\n        count = globals().get('count', 0) + 1\n"
        "        if count % 5 == 0: other(torch.zeros(1, 512, device='cuda')).sum().backward(); second.step()\n",
    ).replace(
        "data =",
        "other = nn.Linear(512, 512).cuda()\nsecond = torch.optim.AdamW(other.parameters())\ndata =",
    )
    data = run(program).data
    assert len(data["dry_run"]["steps"]) == 2
    assert min(data["dry_run"]["steps"]) >= 2
    assert data["device"]["breakdown"]["optimizer"] >= 2 * (PARAMETERS + 4 * 513 * 512)


@pytest.mark.slow
def test_an_optimizer_that_never_steps_is_an_assumption(run: Run) -> None:
    program = STEP + "unused = torch.optim.AdamW(torch.nn.Linear(8, 8).cuda().parameters())\nwhile True: step()\n"
    assert "train.optimizer" in [one["field"] for one in run(program, "--gpu", "RTX 4090").data["assumptions"]]


@pytest.mark.slow
def test_batches_of_other_lengths_are_an_assumption(run: Run) -> None:
    """The longest batch was perhaps not among those that were seen."""
    program = TRAINS.replace(
        "loss = nn.functional",
        "x, y = x[:len(x) - 8 * epoch], y[:len(y) - 8 * epoch]; epoch += 1; loss = nn.functional",
    )
    data = run(program, "--gpu", "RTX 4090").data
    assert (data["verdict"], [one["field"] for one in data["assumptions"]]) == ("fits-if", ["train.seq_len"])


@pytest.mark.slow
def test_recurrent_layers_are_an_assumption(run: Run) -> None:
    program = STEP.replace("torch.nn.Linear(64, 64)", "torch.nn.LSTM(64, 64)").replace(
        'net(torch.zeros(8, 64, device="cuda")).sum()', 'net(torch.zeros(8, 2, 64, device="cuda"))[0].sum()'
    )
    data = run(program + "step(); step()", "--gpu", "RTX 4090").data
    assert "model.architecture" in [one["field"] for one in data["assumptions"]]


# --- what is kept ----------------------------------------------------------------------------------------------------


def preflight(folder: Path, cache: Path, *words: str) -> Ran:
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
    variables = {**os.environ, "PREFLIGHT_CACHE_DIR": str(cache), "PATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "preflight", *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_unknown_names_the_command_and_the_command_answers(tmp_path: Path) -> None:
    folder, cache = tmp_path / "work", tmp_path / "cache"
    folder.mkdir()
    (folder / "net.py").write_text("from torch import nn\n\n\ndef make():\n    return nn.Linear(100, 10).cuda()\n")
    own = TRAINS.replace("nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 10)).cuda()", "make()")
    (folder / "train.py").write_text("from net import make\n" + own)
    (folder / "run.sh").write_text("python train.py\n")
    before = preflight(folder, cache, "check", "run.sh", "--gpu", "RTX 4090")
    command = before.out.partition("tells what it needs:\n  preflight ")[2].partition("\n")[0].split()
    assert command == ["dry-run", "--save", "--", "python", "train.py"]
    ran = preflight(folder, cache, *command)
    assert ran.status == 0, ran.err
    after = preflight(folder, cache, "check", "run.sh", "--gpu", "RTX 4090")
    assert "unknown" not in after.out.splitlines()[0]
    assert "GiB: fits" in after.out
    assert sorted(path.name for path in folder.iterdir()) == ["net.py", "run.sh", "train.py"]
    (folder / "net.py").write_text((folder / "net.py").read_text() + "# changed\n")
    changed = preflight(folder, cache, "check", "run.sh", "--gpu", "RTX 4090")
    assert "unknown" in changed.out.splitlines()[0]
    assert "net.py has changed since" in " ".join(changed.out.split())


@pytest.mark.slow
def test_the_corners_of_a_sweep(tmp_path: Path) -> None:
    folder, cache = tmp_path / "work", tmp_path / "cache"
    folder.mkdir()
    program = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--bs', type=int)\na = p.parse_args()\n"
    (folder / "train.py").write_text(program + TRAINS.replace("batch_size=64", "batch_size=a.bs"))
    sweep = 'program: train.py\nmethod: grid\ncommand: ["python", "${program}", "${args}"]\n'
    sweep += "parameters:\n  bs: {values: [256, 512, 1000]}\n"
    (folder / "sweep.yaml").write_text(sweep)
    found = preflight(folder, cache, "dry-run", "--output-format", "json", "sweep.yaml")
    assert found.status == 0, found.err
    runs = found.data["runs"]
    assert [one["command"][-1] for one in runs] == ["--bs=1000", "--bs=256"]
    needs = [one["estimate"]["device"]["requested"]["expected"] for one in runs]
    assert needs[0] > needs[1]
    assert found.data["note"].startswith("2 of 3 combinations are run")
    assert not cache.exists()


OPTUNA = """
import optuna

def objective(trial):
    width, kind = trial.suggest_int("width", 100, 4000), trial.suggest_categorical("kind", ["SGD", "Adam"])
    net = torch.nn.Linear(100, width).cuda()
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=trial.suggest_float("lr", 1e-5, 1.0, log=True))
    for _ in range(9):
        optimizer.zero_grad()
        net(torch.zeros(8, 100, device="cuda")).sum().backward()
        optimizer.step()
    return 0.0

optuna.create_study().optimize(objective, n_trials=9)
"""
ASKS = "import wandb\nwandb.init(config={'width': 1})\n" + TRAINS.replace("400", "wandb.config.width")
ASKED_SWEEP = "program: train.py\nmethod: grid\ncommand: [python, '${program}']\n"


@pytest.mark.slow
def test_the_corners_of_a_search_that_the_program_asks_itself(tmp_path: Path) -> None:
    folder, cache = tmp_path / "work", tmp_path / "cache"
    folder.mkdir()
    pytest.importorskip("optuna")
    (folder / "study.py").write_text("import torch\n" + OPTUNA)
    found = preflight(folder, cache, "dry-run", "--save", "--output-format", "json", "study.py")
    assert found.status == 0, found.err
    runs = found.data["runs"]
    kinds = [(one["searched"]["kind"], one["searched"]["width"]) for one in runs]
    assert kinds == [("SGD", 4000), ("SGD", 100), ("Adam", 4000), ("Adam", 100)]
    needs = [one["estimate"]["device"]["requested"]["expected"] for one in runs]
    # Adam has two states, and a copy of the weights during its step
    assert needs[2] - needs[0] == pytest.approx(3 * 4 * 101 * 4000, rel=0.01)
    assert needs[0] > 20 * needs[1]
    assert found.data["note"].startswith("4 of 7,802 combinations")
    assert not list(cache.rglob("*.json")), "the command alone does not say these values"


@pytest.mark.slow
def test_the_corners_of_a_sweep_whose_program_asks_it(tmp_path: Path) -> None:
    folder, cache = tmp_path / "work", tmp_path / "cache"
    folder.mkdir()
    (folder / "train.py").write_text(ASKS)
    (folder / "sweep.yaml").write_text(ASKED_SWEEP + "parameters:\n  width: {values: [40, 400]}\n")
    found = preflight(folder, cache, "dry-run", "--output-format", "json", "sweep.yaml")
    assert found.status == 0, found.err
    needs = {one["searched"]["width"]: one["estimate"]["device"]["requested"]["expected"] for one in found.data["runs"]}
    assert needs[400] > 4 * needs[40]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--save", "train.py", "--", "python", "train.py"), "--save: train.py does not end with .json"),
        (("--save=x.json", "sweep.yaml"), "--save: a study has several runs"),
        (("other.yaml",), "nothing to estimate"),
    ],
)
def test_what_cannot_be_run_is_one_line(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    (tmp_path / "train.py").write_text("import wandb\nwandb.init()\n" + TRAINS)
    sweep = "program: train.py\nmethod: grid\nparameters:\n  bs: {values: [8]}\n"
    (tmp_path / "sweep.yaml").write_text(sweep)
    (tmp_path / "other.yaml").write_text("a: 1\n")
    found = dry_run(tmp_path, *words)
    assert found.status == 2
    assert found.out == ""
    assert why in found.error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.yaml", "sweep.yaml", "train.py"]


GENERATES = """\
unfinished, tokens = torch.ones(2, dtype=torch.long, device="cuda"), torch.zeros(2, 1, dtype=torch.long, device="cuda")
while True:
    logits = net(torch.randn(2, 1 << 16, device="cuda")[:, :64]) * torch.randn(1 << 17, device="cuda")[:64]
    tokens = torch.cat([tokens, logits.argmax(-1)[:, None]], dim=1)
    done = torch.full((2,), tokens.shape[1] >= 5, device="cuda") | torch.isin(tokens[:, -1], tokens.new_tensor([3]))
    unfinished = unfinished & ~done
    if unfinished.max() == 0:
        break
assert tokens.shape == (2, 5)
step(); step()
"""


@pytest.mark.slow
def test_what_one_operand_decides_is_known(run: Run) -> None:
    """A loop that generates ends at its length, though nobody knows whether an end was drawn before."""
    found = run(STEP + GENERATES)
    assert found.status == 0, found.err
    assert found.data["dry_run"]["steps"] == [2]


VIEWS = """\
data = torch.arange(24, device="cuda").view(4, 6)
assert data[1:3, 2].tolist() == [8, 14] and data.t()[0].tolist() == [0, 6, 12, 18]
assert data[None].expand(2, 4, 6).transpose(0, 1).permute(2, 0, 1)[3, 2].tolist() == [15, 15]
data[0][:2] = 7
assert data[0].tolist() == [7, 7, 2, 3, 4, 5] and data.data_ptr() == data[1:].data_ptr()
before = torch.cuda.memory_allocated()
kept = [data[i : i + 1] for i in range(4)]
assert torch.cuda.memory_allocated() == before
w = torch.zeros(8, 8, device="cuda", requires_grad=True)
(w[2:4].sum() + w.t()[1].sum()).backward()
assert w.grad.shape == (8, 8)
step(); step()
"""


@pytest.mark.slow
def test_views_share_their_storage_and_values(run: Run) -> None:
    found = run(STEP + VIEWS)
    assert found.status == 0, found.err


CHOSEN = """\
import torch
torch.cuda.set_device(FIRST)
a = torch.nn.Linear(256, 1024).cuda()
torch.cuda.set_device(1)
b = torch.nn.Linear(1024, 4096, device="cuda")
optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()])
for _ in range(2):
    b(a(torch.zeros(8, 256, device="cuda:FIRST")).to("cuda")).sum().backward()
    optimizer.step()
assert torch.cuda.current_device() == 1 and torch.zeros(1).cuda().device == torch.device("cuda:1")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("first", "weights"), [(0, 4 * (1024 * 4096 + 4096)), (1, 4 * (257 * 1024 + 1025 * 4096))])
def test_the_gpu_that_was_chosen_last_is_the_current_one(run: Run, first: int, weights: int) -> None:
    """The model lies on both GPUs, or as a whole on the second, which its batches name."""
    found = run(CHOSEN.replace("FIRST", str(first)), "--gpus", "2")
    assert found.status == 0, found.err
    lines = found.data["dry_run"]["lines"]
    assert sum(one["bytes"] for one in lines if one["part"] == "weights") == weights


@pytest.mark.slow
def test_a_model_on_two_gpus(run: Run) -> None:
    """The second part is sixteen times the first: its GPU is judged."""
    program = (
        "import torch\nfrom torch import nn\n"
        "a, b = nn.Linear(256, 1024).to('cuda:0'), nn.Linear(1024, 4096).cuda(1)\n"
        "optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()])\n"
        "for _ in range(2):\n"
        "    b(a(torch.randn(8, 256).cuda()).to('cuda:1')).sum().backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    found = run(program, "--gpu", "RTX 4090")
    assert found.status == 0, found.err
    weights = next(one for one in found.data["dry_run"]["lines"] if one["part"] == "weights")
    assert weights["bytes"] == 4 * (1024 * 4096 + 4096)
    assert found.data["dry_run"]["assumptions"] == [
        "the program uses GPUs 0, 1: GPU 1, which takes the most, was judged"
    ]  # fmt: skip
