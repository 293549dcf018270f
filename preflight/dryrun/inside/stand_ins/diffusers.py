"""diffusers' models and schedulers: made from their configuration alone, as models of transformers are."""

from __future__ import annotations

import os
from typing import Any

import torch

from ..endings import NotThere
from ..patches import replace
from ..tape import Tape
from .hub_models import HubModels


class Components:
    """The parts of a pipeline, by the names of its repository and of the part's folder."""

    def __init__(self, models: HubModels, tape: Tape) -> None:
        self._models, self._tape = models, tape

    def configurations(self, module: Any) -> None:
        """diffusers.configuration_utils: what cannot be had from the hub comes from the catalogue. A scheduler is made
        with its defaults: no tensor of the device depends on them but tables of a number for each step."""
        cls = module.ConfigMixin
        real = cls.load_config.__func__

        def loaded(
            klass: Any, pretrained_model_name_or_path: Any, return_unused_kwargs: bool = False,
            return_commit_hash: bool = False, **kwargs: Any,
        ) -> Any:  # fmt: skip
            name = pretrained_model_name_or_path
            try:
                return real(klass, name, return_unused_kwargs, return_commit_hash, **kwargs)
            except Exception:
                if os.path.isdir(str(name)):
                    raise
            found = self._of(klass, name, kwargs.get("subfolder"))
            rest = {k: v for k, v in kwargs.items() if k not in _PLACES}
            more = ((rest,) if return_unused_kwargs else ()) + ((None,) if return_commit_hash else ())
            return (found, *more) if more else found

        cls.load_config = classmethod(_function(loaded))

    def _of(self, cls: Any, name: Any, folder: Any) -> dict[str, Any]:
        if any(kind.__name__ == "SchedulerMixin" for kind in cls.__mro__):
            self._tape.assume(f"the settings of the scheduler of {name} are {cls.__name__}'s defaults")
            return {"_class_name": cls.__name__}
        known = self._models.part(name, folder)
        if known is None or known["model_type"] != cls.__name__:
            where = f"{name}/{folder}" if folder else name
            raise NotThere(f"the configuration of {where} is not there, and preflight's catalogue has none")
        self._tape.assume(f"the configuration of {name} is that of preflight's catalogue")
        return {"_class_name": known.pop("model_type"), **known}

    def models(self, module: Any) -> None:
        """diffusers.models.modeling_utils: no weights are loaded."""
        cls = module.ModelMixin

        def made(
            klass: Any, pretrained_model_name_or_path: Any, torch_dtype: Any = None, dtype: Any = None, **kwargs: Any
        ) -> Any:
            name = pretrained_model_name_or_path
            config = klass.load_config(name, subfolder=kwargs.get("subfolder"))
            model = klass.from_config(config).eval()
            self._tape.assume(f"the weights of {name} were not loaded: {klass.__name__} of its configuration")
            dtype = dtype or torch_dtype
            return model.to(dtype) if isinstance(dtype, torch.dtype) else model

        cls.from_pretrained = classmethod(_function(made))
        replace(cls, "save_pretrained", lambda self, where, *_, **__: os.makedirs(where, exist_ok=True))


def _function(made: Any) -> Any:
    """A function that becomes a method of classes that are known at run time alone."""
    return made


_PLACES = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "subfolder",
           "user_agent", "mirror", "local_dir", "local_dir_use_symlinks", "dduf_entries")  # fmt: skip
"""Arguments of `load_config` that say where a configuration is (diffusers, configuration_utils.py)."""
