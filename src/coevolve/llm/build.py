"""From ``llm:`` of a configuration to something that answers."""

from __future__ import annotations

from pathlib import Path

from coevolve.config import LlmConfig
from coevolve.errors import ConfigError
from coevolve.llm.base import LLM
from coevolve.llm.cache import CachedLLM, ConfiguredLLM


def build_llm(config: LlmConfig, cache: Path | None = None) -> LLM:
    """The endpoint at ``base_url``, or ``model`` loaded here; its answers kept in the file ``cache``.

    Raises:
        ConfigError: neither is given, a package is missing, or the model cannot be loaded.
    """
    llm = _served(config) if config.base_url else _loaded(config)
    return llm if cache is None else CachedLLM(llm, cache)


def _served(config: LlmConfig) -> ConfiguredLLM:
    if not config.model:
        raise ConfigError(f"llm.model: say which model {config.base_url} should answer with")
    try:
        from coevolve.llm.endpoint import Endpoint
    except ImportError as error:
        raise ConfigError(
            f"llm.base_url: the client needs the package {error.name}; pip install 'coevolve[llm]'"
        ) from None
    return Endpoint(config)


def _loaded(config: LlmConfig) -> ConfiguredLLM:
    if not config.model:
        raise ConfigError(
            "llm: set llm.base_url and llm.model to ask an OpenAI-compatible endpoint, or llm.model alone "
            "(a Hugging Face id or a folder) to load one here"
        )
    from coevolve.llm.local import LocalModel

    return LocalModel.load(config)
