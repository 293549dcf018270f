"""A program run dry from the command line: figures, places, and that nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from programs import PARAMETERS, STEP, TRAINS, Ran, dry_run

pytest.importorskip("torch")

Run = Callable[..., Ran]


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
def test_loops_without_a_loader_end(run: Run, loop: str, steps: list[int], accumulation: int | None) -> None:
    data = run(STEP + loop).data
    assert data["dry_run"]["steps"] == steps
    if accumulation is not None:
        assert data["job"]["train"]["grad_accum"] == accumulation


def test_accumulation_is_seen(run: Run) -> None:
    program = STEP.replace("    optimizer.step()\n", "") + (
        "for i in range(1000):\n    step()\n    if i % 4 == 3: optimizer.step()\n"
    )
    data = run(program.replace("    optimizer.zero_grad()\n", "")).data
    assert data["job"]["train"]["grad_accum"] == 4


def test_updates_written_by_hand_end(run: Run) -> None:
    program = STEP.replace("    optimizer.step()\n", "").replace("    optimizer.zero_grad()\n", "") + (
        "while True:\n    step()\n    for p in net.parameters():\n        p.data.add_(p.grad, alpha=-0.1)\n"
    )
    data = run(program).data
    assert data["dry_run"]["end"] == "finished"
    assert data["job"]["train"]["optimizer"] == "other"


def test_an_optimizer_that_steps_others_counts_once(run: Run) -> None:
    program = STEP + (
        "class Both(torch.optim.Optimizer):\n"
        "    def __init__(self):\n        super().__init__(net.parameters(), {})\n"
        "    def step(self, closure=None):\n        optimizer.step()\n        optimizer.step()\n"
        "both = Both()\n"
        "for _ in range(1000):\n    net(torch.zeros(8, 64, device='cuda')).sum().backward()\n    both.step()\n"
    )
    assert run(program).data["dry_run"]["steps"] == [8]


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


def test_spawned_ranks_run_as_one(run: Run) -> None:
    body = "".join(f"    {line}\n" for line in TRAINS.splitlines()[4:])
    program = f"{TRAINS.partition('net =')[0]}def main(rank, more):\n{body}" + (
        "if __name__ == '__main__':\n    import torch.multiprocessing as mp\n    mp.spawn(main, nprocs=2, args=(1,))\n"
    )
    assert run(program).data["dry_run"]["steps"] == [2]


def test_an_environment_that_drops_the_path_changes_nothing(run: Run) -> None:
    """The hook is the program that is started, and no variable."""
    assert run(TRAINS, words=("env", "PYTHONPATH=..", "python")).data["dry_run"]["end"] == "finished"


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


def test_a_validation_that_was_not_seen_is_an_assumption(run: Run) -> None:
    data = run(STEP + "while True: step()", "--gpu", "RTX 4090").data
    assert data["verdict"] == "fits-if"
    assert [one["field"] for one in data["assumptions"]] == ["validation.batch_size"]


def test_the_text(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(TRAINS)
    found = dry_run(tmp_path / "work", "--gpu", "RTX 4090", "--", "python", "train.py")
    assert found.status == 0, found.err
    for words in ("dry run of train.py, 2 optimizer steps", "process", "what nvidia-smi shows", "train.py:5", "fits"):
        assert words in found.out


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
