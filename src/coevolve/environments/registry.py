"""Environments by name: registered ones, or anyone's own as ``module:Class``.

Such a class is an :class:`Environment`, or a plain one for :class:`ToolboxEnvironment`."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from coevolve.config import EnvironmentConfig
from coevolve.environments.base import Environment
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.environments.workers import CALL_SECONDS, MEMORY_MB, WorkerEnvironment
from coevolve.errors import UnknownEnvironmentError


@dataclass(frozen=True, slots=True)
class Registered:
    """An environment that comes with CoEvolve; text, so that nothing is imported before it is asked for."""

    target: str
    """``module:Class`` of the :class:`Environment`."""
    package: str = ""
    """The module that knows what it needs: ``status() -> str`` in one line, and ``install() -> str``,
    which fetches it and says where it lies; where the benchmark's data is not part of that,
    ``fetch_data() -> Path``. ``""``: nothing but its extra."""
    extra: str = ""
    """The extra of CoEvolve that holds its Python package, which has the same name; '' if there is none."""

    @property
    def lacks(self) -> str:
        """What to do before it can be used; '' if nothing."""
        if self.extra and find_spec(self.extra) is None:
            return f"not installed; \"pip install 'coevolve[{self.extra}]'\" does so"
        return ""


REGISTERED: dict[str, Registered] = {
    "bfcl": Registered("coevolve.environments.bfcl:BfclEnvironment", "coevolve.environments.bfcl.package"),
    "appworld": Registered(
        "coevolve.environments.appworld:AppWorldEnvironment", "coevolve.environments.appworld.package"
    ),
    "appworld-challenge": Registered(
        "coevolve.environments.appworld:AppWorldChallenge", "coevolve.environments.appworld.package"
    ),
    "textworld": Registered("coevolve.environments.textworld:TextWorldEnvironment", extra="textworld"),
}


def make(config: EnvironmentConfig) -> Environment:
    """The environment that ``config`` names, in this process.

    ``config.classes``, ``root`` and ``release`` are handed on where the class has parameters of those
    names, and refused where it has not; ``workers`` and ``call_seconds`` are handed on to a class that
    keeps processes of its own.

    Raises:
        UnknownEnvironmentError: an unknown name, a module or class that cannot be imported, a class
            that is no :class:`Environment`, an extra that is not installed, or tool classes, a root
            folder or a release that it does not know.
    """
    build = _builder(config)
    takes = inspect.signature(build).parameters
    given: dict[str, object] = {}
    for key, value, what in (
        ("classes", config.classes, "tool classes to select"),
        ("root", config.root, "root folder to choose"),
        ("release", config.release, "releases to choose from"),
    ):
        if key in takes:
            given[key] = value
        elif value not in ("all", None):
            raise UnknownEnvironmentError(
                f"environment {config.name!r} has no {what}; remove 'environment.{key}'"
            )
    if "workers" in takes:
        given["workers"] = config.workers
        if config.call_seconds is not None:
            given["call_seconds"] = config.call_seconds
        if config.memory_mb is not None and "memory_mb" in takes:
            given["memory_mb"] = config.memory_mb
    environment = build(**given)
    if not isinstance(environment, Environment):
        raise _no_environment(config.name)
    return environment


def pooled(config: EnvironmentConfig) -> AbstractContextManager[Environment]:
    """The same with its sessions in ``config.workers`` processes, a deadline on every call.

    Those of a class with a parameter ``workers`` are its own, and it is such a context manager itself.

    Raises:
        UnknownEnvironmentError: as :func:`make`.
    """
    if "workers" in inspect.signature(_builder(config)).parameters:
        environment = make(config)
        assert isinstance(environment, AbstractContextManager), (
            f"{config.name} keeps processes, but for how long?"
        )
        return environment
    memory = MEMORY_MB if config.memory_mb is None else config.memory_mb
    return WorkerEnvironment(
        partial(make, config), config.workers, config.call_seconds or CALL_SECONDS, memory
    )


def _builder(config: EnvironmentConfig) -> Callable[..., object]:
    registered = REGISTERED.get(config.name)
    if registered and registered.lacks:
        raise UnknownEnvironmentError(f"environment {config.name!r} is {registered.lacks}")
    target = registered.target if registered else config.name
    if ":" not in target:
        near = difflib.get_close_matches(config.name, REGISTERED, n=1, cutoff=0.0)
        raise UnknownEnvironmentError(
            f"unknown environment {config.name!r}, did you mean {near[0]!r}? "
            "Your own environment is named 'module:Class'"
        )
    return _load(target)


def known() -> dict[str, str]:
    """The registered environments, and whether each is ready to use here."""
    return {name: _status(entry) for name, entry in REGISTERED.items()}


def _status(entry: Registered) -> str:
    if entry.lacks or not entry.package:
        return entry.lacks or "ready"
    return str(importlib.import_module(entry.package).status())


def install(name: str, data: bool = False, release: str | None = None) -> str:
    """Fetch what a registered environment needs; says where it lies.

    Args:
        data: fetch the benchmark's data as well, where that is apart.
        release: of its package; None takes the pinned one.

    Raises:
        UnknownEnvironmentError: no registered environment has that name, its extra is not installed, or
            it has no such release.
        CoEvolveError: it is missing and cannot be fetched.
    """
    if name not in REGISTERED:
        raise UnknownEnvironmentError(f"unknown environment {name!r}; known: {', '.join(REGISTERED)}")
    entry = REGISTERED[name]
    if entry.lacks:
        raise UnknownEnvironmentError(f"environment {name!r} is {entry.lacks}")
    module = importlib.import_module(entry.package) if entry.package else None
    if release is None:
        said = f"{name}: {module.install() if module else 'ready'}"
    elif module and "release" in inspect.signature(module.install).parameters:
        said = f"{name}: {module.install(release=release)}"
    else:
        raise UnknownEnvironmentError(f"environment {name!r} has no releases to choose from; omit --release")
    if data and not hasattr(module, "fetch_data"):
        return f"{said}; it has no data apart from that"
    return f"{said}; its data in {module.fetch_data()}" if data and module else said


def _no_environment(name: str) -> UnknownEnvironmentError:
    return UnknownEnvironmentError(
        f"{name!r} is no environment: derive it from Environment, or give it 'worlds' and documented methods"
    )


def _load(target: str) -> Callable[..., object]:
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's own module may do anything
        what = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise UnknownEnvironmentError(
            f"environment {target!r}: cannot import {module_name!r}: {what}"
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        known = [name for name, value in vars(module).items() if inspect.isclass(value)]
        near = difflib.get_close_matches(attribute, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise UnknownEnvironmentError(
            f"environment {target!r}: {module_name!r} has no class {attribute!r}{hint}"
        )
    if inspect.isclass(found) and not issubclass(found, Environment) and hasattr(found, "worlds"):
        return partial(ToolboxEnvironment, found)
    if inspect.isclass(found) and not issubclass(found, Environment):
        raise _no_environment(target)
    build: Callable[..., object] = found
    return build
