"""Configuration objects of libraries: `wandb.config`, Hydra's `cfg`, OmegaConf."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from preflight.python.classes import dataclass_fields, field_default
from preflight.python.config_objects import add_defaults, config_child
from preflight.python.evaluator import Evaluator, Hook, LibraryValue
from preflight.python.files import read_yaml
from preflight.python.hooks.standard_library import first_argument
from preflight.python.objects import (
    Abstract,
    CallRecord,
    ClassValue,
    Config,
    Container,
    FunctionValue,
    Instance,
    Key,
    namespace,
    sequence,
)
from preflight.python.spread import copy_items
from preflight.vocabulary.caches import CacheKind
from preflight.vocabulary.values import Cause, Const, Unknown, unknown

_WANDB: CacheKind[Config] = CacheKind("the one wandb.config of a program")
HYDRA_MAIN: CacheKind[CallRecord] = CacheKind("the call that made the decorator of main")
_UNREAD: CacheKind[list[Config]] = CacheKind("configurations of files that are not known")
HYDRA_COMPOSE: CacheKind[CallRecord] = CacheKind("the call of hydra.compose")

# --- W&B --------------------------------------------------------------------------------------------------------------


def wandb_config(ev: Evaluator) -> Abstract:
    """The one `wandb.config` of a program."""
    return ev.remembered.get(_WANDB, lambda: Config("", "wandb"))


def wandb_init(record: CallRecord, ev: Evaluator) -> Abstract | None:
    config = wandb_config(ev)
    given = record.keywords.get("config")
    if given is not None and isinstance(config, Config) and given is not config:
        add_defaults(ev, config, given)
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
    """`main()` with the decorator `@hydra.main(...)`: its argument is the composed configuration."""
    if record.arguments:
        return None
    decorator = record.receiver_object
    if isinstance(decorator, Instance) and decorator.record is not None:
        ev.remembered.put(HYDRA_MAIN, decorator.record)
    return sequence([Config("", "hydra")], "tuple")


def omega_load(record: CallRecord, ev: Evaluator) -> Abstract | None:
    found = read_yaml(ev, record.object("file_", 0) or Const(None), "namespace")
    if found is not None:
        return found
    unread = Config("", "omegaconf", origin=record.origin)
    ev.remembered.get(_UNREAD, list).append(unread)
    return unread


def omega_create(record: CallRecord, ev: Evaluator) -> Abstract | None:
    given = record.object("obj", 0)
    return namespace(given) if given is not None else Container("namespace", {}, record.origin)


def omega_structured(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """`OmegaConf.structured(Config)`: the fields of a dataclass with their defaults."""
    given = record.object("obj", 0)
    if not isinstance(given, ClassValue):
        return omega_create(record, ev)
    return Container("namespace", dict(_fields(given, ev, 0)), record.origin)


def _fields(cls: ClassValue, ev: Evaluator, depth: int) -> Iterator[tuple[Key, Abstract]]:
    for name, owner in dataclass_fields(cls).items():
        default = field_default(ev, owner, name)
        if isinstance(default, Instance) and default.cls is not None and depth < _MAX_NESTED:
            inner = dict(_fields(default.cls, ev, depth + 1)) | default.attributes
            yield name, Container("namespace", inner, default.origin)
        else:
            yield name, default if default is not None else unknown(f"{name} has no default", cause=Cause.not_set)


_MAX_NESTED = 6


def omega_merge(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """Later ones win. A value of the command line is a reference with the merged value as its default."""
    items: dict[Key, Abstract] = {}
    overridable = False
    unread = ev.remembered.known(_UNREAD) or []
    for part in record.arguments:
        if isinstance(part, Config):
            overridable = True
        if any(part is one for one in unread):
            why = "a file that is not known may set it"
            items = {key: unknown(why, record.origin, Cause.file_not_found) for key in items}
        _merge_into(items, part)
    if not overridable:
        return Container("namespace", items, record.origin)
    config = Config("", "omegaconf", origin=record.origin)
    add_defaults(ev, config, Container("dict", items))
    return config


def _merge_into(items: dict[Key, Abstract], part: Abstract) -> None:
    fresh: dict[Key, Abstract] = {}
    copy_items(part, fresh)
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


def select(record: CallRecord, ev: Evaluator) -> Abstract | None:
    """OmegaConf.select(cfg, "a.b")."""
    value, name = record.object("cfg", 0), ev.argument_value(record, "key", 1)
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


_PI = Const(math.pi)

LIBRARY_VALUES: Mapping[str, LibraryValue] = {
    **dict.fromkeys(("math.pi", "numpy.pi", "torch.pi"), lambda ev: _PI),
    "wandb.config": wandb_config,
    "wandb.run.config": wandb_config,
    "absl.flags.FLAGS": lambda ev: Config("", "argparse"),
}
"""Attributes of libraries whose value is known, or that hold a configuration object."""

HOOKS: Mapping[str, Hook] = {
    "wandb.init": wandb_init, "wandb.agent": wandb_agent,
    "lightning.pytorch.loggers.WandbLogger": wandb_logger, "pytorch_lightning.loggers.WandbLogger": wandb_logger,
    "@hydra.main": hydra_main, "hydra.compose": compose, "hydra.experimental.compose": compose,
    "omegaconf.OmegaConf.load": omega_load, "omegaconf.OmegaConf.create": omega_create,
    "omegaconf.OmegaConf.merge": omega_merge, "omegaconf.OmegaConf.unsafe_merge": omega_merge,
    "omegaconf.OmegaConf.from_cli": lambda record, ev: Config("", "omegaconf"),
    "omegaconf.OmegaConf.from_dotlist": lambda record, ev: Config("", "omegaconf"),
    "omegaconf.OmegaConf.to_container": first_argument, "omegaconf.OmegaConf.to_object": first_argument,
    "omegaconf.OmegaConf.structured": omega_structured, "omegaconf.OmegaConf.select": select,
    "omegaconf.DictConfig": omega_create,
}  # fmt: skip
