"""Which Python files are programs that train, and what one of them says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from programs_as_text import facts, read_program, values

from preflight.dialects.program import followed
from preflight.dialects.program import reader as program
from preflight.dialects.program.reader import _EVALUATED
from preflight.study.build import build
from preflight.vocabulary.project import Project
from preflight.vocabulary.python_grammar import parse_module
from preflight.vocabulary.reading import Call, Launch, Word
from preflight.vocabulary.settings import Settings
from preflight.vocabulary.text import DocumentError, Source
from preflight.vocabulary.values import Choices, Const, Range, evaluate

LOOP = """
import torch
model = torch.nn.Linear(2, 2)
for batch in data:
    model(batch).sum().backward()
"""

SILENT = {
    "a module of layers": "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n",
    "a module with a training function": "import torch\ndef train(model, x):\n    model(x).backward()\n",
    "inference": "import torch\nif __name__ == '__main__':\n    print(torch.load('m')(1))\n",
    "scikit-learn": "from sklearn.svm import SVC\nif __name__ == '__main__':\n    SVC().fit([[0]], [0])\n",
    "no library": "if __name__ == '__main__':\n    print('loss.backward()')\n",
    "an Optuna study": LOOP + "\ndef objective(trial):\n    return trial.suggest_int('a', 1, 2)\n",
    "a mode that is kept": "import torch\ndef step(x):\n    x.backward()\nnet = Net()\nmodel = net.train()\n",
    "a mode by a constant": "import torch\ndef step(x):\n    x.backward()\nmodel = Net().train(False)\n",
    "what a helper gives": (
        "import torch\ndef name():\n    return torch.device('cuda')\ndef train(x):\n    x.backward()\nDEVICE = name()\n"
    ),
    "empty": "",
    "a Trainer that predicts alone": "from transformers import Trainer\nt = Trainer(model)\nprint(t.predict(data))\n",
    "Lightning's test": "import lightning as L\nif __name__ == '__main__':\n    L.Trainer().test(m)\n",
    "a test": "import torch\ndef test_it():\n    torch.ones(1, requires_grad=True).backward()\n",
}


def recognised(text: str, root: Path, name: str = "train.py") -> bool:
    (root / name).write_text(text)
    project = Project(root, Settings())
    return program.recognises(project.source(name), project)


@pytest.mark.parametrize("what", SILENT)
def test_what_is_left_alone(what: str, tmp_path: Path) -> None:
    assert not recognised(SILENT[what], tmp_path)


SEEN = {
    "a loop at the top": LOOP,
    "a main": "import torch\ndef main():\n    loss.backward()\nif __name__ == '__main__':\n    main()\n",
    "a Trainer": "from transformers import Trainer\nTrainer(model, args).train()\n",
    "Ultralytics": "from ultralytics import YOLO\nYOLO('yolov8n.pt').train(batch=4)\n",
    "a result of Ultralytics": (
        "from ultralytics import YOLO\nmodel = YOLO('yolov8n.pt')\nargs = {'batch': 4}\nresults = model.train(**args)\n"
    ),
    "a result of a Trainer": "from transformers import Trainer\na = Trainer(model, args)\nout = a.trainer.train()\n",
    "a result with its type": "from transformers import Trainer\nout: Output = Trainer(model, args).train()\n",
    "a result of a function": "import torch\ndef work(x):\n    x.backward()\n    return x\nlosses = work(data)\n",
    "a Trainer that evaluates, too": "from transformers import Trainer\nt = Trainer(m)\nt.train()\nt.evaluate()\n",
    "Lightning": "import lightning as L\nif __name__ == '__main__':\n    L.Trainer().fit(m)\n",
    "sentence-transformers": (
        "from sentence_transformers import SentenceTransformer\nmodel = SentenceTransformer('a')\n"
        "model.fit(train_objectives=[(loader, loss)])\n"
    ),
    "hydra": "import hydra, torch\n@hydra.main('conf')\ndef main(cfg):\n    x.backward()\nmain()\n",
}


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("search = tune.Tuner(work)\nresults = search.fit()", True),
        ("tune.run(work)", True),
        ("ray.get([work.remote()])", True),
        ("tuner = None", False),
    ],
)
def test_what_starts_the_training_of_another_module(line: str, starts: bool, tmp_path: Path) -> None:
    """By what it calls, whatever its variables are called."""
    (tmp_path / "work.py").write_text("import torch\ndef work():\n    loss.backward()\n")
    assert recognised(f"import ray\nfrom ray import tune\nfrom work import work\n{line}\n", tmp_path) is starts


@pytest.mark.parametrize("what", SEEN)
def test_programs_that_train(what: str, tmp_path: Path) -> None:
    assert recognised(SEEN[what], tmp_path)


def test_a_trainer_that_an_imported_module_may_train(tmp_path: Path) -> None:
    """What evaluates it here is no sign that nothing trains."""
    text = "from transformers import Trainer\nfrom work import work\nt = Trainer(model)\nwork(t)\nt.evaluate()\n"
    (tmp_path / "work.py").write_text("def work(trainer):\n    trainer.train()\n")
    assert recognised(text, tmp_path)
    (tmp_path / "work.py").write_text("def work(trainer):\n    print(trainer)\n")
    assert not recognised(text, tmp_path)


def test_tests_are_no_programs(tmp_path: Path) -> None:
    assert not recognised(LOOP, tmp_path, "test_model.py")


def test_training_in_a_module_that_the_script_imports(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("import torch\ndef train(loss):\n    loss.backward()\n")
    assert recognised("from engine import train\nif __name__ == '__main__':\n    train()\n", tmp_path)


@pytest.mark.parametrize(
    ("line", "starts"), [("main()", True), ("helper.configure()", False), ("configure()", False), ("x = main()", True)]
)
def test_a_call_of_the_scripts_own_function_starts_an_imported_training(
    line: str, starts: bool, tmp_path: Path
) -> None:
    (tmp_path / "engine.py").write_text("import torch\ndef train(loss):\n    loss.backward()\n")
    text = f"import helper\nfrom engine import train\nfrom log import configure\ndef main():\n    train()\n{line}\n"
    assert recognised(text, tmp_path) is starts


FITS = "import hydra\ndef train(cfg):\n    trainer = hydra.utils.instantiate(cfg.trainer)\n    trainer.fit(cfg.model)\n"


@pytest.mark.parametrize(("decorator", "trains"), [("@hydra.main('conf')\n", True), ("", False)])
def test_a_composed_trainer_that_an_imported_module_fits(decorator: str, trains: bool, tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(FITS)
    main = f"import hydra\n{decorator}def main(cfg):\n    from engine import train\n    return train(cfg)\nmain()\n"
    assert recognised(f"{main}if __name__ == '__main__':\n    main()\n", tmp_path) is trains


def test_parameters_with_flags_and_defaults(tmp_path: Path) -> None:
    text = """
        import argparse, torch
        from torch.utils.data import DataLoader
        def main():
            p = argparse.ArgumentParser()
            p.add_argument("-b", "--batch-size", type=int, default=96)
            args = p.parse_args()
            for batch in DataLoader(data, batch_size=args.batch_size):
                model(batch).backward()
        if __name__ == "__main__":
            main()
    """
    reading = read_program(text, tmp_path)
    assert reading.trains
    (parameter,) = reading.parameters
    assert (parameter.name, parameter.flags, parameter.type) == ("batch_size", ("-b", "--batch-size"), "int")
    assert values(reading)["train.batch_size"] == 96
    assert facts(reading)["reads_config"] is True


def test_constants_of_the_top_level_count_where_no_call_says_more(tmp_path: Path) -> None:
    reading = read_program("BATCH_SIZE = 24\nNUM_EPOCHS = 3\n" + LOOP, tmp_path)
    assert values(reading)["train.batch_size"] == 24
    assert {b.rank for b in reading.bindings if b.field == "train.batch_size"} == {0}
    with_loader = "BATCH_SIZE = 24\nfrom torch.utils.data import DataLoader\nloader = DataLoader(x, 8)\n" + LOOP
    assert values(read_program(with_loader, tmp_path))["train.batch_size"] == 8


OOM = """
try:
    model(x).backward()
except {error}:
    {body}
"""


@pytest.mark.parametrize(
    ("error", "body", "handled"),
    [
        ("ValueError", "pass", False),
        ("RuntimeError", "raise", False),
        ("torch.cuda.OutOfMemoryError", "torch.cuda.empty_cache()", True),
        ("RuntimeError as e", "print('out of memory' in str(e))", True),
    ],
)
def test_running_out_of_memory_handled(error: str, body: str, handled: bool, tmp_path: Path) -> None:
    text = LOOP + OOM.replace("{error}", error).replace("{body}", body)
    assert facts(read_program(text, tmp_path)).get("handles_oom", False) is handled


# --- configurations ---------------------------------------------------------------------------------------------------

HYDRA = """
import hydra, torch
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    from torch.utils.data import DataLoader
    for batch in DataLoader(data, batch_size=cfg.data.batch_size, num_workers=cfg.data.workers):
        model(batch).backward()
if __name__ == "__main__":
    main()
"""


def test_a_hydra_program_links_to_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("data:\n  batch_size: 8\n  workers: 2\n")
    words = (Word("data.batch_size=", Const("32")),)
    reading = read_program(HYDRA, tmp_path, Call("run.sh", words))
    (link,) = reading.links
    assert (link.kind, link.target, link.words) == ("config", "conf/config.yaml", words)
    assert values(reading, {"data.batch_size": 8})["train.batch_size"] == 8


SPREAD = """
import hydra, torch
import pytorch_lightning as pl
from torch.utils.data import DataLoader
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    train_loader = DataLoader(train_data, **cfg.dataloader.params, shuffle=True)
    val_loader = DataLoader(val_data, **cfg.dataloader.params, shuffle=False)
    trainer = pl.Trainer(**cfg.trainer.params, callbacks=callbacks)
    trainer.fit(model, train_loader, val_loader)
if __name__ == "__main__":
    main()
"""


def test_a_part_of_the_configuration_as_arguments(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    config = (
        "dataloader:\n  params:\n    batch_size: 22\n    num_workers: 2\n    persistent_workers: true\n"
        "trainer:\n  params:\n    precision: 16-mixed\n    num_nodes: 4\n    devices: 4\n"
    )
    (tmp_path / "conf" / "config.yaml").write_text(config)
    (tmp_path / "train.py").write_text(SPREAD)
    (study,), _ = build(["train.py"], Project(tmp_path, Settings()))
    found = {name: evaluate(bound.expr) for name, bound in study.boxes[0].fields.items()}
    assert (found["train.batch_size"], found["validation.batch_size"]) == (22, 22)
    assert (found["data.workers"], found["data.validation_workers"]) == (2, 2)
    assert (found["data.persistent_workers"], found["data.pin_memory"]) == (True, False)
    assert (found["train.precision"], found["parallel.nodes"], found["train.grad_accum"]) == ("fp16-mixed", 4, 1)
    origin = study.boxes[0].fields["validation.batch_size"].origin
    assert origin is not None
    assert origin.path == "conf/config.yaml"


def test_another_configuration_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "big.yaml").write_text("data: {batch_size: 8}\n")
    reading = read_program(
        HYDRA, tmp_path, Call("run.sh", (Word("--config-name=", Const("big")), Word("a=", Const("1"))))
    )
    (link,) = reading.links
    assert (link.target, len(link.words)) == ("conf/big.yaml", 1)


def test_a_data_file_named_on_the_command_line(tmp_path: Path) -> None:
    text = """
        import argparse, torch, yaml
        from torch.utils.data import DataLoader
        p = argparse.ArgumentParser()
        p.add_argument("--config", default="small.yaml")
        args = p.parse_args()
        cfg = yaml.safe_load(open(args.config))
        for batch in DataLoader(data, batch_size=cfg["train"]["batch_size"]):
            model(batch).backward()
    """
    files = {"small__yaml": "train:\n  batch_size: 4\n", "large__yaml": "train:\n  batch_size: 64\n"}
    assert values(read_program(text, tmp_path, None, **files))["train.batch_size"] == 4
    call = Call("run.sh", (Word("--config"), Word("", Const("large.yaml"))))
    reading = read_program(text, tmp_path, call, **files)
    assert values(reading)["train.batch_size"] == 64
    assert "large.yaml" in reading.reads


SWEEP = """
import torch, wandb
from torch.utils.data import DataLoader
sweep = {
    "method": "random",
    "parameters": {
        "batch_size": {"values": [8, 16, 512]},
        "lr": {"min": 0.001, "max": 0.1},
        "workers": {"value": 4},
    },
}
def train():
    wandb.init()
    config = wandb.config
    for batch in DataLoader(data, batch_size=config.batch_size, num_workers=config.workers):
        model(batch).backward()
sweep_id = wandb.sweep(sweep, project="p")
wandb.agent(sweep_id, function=train)
"""


def test_a_sweep_made_in_python(tmp_path: Path) -> None:
    reading = read_program(SWEEP, tmp_path)
    axes = {axis.name: axis.domain for axis in reading.axes}
    batches, rates = axes["batch_size"], axes["lr"]
    assert isinstance(batches, Choices)
    assert batches.values == (8, 16, 512)
    origin = batches.origins[2]
    assert origin is not None
    assert (tmp_path / "train.py").read_text()[origin.span.start : origin.span.end] == "512"
    assert isinstance(rates, Range)
    assert values(reading, {"batch_size": 16})["data.workers"] == 4
    assert facts(reading)["search"] == "wandb"


def test_a_sweep_in_python_is_a_study(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SWEEP)
    (study,), skipped = build(["train.py"], Project(tmp_path, Settings()))
    assert not skipped
    assert [(axis.name, axis.fields) for axis in study.boxes[0].memory_axes] == [("batch_size", ("train.batch_size",))]
    assert study.combinations == 3


def test_several_processes_share_the_model_by_ddp(tmp_path: Path) -> None:
    text = """
        import os, torch
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = torch.nn.Linear(2, 2)
        if int(os.environ.get("RANK", -1)) != -1:
            model = DDP(model)
        model(x).sum().backward()
    """
    assert "parallel.strategy" not in values(read_program(text, tmp_path))
    call = Call("run.sh", (), {}, Launch("torchrun", ranks_per_node=Const(4)))
    assert values(read_program(text, tmp_path, call))["parallel.strategy"] == "ddp"


def test_what_accelerate_launch_puts_into_the_environment(tmp_path: Path) -> None:
    text = """
        import torch
        from accelerate import Accelerator
        accelerator = Accelerator()
        accelerator.backward(model(x).sum())
    """
    environment = {"ACCELERATE_MIXED_PRECISION": Const("bf16")}
    call = Call("run.sh", (), {}, Launch("accelerate", total_ranks=Const(2), environment=environment))
    found = values(read_program(text, tmp_path, call))
    assert (found["train.precision"], found["parallel.strategy"]) == ("bf16-mixed", "ddp")


# --- bad input --------------------------------------------------------------------------------------------------------


def test_broken_python_is_reported_at_its_place(tmp_path: Path) -> None:
    source = Source("train.py", "import torch\nloss.backward(\nx = = 3\n")
    with pytest.raises(DocumentError) as caught:
        program.read(source, None, Project(tmp_path, Settings()))
    assert source.line_column(caught.value.span.start)[0] >= 2


def test_nothing_of_the_program_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    text = f"""
        import os, torch
        os.system("touch {marker}")
        open({str(marker)!r}, "w").write("x")
        exec("open({str(marker)!r}, 'w')")
        __import__("pathlib").Path({str(marker)!r}).touch()
        model(x).backward()
    """
    read_program(text, tmp_path)
    assert not marker.exists()


HOSTILE = {
    "a deep expression": LOOP + "x = " + "(" * 150 + "1" + ")" * 150 + "\n",
    "a long sum": LOOP + "x = " + "+".join(["1"] * 60) + "\n",
    "a power": LOOP + "x = 9 ** 9 ** 9 ** 9\n",
    "recursion": LOOP + "def f(n):\n    return f(n + 1)\nf(0)\n",
    "an endless loop": LOOP + "while True:\n    y = [1]\n    y += y\n",
    "a large range": LOOP + "z = list(range(10 ** 12))\n",
    "modules that import each other": "from other import x\n" + LOOP,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_programs_are_read_in_the_end(what: str, tmp_path: Path) -> None:
    reading = read_program(HOSTILE[what], tmp_path, None, other__py="from train import model\nx = 1\n")
    assert reading.trains


def test_the_example_of_a_swept_detector(tmp_path: Path) -> None:
    root = Path(__file__).parents[3] / "examples" / "incidents" / "wandb-host-oom"
    project = Project(root, Settings(machine="workstation.toml"))
    (study,), _ = build(["sweep_config.yaml"], project)
    bound = study.boxes[0].fields
    workers, batch = bound["data.workers"].origin, bound["train.batch_size"].origin
    assert workers is not None
    assert batch is not None
    assert (workers.path, batch.path) == ("train_sweep.py", "sweep_config.yaml")
    assert project.source(workers.path).text[workers.span.start : workers.span.end] == "16"
    assert project.source(batch.path).text[batch.span.start : batch.span.end] == "64"
    assert study.combinations == 1


def test_the_example_of_a_clip_script(tmp_path: Path) -> None:
    root = Path(__file__).parents[3] / "examples" / "incidents" / "argparse-clip-gpu-oom"
    project = Project(root, Settings())
    (study,), _ = build(["launch.sh"], project)
    bound = study.boxes[0].fields
    place = bound["train.batch_size"].origin
    assert place is not None
    assert place.path == "launch.sh"
    assert project.source(place.path).text[place.span.start : place.span.end] == "128"
    known = {name: fact.value for name, fact in study.facts.items()}
    assert (known["contrastive_loss"], known["accumulation_supported"]) == (True, True)
    assert known["framework"] == "hand-written"


CONFIGURED = """
import torch
from torch.utils.data import DataLoader
batch_size = 12
num_workers = 2
learning_rate = 6e-4
exec(open("configurator.py").read())
for batch in DataLoader(data, batch_size=batch_size, num_workers=num_workers):
    model(batch).backward()
"""


def test_globals_that_a_configurator_sets(tmp_path: Path) -> None:
    reading = read_program(CONFIGURED, tmp_path)
    assert {flag for p in reading.parameters for flag in p.flags} == {"--batch_size", "--num_workers"}
    assert values(reading)["train.batch_size"] == 12
    assert values(reading, {"batch_size": 64})["train.batch_size"] == 64


def test_configuration_files_that_a_configurator_runs(tmp_path: Path) -> None:
    call = Call("run.sh", (Word("", Const("small.py")), Word("--num_workers=", Const("8"))))
    reading = read_program(CONFIGURED, tmp_path, call, small__py="batch_size = 4\nimport os\nos.remove('x')\n")
    assert values(reading)["train.batch_size"] == 4


CHOOSES = """
import torch
import transformers
from torch.utils.data import DataLoader
init_from = "scratch"
exec(open("settings_from_argv.py").read())
if init_from == "scratch":
    model = Own()
elif init_from.startswith("gpt2"):
    model = transformers.AutoModelForCausalLM.from_pretrained(init_from)
for batch in DataLoader(data, batch_size=4):
    model(batch).backward()
"""
FROM_ARGV = "import sys\nfor one in sys.argv[1:]:\n    globals()[one.split('=')[0][2:]] = one.split('=')[1]\n"
GIVEN: dict[str, tuple[tuple[Word, ...], object]] = {
    "nothing": ((), None),
    "a file": ((Word("", Const("large.py")),), "gpt2-xl"),
    "a flag": ((Word("--init_from=", Const("gpt2-medium")),), "gpt2-medium"),
    "a flag beats a file": ((Word("", Const("large.py")), Word("--init_from=", Const("gpt2"))), "gpt2"),
    "another flag": ((Word("--log_interval=", Const("1")),), None),
}


@pytest.mark.parametrize("given", GIVEN)
def test_globals_that_choose_a_branch(given: str, tmp_path: Path) -> None:
    words, model = GIVEN[given]
    call = Call("run.sh", words)
    files = {"settings_from_argv__py": FROM_ARGV, "large__py": "init_from = 'gpt2-xl'\n"}
    assert values(read_program(CHOOSES, tmp_path, call, **files)).get("model.name") == model


def test_a_text_that_sets_no_globals_from_the_command_line_is_none(tmp_path: Path) -> None:
    files = {"settings_from_argv__py": "print('executed')\n", "large__py": "init_from = 'gpt2-xl'\n"}
    call = Call("run.sh", (Word("", Const("large.py")),))
    assert values(read_program(CHOOSES, tmp_path, call, **files)).get("model.name") != "gpt2-xl"


def test_a_program_is_interpreted_once_for_launches_that_it_cannot_tell_apart(tmp_path: Path) -> None:
    text = (
        "import os\nimport torch\nfrom torch.utils.data import DataLoader\n"
        "for x in DataLoader(data, batch_size=int(os.environ['BS'])):\n    model(x).backward()\n"
    )
    (tmp_path / "train.py").write_text(text)
    project = Project(tmp_path, Settings())

    def batch(**environment: str) -> object:
        launch = Launch(environment={name: Const(value) for name, value in environment.items()})
        reading = program.read(project.source("train.py"), Call("job.sh", launch=launch), project)
        return next(evaluate(one.expr) for one in reading.bindings if one.field == "train.batch_size")

    assert (batch(BS="8"), batch(BS="16"), batch(BS="8", OTHER="1")) == (8, 16, 8)
    assert [len(one) for one in project.remembered.all(_EVALUATED, "train.py")] == [2]


STARTS = {
    "for size in (8, 22):\n    main(size)\n": True,
    "rows = [main(size) for size in (8, 22)]\n": True,
    "main(4)\n": True,
    "if DEBUG:\n    main(4)\n": True,
    "for size in (8, 22):\n    print(size)\n": False,
    "def other():\n    main(4)\n": False,
}


@pytest.mark.parametrize("text", STARTS)
def test_an_imported_function_that_trains(text: str, tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(
        "import torch\ndef inner(loss):\n    loss.backward()\ndef main(n):\n    inner(n)\n"
    )
    (tmp_path / "run.py").write_text("from lib import main\n" + text)
    project = Project(tmp_path, Settings())
    assert program.recognises(project.source("run.py"), project) is STARTS[text]


OBJECTS = {
    "r = Runner(3)\nr.run()\n": True,
    "Runner(3).run()\n": True,
    "r = Runner(3)\n": False,
    "p = Printer()\np.run()\n": False,
    "r = Runner(3)\nprint(r)\n": False,
    "def later():\n    Runner(3).run()\n": False,
}


@pytest.mark.parametrize("text", OBJECTS)
def test_a_method_of_an_imported_class_that_trains(text: str, tmp_path: Path) -> None:
    """A trainer of the project's own, which holds the loop."""
    (tmp_path / "lib.py").write_text(
        "import torch\nclass Runner:\n    def run(self):\n        self.loss.backward()\n"
        "class Printer:\n    def run(self):\n        print(1)\n"
    )
    (tmp_path / "run.py").write_text("from lib import Printer, Runner\n" + text)
    project = Project(tmp_path, Settings())
    assert program.recognises(project.source("run.py"), project) is OBJECTS[text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rows = [train(n) for n in (1, 2)]\n", True),
        ("best = min(train(n) for n in (1, 2))\n", True),
        ("rows = [\n    train(n) for n in (1, 2)\n]\n", True),
        ("rows = \\\n    train(1)\n", True),
        ("x = size()\n", False),
    ],
)
def test_a_call_within_an_assignment(text: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(
        "import torch\ndef train(n):\n    n.backward()\ndef size():\n    return 1\n" + text
    )
    project = Project(tmp_path, Settings())
    assert program.recognises(project.source("run.py"), project) is expected


STARTERS = {
    "an import in a function, after sys.path": (
        "import sys\nfrom pathlib import Path\ndef main():\n"
        "    sys.path.insert(0, str(Path(__file__).parent / 'lib'))\n"
        "    from pkg import main as start\n    start()\nif __name__ == '__main__':\n    main()\n"
    ),
    "a module of a package": "import sys\nsys.path.append('lib')\nimport pkg.cli\npkg.cli.main()\n",
    "a module by another name": "import sys\nsys.path.append('lib')\nfrom pkg import cli as c\nc.main()\n",
}
LEFT = {
    "another function of the package": STARTERS["a module of a package"].replace("main()", "show()"),
    "an object whose training is not started": (
        "import sys\nsys.path.append('lib')\nfrom pkg.loop import Loop\n"
        "if __name__ == '__main__':\n    Loop(1).evaluate()\n"
    ),
    "only an import": "import sys\nsys.path.append('lib')\nimport pkg\nif __name__ == '__main__':\n    print(1)\n",
}
PACKAGE = {
    "lib/pkg/__init__.py": "from .cli import main\n",
    "lib/pkg/cli.py": (
        "from .setup import made\nfrom .loop import Loop\ndef main():\n    loop = Loop(made())\n    loop.go()\n"
        "def show():\n    print(made())\n"
    ),
    "lib/pkg/setup.py": "def made():\n    return 1\n",
    "lib/pkg/loop.py": (
        "import torch\nclass Base:\n    def _step(self, x):\n        self.model(x).sum().backward()\n"
        "class Loop(Base):\n    def __init__(self, model):\n        self.model = model\n"
        "    def go(self):\n        self._step(1)\n    def evaluate(self):\n        return self.model\n"
    ),
}


@pytest.mark.parametrize("what", [*STARTERS, *LEFT])
def test_a_program_that_only_starts_a_package(what: str, tmp_path: Path) -> None:
    for name, text in PACKAGE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert recognised({**STARTERS, **LEFT}[what], tmp_path, "start.py") is (what in STARTERS)


def test_modules_that_only_define_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large tree has thousands of them."""
    parsed: list[str] = []

    def counted(text: str) -> ast.Module:
        parsed.append(text)
        return parse_module(text)

    monkeypatch.setattr(followed, "parse_module", counted)
    module = "import os\nLIMIT = 3\nNAMES: dict[str, int]\n@cache\ndef step(x):\n    return os.stat(x)\n"
    assert not recognised(module, tmp_path)
    assert parsed == []
    assert not recognised(module + "LOG = step(LIMIT)\n", tmp_path)
    assert len(parsed) == 1


def test_a_trainer_of_a_library_that_a_class_extends(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/own.py").write_text(
        "from transformers import Trainer\nclass Mine(Trainer):\n    def log(self):\n        pass\n"
    )
    (tmp_path / "deep/work.py").write_text("from deep.own import Mine\ndef work(m):\n    Mine(m).train()\n")
    assert recognised("from deep.work import work\nwork(1)\n", tmp_path, "start.py")
    (tmp_path / "deep/work.py").write_text("from deep.own import Mine\ndef work(m):\n    Mine(m).predict(m)\n")
    assert not recognised("from deep.work import work\nwork(1)\n", tmp_path, "look.py")


AMONG_TESTS = {
    "functions of tests": (LOOP + "def test_it():\n    pass\ntest_it()\n", False),
    "unittest": ("from unittest.mock import MagicMock\n" + LOOP, False),
    "a program that trains": (LOOP, True),
}


@pytest.mark.parametrize("what", AMONG_TESTS)
def test_a_program_among_tests(what: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    text, trains = AMONG_TESTS[what]
    assert recognised(text, tmp_path, "tests/verify.py") is trains
    assert recognised(text, tmp_path, "verify.py")


def test_a_file_that_runs_its_tests(tmp_path: Path) -> None:
    assert not recognised("import unittest\n" + LOOP + "unittest.main()\n", tmp_path, "verify.py")
