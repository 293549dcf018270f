"""Models of the hub: their configuration from preflight's catalogue, no weights, and tokenizers of the right size."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..patches import answers, replace, wrap
from ..tape import Tape

_HUB_OPTIONS = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "trust_remote_code",
                "subfolder", "_from_pipeline", "_from_auto", "user_agent", "_commit_hash", "gguf_file",
                "use_auth_token", "adapter_kwargs")  # fmt: skip
"""Arguments of `from_pretrained` that are no settings of a configuration (transformers, configuration_utils.py)."""

_BY_KEYWORD = "pretrained_model_name_or_path"
"""The keyword for the name of a model, which most programs give without it."""
_DTYPE = {False: "torch_dtype", True: "dtype"}
"""The name of the argument for the dtype: new since transformers 4.56, where the constructors refuse the other."""
FEWEST = 100
"""Without files, some tokenizers are made empty, with their special tokens alone."""
_SPECIAL = ("<unk>", "<pad>", "<s>", "</s>", "<cls>", "<sep>", "<mask>")
_BETWEEN_MARKS = frozenset({
    "bert", "roberta", "distilbert", "electra", "albert", "deberta", "deberta-v2", "xlm-roberta", "mpnet", "camembert",
    "modernbert",
})  # fmt: skip
"""Models whose tokenizers put a mark before a text and one behind it: programs look for them."""
_SENDS = ("upload_folder", "upload_file", "upload_large_folder", "create_commit", "create_branch", "create_tag",
          "delete_file", "delete_folder", "delete_repo", "update_repo_settings", "preupload_lfs_files")  # fmt: skip
"""Methods of HfApi that change what the hub has, and whose answer programs do not read."""
_ENCODERS = {
    ("clip_text_model", "text_encoder"): "CLIPTextModel",
    ("clip_text_model", "text_encoder_2"): "CLIPTextModelWithProjection",
}
"""Classes of the encoders of texts of Stable Diffusion 1, 2 and XL, by kind and folder (their config.json)."""
_TEMPLATE = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} </s> {% endfor %}"


_OTHER_SIZE = re.compile(
    r"(?<![a-z0-9])(\d+(\.\d+)?[mbk]|\d+x\d+b|tiny|mini|micro|nano|small|base|medium|large|big|huge|giant|xs|xl|xxl|moe|"
    r"v\d+|\d+(\.\d+)?|vision|vl|audio|gptq|awq|gguf|fp8|bnb|int[48]|4bit|8bit|[24]bits?)(?![a-z0-9])"
)
"""Words behind the name of a model that make it another one, or its weights of another kind."""


_VERSIONED = re.compile(r"[a-z]+-?\d+(\.\d+)?-\d+(\.\d+)?[mb]")
"""Names that say a family, its version and a size: a model that is tuned from one may end with it."""


class HubModels:
    """What is known of models without asking the hub."""

    def __init__(
        self, catalogue: Mapping[str, Any], tape: Tape, refuse: Callable[[str], None], quantise: Callable[..., Any]
    ) -> None:
        self._catalogue, self._tape, self._refuse, self._quantise = catalogue, tape, refuse, quantise

    def configuration(self, name: str) -> dict[str, Any] | None:
        """The configuration that the catalogue has for a name; None if it has none."""
        entry = self._catalogue.get(str(name).lower())
        return None if entry is None else {"model_type": entry["architecture"], **entry["config"]}

    def part(self, name: Any, folder: Any) -> dict[str, Any] | None:
        """The configuration of a part of a repository; None if the catalogue has none."""
        if folder:
            own = str(name).rpartition("/")[2].lower()
            return (
                self.configuration(f"{name}/{folder}")
                or self._copied(str(name), str(folder))
                or (self._descended(str(name), str(folder)) if own != str(name).lower() else None)
            )
        return self.configuration(name) or self._descended(str(name))

    def _copied(self, path: str, folder: str) -> dict[str, Any] | None:
        """The configuration of a part of a copy on disk that is not there, by the copy's name, which is said."""
        own = path.rstrip("/").rpartition("/")[2]
        known = self.configuration(f"{own}/{folder}") if own != path and not os.path.isdir(path) else None
        if known is not None:
            words = f"{path} is not there: the configuration of its {folder} is taken to be that of {own}, by its name"
            self._tape.assume(words, "model.config")
        return known

    def _descended(self, name: str, folder: str = "") -> dict[str, Any] | None:
        """The configuration of the model that a tuned one is named after, which is said: `owner/gpt2-medium-poems`."""
        own = name.rstrip("/").rpartition("/")[2].lower()
        known = [
            key for key in self._catalogue if "/" not in key and (own == key or own.startswith((f"{key}-", f"{key}_")))
        ]
        known += [key for key in self._catalogue if _VERSIONED.fullmatch(key) and own.endswith(f"-{key}")]
        origin = max(known, key=len, default="")
        if not origin or _OTHER_SIZE.search(own.removeprefix(origin) if own.startswith(origin) else ""):
            return None
        self._tape.assume(f"the configuration of {name} is taken to be that of {origin}, by its name", "model.config")
        return self.configuration(f"{origin}/{folder}" if folder else origin)

    def _documented(self, name: str) -> dict[str, Any] | None:
        """The defaults of the class of transformers whose documentation names a model: they are said to be like it."""
        kind = _kind_documented(name)
        if kind is None:
            return None
        words = f"the configuration of {name} is taken to be the default of transformers' class, which names it"
        self._tape.assume(words, "model.config")
        return {"model_type": kind}

    def configurations(self, module: Any) -> None:
        """transformers.configuration_utils: what cannot be had from the hub comes from the catalogue."""
        cls = getattr(module, "PreTrainedConfig", None) or module.PretrainedConfig
        real = cls.get_config_dict.__func__

        def found(klass: Any, /, name: Any, **kwargs: Any) -> Any:
            try:
                return real(klass, name, **kwargs)
            except Exception:
                known = self.part(name, kwargs.get("subfolder")) or self._documented(str(name))
                if known is None:
                    raise
            kind, heads = known["model_type"], _heads()
            encoder = _ENCODERS.get((kind, kwargs.get("subfolder") or ""))
            known["architectures"] = [encoder or heads[kind]] if encoder or kind in heads else []
            self._tape.assume(f"the configuration of {name} is that of preflight's catalogue")
            return known, {k: v for k, v in kwargs.items() if k not in _HUB_OPTIONS}

        cls.get_config_dict = classmethod(found)

    def models(self, module: Any) -> None:
        """transformers.modeling_utils: models are made from their configuration alone."""
        cls = module.PreTrainedModel
        make: Any = self._from_pretrained
        cls.from_pretrained = classmethod(make)
        replace(cls, "save_pretrained", lambda self, where, *_, **__: os.makedirs(where, exist_ok=True))

    def _from_pretrained(
        self, cls: Any, name: Any = None, *_: Any, config: Any = None, dtype: Any = None, torch_dtype: Any = None,
        attn_implementation: Any = None, device_map: Any = None, output_loading_info: bool = False,
        quantization_config: Any = None, load_in_4bit: bool = False, load_in_8bit: bool = False, **kwargs: Any,
    ) -> Any:  # fmt: skip
        from transformers import AutoConfig

        name = kwargs.pop(_BY_KEYWORD, name)
        part = {"subfolder": kwargs.pop("subfolder")} if kwargs.get("subfolder") else {}
        if config is None:
            config = (cls.config_class if part and cls.config_class else AutoConfig).from_pretrained(name, **part)
        if isinstance(config, (str, os.PathLike)):
            config = AutoConfig.from_pretrained(config)
        stated = quantization_config or getattr(config, "quantization_config", None)
        asked = _asked(stated, load_in_4bit, load_in_8bit)
        if stated is not None and not (asked("load_in_4bit") or asked("load_in_8bit")):
            self._refuse(f"the weights of {name} are quantised in a way that a dry run does not follow")
        for key, value in kwargs.items():
            if hasattr(config, key):
                setattr(config, key, value)
        dtype = _dtype(dtype or torch_dtype, config)
        if dtype is None:
            dtype = torch.float32
            self._tape.assume(f"the dtype of the saved weights of {name} is not known: {dtype}", "train.weights_dtype")
        more = {"attn_implementation": attn_implementation} if attn_implementation else {}
        model = cls._from_config(config, **{_DTYPE[_release() >= (4, 56)]: dtype}, **more).eval()
        self._tape.assume(f"the weights of {name} were not loaded: {cls.__name__} of its configuration, {dtype}")
        if asked("load_in_4bit") or asked("load_in_8bit"):
            model = self._quantise(model, asked)
        elif device_map is not None and str(device_map) != "cpu":
            model = model.to("cuda")
        nothing: dict[str, Any] = {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": [], "error_msgs": []}
        return (model, nothing) if output_loading_info else model


_OF_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
"""How a path on another computer begins."""


def _kind_documented(name: str) -> str | None:
    """The kind of model of the last class whose documentation names a model of the hub; None if none does."""
    import transformers

    models = os.path.join(os.path.dirname(transformers.__file__), "models")
    marks = (f'checkpoint="{name}"', f"[{name}](https://huggingface.co/{name})")
    for path in sorted(glob.glob(os.path.join(models, "*", "configuration_*.py"))) if "/" in name else ():
        with open(path, encoding="utf-8") as file:
            text = file.read()
        at = max(map(text.rfind, marks))
        kinds = _KIND.findall(text[at:]) if at >= 0 else []
        if kinds:
            return str(kinds[0])
    return None


_KIND = re.compile(r"^    model_type = \"(\w[\w-]*)\"", re.MULTILINE)


def copies(module: Any) -> None:
    """transformers.utils.hub: a copy of a model on disk that is not there has no files. The hub takes no such name."""

    def file(real: Any, *args: Any, **kwargs: Any) -> Any:
        path = args[0] if args else kwargs.get("path_or_repo_id")
        name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        on_disk = name.startswith((os.sep, ".", "~")) or name.count("/") > 1 or _OF_WINDOWS.match(name) is not None
        if on_disk and not os.path.exists(name) and kwargs.get("_raise_exceptions_for_missing_entries") is False:
            return None
        return real(*args, **kwargs)

    for name in ("cached_file", "cached_files"):
        wrap(module, name, file)


def _asked(stated: Any, in_4bit: bool, in_8bit: bool) -> Callable[[str], Any]:
    """The options of a BitsAndBytesConfig, or of its older spelling."""
    older: dict[str, Any] = {"load_in_4bit": in_4bit, "load_in_8bit": in_8bit}

    def asked(name: str) -> Any:
        found = stated.get(name) if isinstance(stated, dict) else getattr(stated, name, None)
        return found if found is not None else older.get(name)

    return asked


def _dtype(stated: Any, config: Any) -> Any:
    """The dtype that `from_pretrained` would load weights in; None if it is that of weights that are not there."""
    if stated is None:
        stated = "auto" if _loads_as_saved() else torch.float32
    if stated == "auto":
        stated = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    return getattr(torch, stated.replace("torch.", "")) if isinstance(stated, str) else stated


def _loads_as_saved() -> bool:
    """transformers 5 loads weights in the dtype in which they were saved, earlier ones in fp32."""
    return _release() >= (5,)


def _release() -> tuple[int, ...]:
    """The first two numbers of transformers' release."""
    import transformers

    return tuple(int(part) for part in transformers.__version__.split(".")[:2])


def _heads() -> dict[str, str]:
    """The class with a language head of each kind of model."""
    from transformers.models.auto import modeling_auto as auto

    return {**auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, **auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}


def preprocessing(name: str, classes: str, tape: Tape) -> Callable[[Any], None]:
    """A hook for classes that prepare pictures or sounds, by the function that reads their settings: those that cannot
    be had are at the defaults of their class."""

    def hook(module: Any) -> None:
        cls = getattr(module, classes)
        real = getattr(cls, name).__func__

        def found(klass: Any, /, path: Any, **kwargs: Any) -> Any:
            try:
                return real(klass, path, **kwargs)
            except Exception:
                if os.path.isdir(str(path)):
                    raise
            tape.assume(
                f"the preprocessor of {path} is not there: the defaults of its class stand for it", "train.seq_len"
            )
            return {}, {key: value for key, value in kwargs.items() if key not in _HUB_OPTIONS}

        setattr(cls, name, classmethod(found))

    return hook


WORDS = 32000
"""Words of a tokenizer that nothing tells of, as those of Llama 2 and T5 have."""


class Tokenizers:
    """`from_pretrained` of tokenizers, with a stand-in for those that are not there."""

    def __init__(self, models: HubModels, tape: Tape) -> None:
        self._models, self._tape = models, tape

    def install(self, cls: Any) -> None:
        real = cls.from_pretrained.__func__

        def from_pretrained(klass: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
            name = kwargs.pop(_BY_KEYWORD, name)
            try:
                found = real(klass, name, *args, **kwargs)
                if len(found) > FEWEST:
                    return found
            except Exception:
                if os.path.isdir(str(name)):
                    raise
            return _of_class(self._made(name, kwargs.get("subfolder")), klass)

        cls.from_pretrained = classmethod(from_pretrained)

    def _made(self, name: Any, folder: Any = None) -> Any:
        from tokenizers import Tokenizer, models, pre_tokenizers, processors
        from transformers import AutoConfig, PreTrainedTokenizerFast

        known = self._models.part(name, folder)
        if known is None:
            said = f"the tokenizer {name} has {WORDS} words: its model is not in preflight's catalogue"
            self._tape.assume(said, "model.config")
            known = {"model_type": "llama", "vocab_size": WORDS, "max_position_embeddings": 1 << 30}
        config = AutoConfig.for_model(**known)
        text = config if hasattr(config, "vocab_size") else config.text_config  # of pictures and texts
        words = [*_SPECIAL, *(f"w{i}" for i in range(text.vocab_size - len(_SPECIAL)))]
        raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
        raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        if known["model_type"] in _BETWEEN_MARKS:
            marks = [("<cls>", words.index("<cls>")), ("<sep>", words.index("<sep>"))]
            raw.post_processor = processors.TemplateProcessing("<cls> $A <sep>", "<cls> $A <sep> $B:1 <sep>:1", marks)
        typed = getattr(text, "type_vocab_size", 0) > 1
        names = ["input_ids", "token_type_ids", "attention_mask"] if typed else ["input_ids", "attention_mask"]
        longest = getattr(text, "max_position_embeddings", None) or 1 << 30
        pad = {} if known["model_type"] == "gpt2" else {"pad_token": "<pad>"}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=raw, unk_token="<unk>", bos_token="<s>", eos_token="</s>", cls_token="<cls>",
            sep_token="<sep>", mask_token="<mask>", model_input_names=names, model_max_length=longest, **pad,
        )  # fmt: skip
        tokenizer.chat_template = _TEMPLATE
        tokenizer.add_prefix_space = False  # GPT-2's class before transformers 5 looks at it
        self._tape.assume(f"the tokenizer of {name} is made up, with a token for each word", "train.seq_len")
        return tokenizer


def _of_class(tokenizer: Any, asked: Any) -> Any:
    """The tokenizer as one of the class that was asked for: processors look at it, and programs call its methods."""
    base = type(tokenizer)
    if isinstance(tokenizer, asked) or not isinstance(asked, type) or asked.__name__.startswith("Auto"):
        return tokenizer
    with contextlib.suppress(TypeError):  # classes whose objects are laid out in another way
        both = () if issubclass(asked, base) else (base, asked)
        tokenizer.__class__ = type(asked.__name__, both, {"__module__": asked.__module__}) if both else asked
    return tokenizer


def uploads(module: Any, tape: Tape) -> None:
    """huggingface_hub.hf_api: nothing is sent to the hub. Functions of the module are bound methods of its class."""

    def created(*args: Any, repo_id: Any = None, **_: Any) -> Any:
        names = [one for one in (repo_id, *args) if isinstance(one, str)]
        tape.assume("nothing was uploaded to the hub")
        name = names[0] if names else "model"
        return module.RepoUrl(f"{module.constants.ENDPOINT}/{name if '/' in name else f'user/{name}'}")

    known = {"create_repo": created, **{name: answers(None) for name in _SENDS}}
    for name, value in known.items():
        for home in (module.HfApi, module):
            if hasattr(home, name):
                replace(home, name, value)
