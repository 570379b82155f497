"""From a model's name to a policy: the built-in tiny one, a folder, or a Hugging Face id."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevolve.errors import ConfigError

TINY = Path(__file__).parent / "tiny_policy"
"""The shipped tiny policy; ``make tiny-policy`` rebuilds it from nothing."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model with its tokenizer, and where its weights came from."""

    model: Any
    tokenizer: Any
    source: str


def locate(name: str) -> str:
    """What to hand to ``from_pretrained`` for ``name``.

    Raises:
        ConfigError: a path that holds no model.
    """
    if name == "tiny":
        if not (TINY / "model.safetensors").exists():
            raise ConfigError(
                "the built-in tiny policy is missing from this installation; run 'make tiny-policy'"
            )
        return str(TINY)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ConfigError(
                f"model: {name} is a folder without config.json, so it holds no Hugging Face model"
            )
        return str(path)
    if name.startswith((".", "/", "~")):
        raise ConfigError(f"model: there is no folder {name}")
    return name


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model; it must have a chat template and an end token.

    Raises:
        ConfigError: no tokenizer, or one without a chat template.
    """
    from transformers import AutoTokenizer

    source = locate(name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise ConfigError(_unloadable(name, error)) from None
    if not tokenizer.chat_template:
        raise ConfigError(
            f"model: {name} has no chat template, so it cannot hold a conversation with tools; "
            "use an instruct model or add chat_template.jinja to its folder"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_policy(name: str, precision: str = "fp32") -> Policy:
    """Tokenizer and weights; the engine moves them to where it trains.

    Raises:
        ConfigError: nothing loadable under that name.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(name)
    # On a CPU, bf16 is a matter of autocast: weights in bf16 would round small updates away.
    dtype = torch.bfloat16 if precision == "bf16" and torch.cuda.is_available() else torch.float32
    try:
        model = AutoModelForCausalLM.from_pretrained(locate(name), dtype=dtype)
    except (OSError, ValueError) as error:
        raise ConfigError(_unloadable(name, error)) from None
    except SafetensorError as error:
        raise ConfigError(
            f"model: the weights of {name} cannot be read ({error}); fetch or copy them again"
        ) from None
    return Policy(model, tokenizer, locate(name))


def _unloadable(name: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:200]
    return (
        f"model: cannot load {name!r} ({reason}); give a folder on this disk, a Hugging Face id "
        "that this machine can reach or has cached, or 'tiny'"
    )
