"""Configuration objects: wandb.config, Hydra's cfg, OmegaConf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from preflight.python.hooks_std import read_yaml
from preflight.python.objects import (
    Abstract,
    CallRecord,
    Config,
    Container,
    Either,
    FunctionValue,
    Instance,
    Key,
    is_expr,
    sequence,
    spread,
    to_expr,
)
from preflight.vocabulary.caches import Kind
from preflight.vocabulary.reading import Parameter
from preflight.vocabulary.values import Cause, Const, Ref, Unknown

if TYPE_CHECKING:
    from preflight.python.evaluator import Evaluator, Hook


def absorb(ev: Evaluator, config: Config, value: Abstract, prefix: str = "") -> None:
    """Values that the program gives a configuration object: defaults of its parameters."""
    items: dict[Key, Abstract] = {}
    spread(value, items)
    for key, item in items.items():
        name = f"{prefix}{key}"
        if isinstance(item, Container) and not item.is_sequence and len(prefix) < 200:
            absorb(ev, config, item, f"{name}.")
        elif isinstance(item, Config):
            continue
        elif is_expr(item) or isinstance(item, (Container, Either)):
            expr = to_expr(item)
            if not (isinstance(expr, Ref) and expr.name == name):
                ev.add_parameter(Parameter(name, expr, (), config.kind, origin=expr.origin))
        else:
            ev.write(config.known, key, item)


_WANDB: Kind[Config] = Kind("the one wandb.config of a program")
HYDRA_MAIN: Kind[CallRecord] = Kind("the call that made the decorator of main")
HYDRA_COMPOSE: Kind[CallRecord] = Kind("the call of hydra.compose")

# --- W&B --------------------------------------------------------------------------------------------------------------


def wandb_config(ev: Evaluator) -> Abstract:
    """The one `wandb.config` of a program."""
    return ev.remembered.get(_WANDB, lambda: Config("", "wandb"))


def wandb_init(record: CallRecord, ev: Evaluator) -> Abstract | None:
    config = wandb_config(ev)
    given = record.keywords.get("config")
    if given is not None and isinstance(config, Config) and given is not config:
        absorb(ev, config, given)
    return Instance("wandb.init", attributes={"config": config}, record=record, origin=record.origin)


def wandb_logger(record: CallRecord, ev: Evaluator) -> Abstract | None:
    experiment = Instance("wandb.init", attributes={"config": wandb_config(ev)}, record=record)
    return Instance(record.name, attributes={"experiment": experiment}, record=record, origin=record.origin)


def wandb_agent(record: CallRecord, ev: Evaluator) -> Abstract | None:
    function = record.object("function", 1)
    if isinstance(function, FunctionValue):
        ev.call(function, ())
    return Const(None)


# --- Hydra and OmegaConf ----------------------------------------------------------------------------------------------


def hydra_main(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`main()` under `@hydra.main(...)`: cfg's keys are the composed configuration's."""
    if record.arguments:
        return None
    decorator = record.receiver_object
    if isinstance(decorator, Instance) and decorator.record is not None:
        ev.remembered.put(HYDRA_MAIN, decorator.record)
    return sequence([Config("", "hydra")], "tuple")


def omega_load(record: CallRecord, ev: Evaluator) -> Abstract | None:
    found = read_yaml(ev, record.object("file_", 0) or Const(None), "namespace")
    return found if found is not None else Config("", "omegaconf", origin=record.origin)


def omega_create(record: CallRecord, ev: Evaluator) -> Abstract | None:
    given = record.object("obj", 0)
    return namespace(given) if given is not None else Container("namespace", {}, record.origin)


def namespace(value: Abstract, _depth: int = 0) -> Abstract:
    """A dict whose keys are attributes too, all the way down."""
    if isinstance(value, Container) and not value.is_sequence and _depth < 20:
        items = {key: namespace(item, _depth + 1) for key, item in value.items.items()}
        return Container("namespace", items, value.origin, dict(value.flags))
    return value


def omega_merge(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """Later ones win; what comes from the command line is a reference with the merged value as its default."""
    items: dict[Key, Abstract] = {}
    overridable = False
    for part in record.arguments:
        if isinstance(part, Config):
            overridable = True
        _merge_into(items, part)
    if not overridable:
        return Container("namespace", items, record.origin)
    config = Config("", "omegaconf", origin=record.origin)
    absorb(ev, config, Container("dict", items))
    return config


def _merge_into(items: dict[Key, Abstract], part: Abstract) -> None:
    fresh: dict[Key, Abstract] = {}
    spread(part, fresh)
    for key, value in fresh.items():
        old = items.get(key)
        if (
            isinstance(old, Container)
            and isinstance(value, Container)
            and not old.is_sequence
            and not value.is_sequence
        ):
            merged = dict(old.items)
            _merge_into(merged, value)
            items[key] = Container("namespace", merged, old.origin)
        else:
            items[key] = value


def first(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """Calls that give their first argument back: OmegaConf.to_container(cfg)."""
    return record.arguments[0] if record.arguments else None


def select(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """OmegaConf.select(cfg, "a.b")."""
    from preflight.python.access import config_child

    value, key = record.object("cfg", 0), record.argument("key", 1)
    name = ev.value_of(key) if key is not None else None
    if value is None or not isinstance(name, str):
        return None
    for part in name.split("."):
        if isinstance(value, Config):
            value = config_child(value, part)
        elif isinstance(value, Container) and part in value.items:
            value = value.items[part]
        else:
            return Const(Unknown(f"{name} is not in the configuration", Cause.not_set))
    return value


def compose(record: CallRecord, ev: Evaluator) -> Abstract | None:
    ev.remembered.put(HYDRA_COMPOSE, record)
    return Config("", "hydra", origin=record.origin)


VALUES: Mapping[str, Callable[[Evaluator], Abstract]] = {
    "wandb.config": wandb_config,
    "wandb.run.config": wandb_config,
    "absl.flags.FLAGS": lambda ev: Config("", "argparse"),
}
"""Attributes of libraries that are configuration objects."""

HOOKS: Mapping[str, Hook] = {
    "wandb.init": wandb_init, "wandb.agent": wandb_agent,
    "lightning.pytorch.loggers.WandbLogger": wandb_logger, "pytorch_lightning.loggers.WandbLogger": wandb_logger,
    "@hydra.main": hydra_main, "hydra.compose": compose, "hydra.experimental.compose": compose,
    "omegaconf.OmegaConf.load": omega_load, "omegaconf.OmegaConf.create": omega_create,
    "omegaconf.OmegaConf.merge": omega_merge, "omegaconf.OmegaConf.unsafe_merge": omega_merge,
    "omegaconf.OmegaConf.from_cli": lambda record, ev: Config("", "omegaconf"),
    "omegaconf.OmegaConf.from_dotlist": lambda record, ev: Config("", "omegaconf"),
    "omegaconf.OmegaConf.to_container": first, "omegaconf.OmegaConf.to_object": first,
    "omegaconf.OmegaConf.structured": omega_create, "omegaconf.OmegaConf.select": select,
    "omegaconf.DictConfig": omega_create,
}  # fmt: skip
