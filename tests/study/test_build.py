"""Files to studies: links followed both ways, bindings ranked, every launch reported once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hydra_program import HYDRA, write

from preflight.space.jobs import JobMaker
from preflight.study.assemble import assemble
from preflight.study.build import build
from preflight.study.follow import Chain
from preflight.vocabulary.errors import PreflightError
from preflight.vocabulary.project import Project
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.study import Skipped, Source, Study
from preflight.vocabulary.values import Origin, Unknown, Value, evaluate

PROGRAM = """\
import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.AdamW(model.parameters())
for x in DataLoader(data, batch_size=args.batch_size, num_workers=args.workers, prefetch_factor=4):
    model(x).sum().backward()
    opt.step()
    opt.zero_grad()
"""
SWEEP = """\
program: train.py
method: grid
command: [python, "${program}", "${args}", --workers=2]
parameters:
  batch_size:
    values: [8, 16]
  workers:
    value: 16
  learning_rate:
    min: 0.001
    max: 0.1
"""
CONF = {
    "conf/config.yaml": "defaults:\n  - data: small\n  - _self_\nseed: 1\n",
    "conf/data/small.yaml": "batch_size: 16\nworkers: 4\n",
    "conf/data/large.yaml": "batch_size: 256\nworkers: ${data.batch_size}\n",
}


def read(
    files: Mapping[str, str], root: Path, *given: str, settings: Settings | None = None, **overrides: Value
) -> tuple[tuple[Study, ...], tuple[Skipped, ...]]:
    write(files, root)
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return build(given or (next(iter(files)),), Project(root, settings or Settings()), named)


def worth(study: Study, field: str) -> Value:
    return evaluate(study.boxes[0].fields[field].expr)


def place(origin: Origin | None, root: Path) -> tuple[str, str] | None:
    if origin is None:
        return None
    return origin.path, (root / origin.path).read_text()[origin.span.start : origin.span.end]


def test_nothing_recognised(tmp_path: Path) -> None:
    studies, skipped = read(
        {"a.yaml": "a: 1\n", "b.txt": "x", "c.py": "print(1)\n"}, tmp_path, "a.yaml", "b.txt", "c.py"
    )
    assert studies == ()
    assert [(one.path, one.kind) for one in skipped] == [(p, "unrecognised") for p in ("a.yaml", "b.txt", "c.py")]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\0\1")
    _, skipped = read(
        {"broken.py": "import torch\nif __name__ == '__main__'\n loss.backward(\n"}, tmp_path, "binary.py", "no.py"
    )
    assert {one.path: one.kind for one in skipped} == {"binary.py": "unreadable", "no.py": "unreadable"}
    _, skipped = build(["broken.py"], Project(tmp_path, Settings()))
    assert [(one.kind, [p.rule for p in one.problems]) for one in skipped] == [("malformed", ["invalid-config"])]


def test_a_program_that_nobody_launches_has_its_defaults(tmp_path: Path) -> None:
    (study,), skipped = read({"train.py": PROGRAM}, tmp_path)
    assert skipped == ()
    assert (worth(study, "train.batch_size"), worth(study, "data.workers")) == (32, 4)
    assert study.program == "train.py"
    assert not study.is_search
    assert place(study.boxes[0].fields["train.batch_size"].origin, tmp_path) == ("train.py", "32")


def test_a_sweep_and_its_program_are_one_study(tmp_path: Path) -> None:
    files = {"sweep.yaml": SWEEP, "train.py": PROGRAM}
    (study,), _ = read(files, tmp_path, "sweep.yaml", "train.py")
    assert study.paths == ("sweep.yaml", "train.py")
    assert study.dialects == ("wandb", "program")
    assert study.combinations == 2
    assert study.is_search
    assert {axis.name: axis.fields for axis in study.boxes[0].axes} == {
        "batch_size": ("train.batch_size",),
        "learning_rate": (),
    }
    (alone,), _ = read(files, tmp_path, "train.py")
    assert alone.paths == study.paths


def test_a_literal_behind_the_arguments_beats_the_sweep(tmp_path: Path) -> None:
    (study,), _ = read({"sweep.yaml": SWEEP, "train.py": PROGRAM}, tmp_path)
    assert worth(study, "data.workers") == 2
    assert place(study.boxes[0].fields["data.workers"].origin, tmp_path) == ("sweep.yaml", "2")


def test_a_literal_in_a_call_beats_everything(tmp_path: Path) -> None:
    (study,), _ = read({"sweep.yaml": SWEEP + "  prefetch_factor:\n    value: 2\n", "train.py": PROGRAM}, tmp_path)
    bound = study.boxes[0].fields["data.prefetch"]
    assert evaluate(bound.expr) == 4
    assert [place(loser, tmp_path) for loser in bound.losers] == [("sweep.yaml", "2")]


def test_a_sweep_whose_program_is_not_there_is_read_by_names(tmp_path: Path) -> None:
    (study,), _ = read({"sweep.yaml": SWEEP}, tmp_path)
    assert study.program is None
    assert {axis.name: axis.fields for axis in study.boxes[0].axes}["batch_size"] == ("train.batch_size",)


def test_every_launch_of_a_script_is_a_study(tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\npython train.py --batch_size 8\n"
        "python train.py --batch_size 16 &\npython train.py --batch_size 24 &\nwait\n"
    )
    studies, _ = read({"run.sh": script, "train.py": PROGRAM}, tmp_path)
    assert [worth(study, "train.batch_size") for study in studies] == [8, 16, 24]
    assert [study.concurrent_with for study in studies] == [(), (2,), (1,)]


def test_a_script_and_what_it_starts_are_reported_once(tmp_path: Path) -> None:
    files = {"run.sh": "python train.py --batch_size 8\n", "train.py": PROGRAM}
    for given in (("run.sh", "train.py"), ("train.py", "run.sh"), ("train.py",), ("run.sh",)):
        studies, _ = read(files, tmp_path, *given)
        assert [study.paths for study in studies] == [("run.sh", "train.py")]


def test_two_sweeps_of_one_program(tmp_path: Path) -> None:
    files = {"a.yaml": SWEEP, "b.yaml": SWEEP.replace("[8, 16]", "[32]"), "train.py": PROGRAM}
    studies, _ = read(files, tmp_path, "train.py")
    assert sorted(study.paths for study in studies) == [("a.yaml", "train.py"), ("b.yaml", "train.py")]
    studies, _ = read(files, tmp_path, "b.yaml")
    assert [study.paths for study in studies] == [("b.yaml", "train.py")]


def test_roots_of_the_settings_are_searched(tmp_path: Path) -> None:
    files = {"train.py": PROGRAM, "deep/in/here/s.yaml": SWEEP}
    (alone,), _ = read(files, tmp_path)
    assert alone.paths == ("train.py",)
    (found,), _ = read(files, tmp_path, settings=Settings(roots=["deep/in/here/*.yaml"]))
    assert found.paths == ("deep/in/here/s.yaml", "train.py")


def test_hydra_overrides_of_a_script(tmp_path: Path) -> None:
    directives = "#SBATCH --nodes=2 --gres=gpu:4 --ntasks-per-node=4 --mem=64G"
    script = f"#!/bin/bash\n{directives}\nsrun python train.py data.workers=8\n"
    (study,), _ = read({"run.sbatch": script, "train.py": HYDRA, **CONF}, tmp_path)
    values = {
        name: worth(study, name)
        for name in ("train.batch_size", "data.workers", "parallel.nodes", "parallel.ranks_per_node",
                     "parallel.gpus_per_node", "machine.memory_limit")
    }  # fmt: skip
    assert values == {
        "train.batch_size": 16, "data.workers": 8, "parallel.nodes": 2, "parallel.ranks_per_node": 4,
        "parallel.gpus_per_node": 4, "machine.memory_limit": 64 * 2**30,
    }  # fmt: skip
    assert place(study.boxes[0].fields["train.batch_size"].origin, tmp_path) == ("conf/data/small.yaml", "16")
    assert place(study.boxes[0].fields["data.workers"].origin, tmp_path) == ("run.sbatch", "8")


@pytest.mark.parametrize("given", ["conf/data/small.yaml", "conf/config.yaml", "train.py"])
def test_a_part_of_a_configuration_finds_its_launch(given: str, tmp_path: Path) -> None:
    files = {"run.sh": "python train.py data.workers=8\n", "train.py": HYDRA, **CONF}
    studies, _ = read(files, tmp_path, given)
    assert [study.paths[0] for study in studies] == ["run.sh"]
    assert worth(studies[0], "data.workers") == 8


def test_an_option_that_no_launch_chooses_is_read_with_its_program(tmp_path: Path) -> None:
    (study,), _ = read({"train.py": HYDRA, **CONF}, tmp_path, "conf/data/large.yaml")
    assert worth(study, "train.batch_size") == 256
    assert "train.py" in study.paths


def test_a_swept_group_is_an_axis(tmp_path: Path) -> None:
    files = {"run.sh": "python train.py -m data=small,large seed=1,2,3\n", "train.py": HYDRA, **CONF}
    (study,), _ = read(files, tmp_path)
    assert study.combinations == 2
    assert len(study.boxes) == 1
    maker = JobMaker(study.boxes[0])
    assert [maker.at({"data": name, "seed": 1}).job.train.batch_size for name in ("small", "large")] == [16, 256]


def test_a_sweep_over_a_hydra_program(tmp_path: Path) -> None:
    sweep = SWEEP.replace('"${args}", --workers=2', '"${args_no_hyphens}"').replace("batch_size:", "data.batch_size:")
    sweep = sweep.replace("  workers:\n    value: 16\n", "")
    (study,), _ = read({"sweep.yaml": sweep, "train.py": HYDRA, **CONF}, tmp_path)
    assert study.combinations == 2
    assert JobMaker(study.boxes[0]).at({"data.batch_size": 8}).job.train.batch_size == 8


def test_what_the_user_says_wins(tmp_path: Path) -> None:
    files = {"sweep.yaml": SWEEP.replace("learning_rate", "gizmo"), "train.py": PROGRAM}
    said = Settings(map={"gizmo": "train.peft.dropout"}, set={"data.sample_bytes": "1MiB", "data.workers": 1})
    (study,), _ = read(files, tmp_path, settings=said, data__workers=7)
    fields = study.boxes[0].fields
    assert worth(study, "data.workers") == 7
    assert fields["data.workers"].source is Source.command_line
    assert JobMaker(study.boxes[0]).at({}).job.data.sample_bytes == 2**20
    assert {axis.name for axis in study.boxes[0].memory_axes} == {"batch_size", "gizmo"}


def test_impossible_values_are_problems_and_unknown(tmp_path: Path) -> None:
    (study,), _ = read({"train.py": PROGRAM.replace("default=32", "default=0")}, tmp_path)
    assert [(p.rule, place(p.origin, tmp_path)) for p in study.problems] == [("invalid-config", ("train.py", "0"))]
    made = JobMaker(study.boxes[0]).at({})
    assert made.job.train.batch_size is None
    assert "train.batch_size" in made.unknown


def test_values_nobody_can_know_are_unknown(tmp_path: Path) -> None:
    (study,), _ = read({"run.sh": 'python train.py --batch_size "$B"\n', "train.py": PROGRAM}, tmp_path)
    assert isinstance(worth(study, "train.batch_size"), Unknown)
    assert set(JobMaker(study.boxes[0]).at({}).unknown) == {"train.batch_size"}


def test_scripts_that_start_each_other_come_to_an_end(tmp_path: Path) -> None:
    files = {
        "a.sh": "bash b.sh\npython train.py\n",
        "b.sh": "bash a.sh\npython train.py --batch_size 8\n",
        "train.py": PROGRAM,
    }
    studies, _ = read(files, tmp_path, "a.sh")
    assert sorted(str(worth(study, "train.batch_size")) for study in studies) == ["32", "8"]


def test_defaults_stand_behind_everything(tmp_path: Path) -> None:
    (study,), _ = read({"train.py": PROGRAM}, tmp_path)
    bound = study.boxes[0].fields["train.compile"]
    assert bound.default
    assert bound.origin is None
    assert bound.source is Source.preflight
    assert "train.seq_len" not in study.boxes[0].fields


def test_a_module_finds_the_program_that_imports_it(tmp_path: Path) -> None:
    program = PROGRAM.replace("import torch\n", "import torch\nfrom model import Net\n", 1)
    files = {"train.py": program.replace("torch.nn.Linear(8, 8)", "Net()"), "model.py": "class Net:\n    pass\n"}
    (study,), skipped = read({**files, "sweep.yaml": SWEEP}, tmp_path, "model.py")
    assert study.paths == ("sweep.yaml", "train.py", "model.py")
    assert skipped == ()
    (tmp_path / "other.py").write_text("class Other:\n    pass\n")
    studies, skipped = build(["other.py"], Project(tmp_path, Settings()))
    assert studies == ()
    assert [one.kind for one in skipped] == ["unrecognised"]


@pytest.mark.parametrize(
    ("settings", "overrides", "message"),
    [
        (Settings(map={"x": "train.batch"}), {}, r"map\] x: there is no Job field train.batch .did you mean"),
        (Settings(set={"train.batch_size": 0}), {}, r"set\]: train.batch_size is 0: it must be a whole number"),
        (Settings(), {"train.nope": 1}, "--set: there is no Job field train.nope"),
        (Settings(), {"train.precision": "fp12"}, "--set: train.precision is 'fp12': it must be one of fp32"),
    ],
)
def test_settings_that_cannot_be(settings: Settings, overrides: dict[str, Value], message: str, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=message):
        build([], Project(tmp_path, settings), overrides)


def test_a_named_model_takes_no_dimension_by_its_name_alone(tmp_path: Path) -> None:
    sweep = "program: train.py\nmethod: grid\nparameters:\n  hidden_size:\n    values: [64, 128]\n"
    program = "from transformers import AutoModel\nimport torch\n\nmodel = AutoModel.from_pretrained('gpt2').cuda()\n"
    loop = "opt = torch.optim.AdamW(model.parameters())\nfor x in data:\n    model(x).loss.backward()\n    opt.step()\n"
    (study,), _ = read({"sweep.yaml": sweep, "train.py": program + loop}, tmp_path)
    assert worth(study, "model.name") == "gpt2"
    assert not [name for name in study.boxes[0].fields if name.startswith("model.config")]
    assert study.combinations == 1


def test_a_bug_in_one_study_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from preflight.study import build as module

    def failing(chain: Chain, project: Project, overrides: Mapping[str, Value]) -> Study:
        if chain[0].reading.path == "a.sh":
            raise ZeroDivisionError("oh")
        return assemble(chain, project, overrides)

    monkeypatch.setattr(module, "assemble", failing)
    files = {"a.sh": "python train.py\n", "b.sh": "python train.py\n", "train.py": PROGRAM}
    studies, skipped = read(files, tmp_path, "a.sh", "b.sh")
    assert [study.paths[0] for study in studies] == ["b.sh"]
    assert [(one.path, one.kind) for one in skipped] == [("a.sh", "crashed")]


def test_a_bug_in_the_reading_of_a_program_is_told_of_the_script_that_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from preflight.frameworks import calls

    def failing(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(calls, "length_bindings", failing)
    studies, skipped = read({"a.sh": "python train.py\n", "train.py": PROGRAM}, tmp_path, "a.sh")
    assert not studies
    assert [(one.path, one.kind) for one in skipped] == [("a.sh", "no-training"), ("train.py", "crashed")]


def test_a_program_that_is_no_python_is_told_of_the_script_that_starts_it(tmp_path: Path) -> None:
    _, skipped = read({"a.sh": "python train.py\n", "train.py": f"{PROGRAM}x = = 3\n"}, tmp_path, "a.sh")
    assert [(one.path, one.kind) for one in skipped] == [("a.sh", "no-training"), ("train.py", "malformed")]


OWN_LOADER = """\
import argparse
import torch
from trainers import loader_of

parser = argparse.ArgumentParser()
parser.add_argument("--micro_train_batch_size", type=int, default=4)
parser.add_argument("--train_batch_size", type=int, default=128)
parser.add_argument("--optimizer", default="muon")
args = parser.parse_args()
for x in loader_of(args):
    model(x).sum().backward()
"""


def test_the_batch_of_a_device_is_not_that_of_all(tmp_path: Path) -> None:
    (study,), _ = read({"train.py": OWN_LOADER}, tmp_path, "train.py")
    assert evaluate(study.boxes[0].fields["train.batch_size"].expr) == 4


def test_an_optimizer_that_is_not_known_is_not_the_default(tmp_path: Path) -> None:
    (study,), _ = read({"train.py": OWN_LOADER}, tmp_path, "train.py")
    assert isinstance(evaluate(study.boxes[0].fields["train.optimizer"].expr), Unknown)


OF_TWO_PARTS = """\
import argparse
import torch, transformers

parser = argparse.ArgumentParser()
parser.add_argument("--model_name", default="bert-base-uncased")
args = parser.parse_args()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = transformers.AutoModel.from_pretrained(args.model_name)
        self.decoder = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(768, 8), 12)

model = Net()
opt = torch.optim.AdamW(model.parameters())
for x in torch.utils.data.DataLoader(data, batch_size=8, shuffle=True):
    model(x).sum().backward()
"""


def test_the_name_of_a_setting_does_not_make_a_part_the_model(tmp_path: Path) -> None:
    (study,), _ = read({"train.py": OF_TWO_PARTS}, tmp_path, "train.py")
    assert isinstance(evaluate(study.boxes[0].fields["model.name"].expr), Unknown)
