"""What a program can be given: argparse, click, dataclass parsers, wandb.config, Hydra's cfg."""

from __future__ import annotations

import pytest

from preflight.python.hooks.configurations import HYDRA_MAIN
from preflight.python.interpreter import Interpreter
from preflight.vocabulary.values import Cause, Const, Expr, Ref, Unknown, evaluate


def probed(evaluator: Interpreter) -> list[Expr]:
    return [call.args[0] for call in evaluator.calls if call.name == "lib.probe"]


def by_default(evaluator: Interpreter) -> list[object]:
    """Probed values where nothing is given on the command line."""
    env = {name: parameter.default for name, parameter in evaluator.parameters.items()}
    return [evaluate(expr, env) for expr in probed(evaluator)]


def add(arguments: str) -> str:
    return f"import argparse\np = argparse.ArgumentParser()\np.add_argument({arguments})\nargs = p.parse_args()\n"


ARGUMENTS = {
    "long flag": ('"--batch-size", type=int, default=32', "batch_size", "int", 32, ("--batch-size",)),
    "short and long": ('"-b", "--bs", type=int, default=4', "bs", "int", 4, ("-b", "--bs")),
    "short alone": ('"-b", type=int, default=4', "b", "int", 4, ("-b",)),
    "positional, not required": ('"model", nargs="?"', "model", "str", None, ()),
    "not required": ('"--model", required=False', "model", "str", None, ("--model",)),
    "dest": ('"--x", dest="y", default="a"', "y", "str", "a", ("--x",)),
    "no type": ('"--n", default=3', "n", "str", 3, ("--n",)),
    "store_true": ('"--fp16", action="store_true"', "fp16", "flag", False, ("--fp16",)),
    "store_false": ('"--no-amp", dest="amp", action="store_false"', "amp", "no-flag", True, ("--no-amp",)),
    "boolean": (
        '"--amp", action=argparse.BooleanOptionalAction, default=True', "amp", "bool", True, ("--amp", "--no-amp"),
    ),
    "several": ('"--sizes", nargs="+", type=int, default=[1, 2]', "sizes", "list", (1, 2), ("--sizes",)),
    "function as type": ('"--amp", type=str2bool, default=True', "amp", None, True, ("--amp",)),
    "count": ('"-v", action="count", default=0', "v", "int", 0, ("-v",)),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument(name: str, run) -> None:
    text, dest, kind, default, flags = ARGUMENTS[name]
    evaluator = run(add(text))
    parameter = evaluator.parameters[dest]
    assert (parameter.type, evaluate(parameter.default), parameter.flags) == (kind, default, flags)


@pytest.mark.parametrize(
    "text",
    ['"model"', '"model", nargs="+"', '"--model", required=True', '"-m", "--model", required=True, default="gpt2"'],
)
def test_a_program_ends_without_a_required_argument(text: str, run) -> None:
    value = evaluate(run(add(text)).parameters["model"].default)
    assert isinstance(value, Unknown)
    assert value.cause is Cause.not_set


@pytest.mark.parametrize(
    ("text", "required"),
    [
        ("click.option('--model', required=True)", True),
        ("click.option('--model')", False),
        ("click.argument('model')", True),
        ("click.argument('model', default='gpt2')", False),
        ("click.argument('model', required=False)", False),
    ],
)
def test_a_click_command_ends_without_a_required_parameter(text: str, required: bool, run) -> None:
    evaluator = run(f"import click\n@click.command()\n@{text}\ndef main(model):\n    pass\nmain()")
    assert isinstance(evaluate(evaluator.parameters["model"].default), Unknown) is required


def test_a_default_keeps_its_place(run) -> None:
    text = add('"--batch-size", type=int, default=32')
    origin = run(text).parameters["batch_size"].default.origin
    assert origin is not None
    assert text[origin.span.start : origin.span.end] == "32"


def test_choices(run) -> None:
    assert run(add('"--model", choices=["a", "b"], default="a"')).parameters["model"].choices == ("a", "b")


def test_a_namespace_refers_to_its_parameters(run) -> None:
    evaluator = run(
        add('"--bs", type=int, default=3') + "from lib import probe\nprobe(args.bs)\nprobe(vars(args)['bs'])\n"
    )
    assert probed(evaluator) == [Ref("bs"), Ref("bs")]


PARSERS = {
    "groups": "g = p.add_argument_group('g')\ng.add_argument('--bs', default=1)\nargs = p.parse_args()",
    "exclusive": "g = p.add_mutually_exclusive_group()\ng.add_argument('--bs', default=1)\nargs = p.parse_args()",
    "known": "p.add_argument('--bs', default=1)\nargs, rest = p.parse_known_args()",
    "set_defaults": "p.add_argument('--bs', default=7)\np.set_defaults(bs=1)\nargs = p.parse_args()",
    "parents": (
        "q = argparse.ArgumentParser(add_help=False)\nq.add_argument('--bs', default=1)\n"
        "args = argparse.ArgumentParser(parents=[q]).parse_args()"
    ),
    "subparsers": (
        "s = p.add_subparsers(dest='command')\nt = s.add_parser('train')\nt.add_argument('--bs', default=1)\n"
        "args = p.parse_args()"
    ),
    "function": "def fill(parser):\n    parser.add_argument('--bs', default=1)\nfill(p)\nargs = p.parse_args()",
    "subclass": (
        "class P(argparse.ArgumentParser):\n    def __init__(self):\n        super().__init__()\n"
        "p = P()\np.add_argument('--bs', default=1)\nargs = p.parse_args()"
    ),
}


@pytest.mark.parametrize("name", PARSERS)
def test_a_way_to_build_a_parser(name: str, run) -> None:
    text = f"import argparse\nfrom lib import probe\np = argparse.ArgumentParser()\n{PARSERS[name]}\nprobe(args.bs)\n"
    evaluator = run(text)
    assert probed(evaluator) == [Ref("bs")]
    assert by_default(evaluator) == [1]


def test_words_in_the_programs_text_leave_no_parameters(run) -> None:
    text = (
        "import argparse\nfrom lib import probe\np = argparse.ArgumentParser()\n"
        "p.add_argument('--bs', type=int, default=1)\n"
    )
    evaluator = run(text + "probe(p.parse_args([]).bs)\nprobe(p.parse_args(['--bs', '8']).bs)\n")
    assert [evaluate(expr) for expr in probed(evaluator)] == [1, 8]
    assert not evaluator.parameters


ENTRIES = {
    "click": (
        "import click\n@click.command()\n@click.option('--batch-size', '-b', default=4, type=int)\n"
        "@click.option('--amp/--no-amp', default=True)\ndef main(batch_size, amp):\n    probe(batch_size)\nmain()"
    ),
    "typer": "import typer\ndef main(batch_size: int = 4):\n    probe(batch_size)\ntyper.run(main)",
    "typer option": (
        "import typer\napp = typer.Typer()\n@app.command()\ndef main(batch_size: int = typer.Option(4, '--bs')):\n"
        "    probe(batch_size)\napp()"
    ),
    "fire": "import fire\ndef main(batch_size=4):\n    probe(batch_size)\nfire.Fire(main)",
    "absl": (
        "from absl import app, flags\nFLAGS = flags.FLAGS\nflags.DEFINE_integer('batch_size', 4, 'n')\n"
        "def main(argv):\n    probe(FLAGS.batch_size)\napp.run(main)"
    ),
    "HfArgumentParser": (
        "from dataclasses import dataclass, field\nfrom transformers import HfArgumentParser, TrainingArguments\n"
        "@dataclass\nclass A:\n    batch_size: int = field(default=4, metadata={'help': 'x'})\n"
        "a, t = HfArgumentParser((A, TrainingArguments)).parse_args_into_dataclasses()\nprobe(a.batch_size)"
    ),
    "tyro": "import tyro\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n"
    "    batch_size: int = 4\nprobe(tyro.cli(A).batch_size)",
    "simple_parsing": (
        "from simple_parsing import ArgumentParser\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n"
        "    batch_size: int = 4\np = ArgumentParser()\np.add_arguments(A, dest='o')\n"
        "probe(p.parse_args().o.batch_size)"
    ),
    "wandb.config": "import wandb\nwandb.init(config={'batch_size': 4})\nprobe(wandb.config.batch_size)",
    "wandb item": "import wandb\nwandb.init(config=dict(batch_size=4))\nconfig = wandb.config\n"
    "probe(config['batch_size'])",
    "wandb get": "import wandb\nwandb.init()\nprobe(wandb.config.get('batch_size', 4))",
    "wandb run": "import wandb\nrun = wandb.init(config={'batch_size': 4})\nprobe(run.config.batch_size)",
    "wandb with": "import wandb\nwith wandb.init(config={'batch_size': 4}) as run:\n"
    "    probe(run.config['batch_size'])",
    "wandb defaults": "import wandb\nwandb.init()\nwandb.config.update({'batch_size': 4})\n"
    "probe(wandb.config.batch_size)",
    "wandb agent": (
        "import wandb\ndef train():\n    with wandb.init(config={'batch_size': 4}):\n"
        "        probe(wandb.config.batch_size)\n"
        "wandb.agent('id', function=train)"
    ),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_parameter_of_another_library(name: str, run) -> None:
    evaluator = run(f"from lib import probe\n{ENTRIES[name]}\n")
    assert probed(evaluator) == [Ref("batch_size")]
    assert by_default(evaluator) == [4]


def test_nested_dataclasses(run) -> None:
    evaluator = run(
        """
        import tyro
        from dataclasses import dataclass, field
        from lib import probe
        @dataclass
        class Optim:
            lr: float = 0.5
        @dataclass
        class Config:
            optim: Optim = field(default_factory=Optim)
            other: Optim = field(default_factory=lambda: Optim(lr=2.0))
        config = tyro.cli(Config)
        probe(config.optim.lr)
        probe(config.other.lr)
        """
    )
    assert probed(evaluator) == [Ref("optim.lr"), Ref("other.lr")]
    assert by_default(evaluator) == [0.5, 2.0]
    assert evaluator.parameters["optim.lr"].flags == ("--optim.lr",)


def test_the_librarys_own_arguments_are_recorded(run) -> None:
    evaluator = run(
        """
        from dataclasses import dataclass
        from transformers import HfArgumentParser, TrainingArguments
        @dataclass
        class Mine(TrainingArguments):
            optim: str = "sgd"
        (args,) = HfArgumentParser(Mine).parse_args_into_dataclasses()
        """
    )
    (call,) = [call for call in evaluator.calls if call.name == "transformers.TrainingArguments"]
    assert call.kwargs == {"optim": Ref("optim")}
    assert not call.complete


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ("None", 3),
        ("argparse.Namespace()", 3),
        ("argparse.Namespace(other=1)", 3),
        ("argparse.Namespace(bs=5)", 5),
        ("Space()", 5),
        ("Empty()", 3),
    ],
)
def test_a_namespace_replaces_defaults_and_the_command_line_replaces_it(space: str, expected: int, run) -> None:
    text = (
        "import argparse\nfrom lib import probe\nclass Space:\n    bs = 5\nclass Empty:\n    pass\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--bs', type=int, default=3)\n"
        f"space = {space}\nprobe(parser.parse_args(namespace=space).bs)\n"
    )
    evaluator = run(text)
    assert probed(evaluator) == [Ref("bs")]
    assert by_default(evaluator) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "parser.set_defaults(**lib.more())\nprobe(parser.parse_args().bs)",
        "parser.parse_args()\nparser.set_defaults(**lib.more())\nprobe(parser.parse_args().bs)",
        "probe(parser.parse_args(namespace=lib.more()).bs)",
        "probe(parser.parse_args(namespace=argparse.Namespace(**lib.more())).bs)",
        "probe(parser.parse_args(namespace=argparse.Namespace(bs=lib.more())).bs)",
        "args = parser.parse_args()\nargs.bs = args.bs * 2\nprobe(parser.parse_args(namespace=args).bs)",
        "args = parser.parse_args()\nargs.bs = 5\nprobe(parser.parse_args(namespace=args).bs)",
    ],
)
def test_a_default_that_something_unread_replaces_is_unknown(text: str, run) -> None:
    before = "import argparse, lib\nfrom lib import probe\nparser = argparse.ArgumentParser()\n"
    (value,) = by_default(run(f"{before}parser.add_argument('--bs', type=int, default=3)\n{text}\n"))
    assert isinstance(value, Unknown)


def test_a_namespace_is_filled(run) -> None:
    text = (
        "import argparse\nfrom lib import probe\nclass Space:\n    bs = 5\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--bs', type=int, default=3)\n"
        "space = Space()\nparser.parse_args(namespace=space)\nprobe(space.bs)\n"
    )
    assert probed(run(text)) == [Ref("bs")]


def test_wandb_takes_a_namespace_without_hiding_the_command_line(run) -> None:
    text = (
        add('"--bs", type=int, default=3')
        + "import wandb\nfrom lib import probe\nwandb.init(config=args)\nprobe(wandb.config.bs)\n"
    )
    evaluator = run(text)
    assert probed(evaluator) == [Ref("bs")]
    assert evaluator.parameters["bs"].kind == "argparse"
    assert by_default(evaluator) == [3]


def test_hydra(run) -> None:
    evaluator = run(
        """
        import hydra
        from omegaconf import OmegaConf
        from lib import probe
        @hydra.main(version_base=None, config_path="conf", config_name="config")
        def main(cfg):
            probe(cfg.train.batch_size)
            probe(cfg["data"]["workers"])
            probe(cfg.model.get("size", 3))
            plain = OmegaConf.to_container(cfg, resolve=True)
            probe(plain["train"]["lr"] * 2)
            cfg.train.steps = 5
            probe(cfg.train.steps)
        if __name__ == "__main__":
            main()
        """
    )
    found = probed(evaluator)
    assert found[:3] == [Ref("train.batch_size"), Ref("data.workers"), Ref("model.size")]
    assert evaluate(found[3], {"train.lr": Const(4)}) == 8
    assert evaluate(found[4]) == 5
    record = evaluator.remembered.known(HYDRA_MAIN)
    assert record is not None
    assert evaluate(record.kwargs["config_path"]) == "conf"


LOADS = {
    "safe_load": "import yaml\nwith open('conf/x.yaml') as f:\n    d = yaml.safe_load(f)\nprobe(d['train']['bs'])",
    "path": "import yaml\nfrom pathlib import Path\n"
    "d = yaml.safe_load((Path('conf') / 'x.yaml').read_text())\nprobe(d['train']['bs'])",
    "beside": (
        "import os, yaml\nhere = os.path.dirname(os.path.abspath(__file__))\n"
        "d = yaml.safe_load(open(os.path.join(here, 'conf', 'x.yaml')))\nprobe(d['train']['bs'])"
    ),
    "function": (
        "import yaml\ndef load(p):\n    with open(p) as f:\n        return yaml.load(f, Loader=yaml.SafeLoader)\n"
        "probe(load('conf/x.yaml')['train']['bs'])"
    ),
    "omegaconf": "from omegaconf import OmegaConf\nprobe(OmegaConf.load('conf/x.yaml').train.bs)",
    "easydict": "import yaml\nfrom easydict import EasyDict\n"
    "d = EasyDict(yaml.safe_load(open('conf/x.yaml')))\nprobe(d.train.bs)",
    "namespace": (
        "import yaml, argparse\nd = argparse.Namespace(**yaml.safe_load(open('conf/x.yaml')))\nprobe(d.train['bs'])"
    ),
    "json": "import json\nprobe(json.load(open('conf/x.json'))['train']['bs'])",
    "text of json": (
        "import json\nwith open('conf/x.json') as f:\n    d = json.loads(f.read())\nprobe(d['train']['bs'])"
    ),
    "text of a path": (
        "import json\nfrom pathlib import Path\nprobe(json.loads(Path('conf/x.json').read_text())['train']['bs'])"
    ),
    "text of yaml": "import yaml\nprobe(yaml.safe_load(open('conf/x.yaml').read())['train']['bs'])",
}


@pytest.mark.parametrize("name", LOADS)
def test_a_file_of_the_project(name: str, run) -> None:
    files = {"conf/x.yaml": "train:\n  bs: 48\n", "conf/x.json": '{"train":\n  {"bs": 48}}\n'}
    evaluator = run(f"from lib import probe\n{LOADS[name]}\n", files)
    (expr,) = probed(evaluator)
    assert evaluate(expr) == 48
    assert expr.origin is not None
    assert files[expr.origin.path][expr.origin.span.start : expr.origin.span.end] == "48"
    assert expr.origin.route == ("train", "bs")
    assert expr.origin.path in evaluator.reads


def test_a_file_outside_the_project_is_unknown(run) -> None:
    evaluator = run(
        "import yaml\nfrom lib import probe\nprobe(yaml.safe_load(open('/etc/x.yaml'))['a'])\n"
        "probe(yaml.safe_load(open('../x.yaml'))['a'])\n"
    )
    assert all(isinstance(evaluate(expr), Unknown) for expr in probed(evaluator))
