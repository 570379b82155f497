"""The package's back-end classes, made fit for many worlds in one process.

The back ends keep some state outside their instances; here is each case and what is done about it:

- ``math_api`` sets the precision of ``decimal`` and ``mpmath``: every call runs in a saved context
  and its answer is rendered inside it;
- ``vehicle_control`` answers from one shared dictionary: calls hold a lock until the answer is text;
- ``travel_booking`` puts records of a shared table into the instance and then changes them: copied
  after loading;
- ``posting_api`` stores default arguments and then changes them: every call gets its own;
- ``travel_booking`` reads today's date, ``trading_bot`` the time zone: both are fixed;
- each loads by a deep copy of its module's default state, which is half the cost of a new world: quicker;
- error texts that list a set depend on the hash seed: put in order.
"""

from __future__ import annotations

import ast
import calendar
import copy
import decimal
import inspect
import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from typing import Any, Self

from coevolve.environments.arguments import Check, compile_arguments
from coevolve.environments.bfcl import package
from coevolve.environments.bfcl.tools import CLASSES, specs

_PREFIX = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
STATELESS = frozenset({"MathAPI"})

TODAY = date(2026, 3, 23)
"""The date on which every world lives: the package's release."""

# Held while a back end runs: what they share is process-wide, and sessions live in several threads.
process_wide = threading.RLock()


class _FixedClock(datetime):
    """A :class:`datetime` with one today and one time zone (UTC), whatever the machine has."""

    @classmethod
    def today(cls) -> Self:
        return cls(TODAY.year, TODAY.month, TODAY.day)

    def timestamp(self) -> float:
        return float(calendar.timegm(self.timetuple()))

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: Any = None) -> Self:
        moment = datetime.fromtimestamp(timestamp, UTC)
        return cls(*moment.timetuple()[:6])


@dataclass(frozen=True, slots=True)
class Tool:
    """How to call one tool safely."""

    name: str
    group: str
    check: Check
    """What keeps a call from being run at all: an argument that is missing, unknown or not JSON. Of which
    type it is, the method itself judges, as it does in the package; a tool's schema is held against calls
    where they are written, by the agent loop and the explorers."""
    fresh: tuple[tuple[str, str], ...]
    """Parameters whose default is a shared list or dict, with the default's source text."""


@cache
def backend(class_name: str, release: str = package.VERSION) -> Any:
    """The class itself, imported once per process and with its clock fixed."""
    module = package.import_module(f"{_PREFIX}.{CLASSES[class_name][0]}", release)
    if "DEFAULT_STATE" in module.__dict__:
        module.__dict__["deepcopy"] = _copier(module.__dict__["DEFAULT_STATE"])
    if class_name in ("TravelAPI", "TradingBot"):
        module.__dict__["datetime"] = _FixedClock
    if class_name == "TradingBot":
        now = module.__dict__["CURRENT_TIME"]
        module.__dict__["CURRENT_TIME"] = _FixedClock(*now.timetuple()[:6])
    return getattr(module, class_name)


def _copier(default: Any) -> Callable[[Any], Any]:
    """``deepcopy`` for one module, quick where it copies the default state: every new world does."""
    pickled = pickle.dumps(default, pickle.HIGHEST_PROTOCOL)
    return lambda value: pickle.loads(pickled) if value is default else copy.deepcopy(value)


@cache
def tool_table(class_name: str, release: str = package.VERSION) -> dict[str, Tool]:
    """Tool name -> :class:`Tool` for one class: the allow-list."""
    table = {}
    for spec in specs(class_name, release):
        method = inspect.signature(getattr(backend(class_name, release), spec.name))
        defaults = {name: p.default for name, p in method.parameters.items() if name != "self"}
        shared = tuple((n, repr(d)) for n, d in defaults.items() if isinstance(d, (list, dict)))
        required = [n for n, default in defaults.items() if default is inspect.Parameter.empty]
        check = compile_arguments({"properties": {n: {} for n in defaults}, "required": required})
        table[spec.name] = Tool(spec.name, class_name, check, shared)
    return table


def build(class_name: str, config: str | None, long_context: bool, release: str = package.VERSION) -> Any:
    """A fresh instance, loaded as the official executor loads it."""
    instance = backend(class_name, release)()
    if class_name not in STATELESS:
        with process_wide:
            instance._load_scenario(json.loads(config or "{}"), long_context=long_context)
            if long_context and class_name == "TravelAPI":
                instance.credit_card_list = copy.deepcopy(instance.credit_card_list)
                instance.booking_record = copy.deepcopy(instance.booking_record)
    return instance


def run(tool: Tool, method: Callable[..., Any], arguments: dict[str, Any]) -> tuple[str, Any, str | None]:
    """Call ``method``; returns (text as the official executor renders it, answer as data, error)."""
    given = {
        name: copy.deepcopy(value) if isinstance(value, (list, dict)) else value
        for name, value in arguments.items()
    }
    for name, source in tool.fresh:
        given.setdefault(name, ast.literal_eval(source))
    with process_wide, _own_precision(method):
        try:
            result = method(**given)
            if tool.name == "book_flight":
                _order_set_in(result)
            text = _render(result)
        except MemoryError:
            raise  # its worker's, and not always this call's fault
        except Exception as error:
            # The official executor catches all of them: a failing call is an answer, not a crash.
            text = f"Error during execution: {error}"
            return text, None, text
    return text, _data(result, text), _error_in(result)


@contextmanager
def _own_precision(method: Callable[..., Any]) -> Iterator[None]:
    # The copy of mpmath that the back end imported: another one may have been loaded before, by sympy.
    mpmath = sys.modules[method.__module__].__dict__.get("mpmath")
    if mpmath is None:
        yield
        return
    mp = mpmath.mp
    before = mp.dps
    try:
        with decimal.localcontext():
            yield
    finally:
        mp.dps = before


def _render(result: Any) -> str:
    if type(result) is str:
        return result
    if type(result) is dict:
        try:
            return json.dumps(result)
        except Exception:
            return str(result)
    return str(result)


def _data(result: Any, text: str) -> Any:
    """The answer as JSON data of its own, sharing nothing with the live world."""
    if result is None or isinstance(result, (str, bool, int, float)):
        return result
    if type(result) is dict and text.startswith('{"'):
        return json.loads(text)
    try:
        return json.loads(json.dumps(result))
    except Exception:
        return text


def _error_in(result: Any) -> str | None:
    """The error that an answer reports: under ``error``, alone or as the only item of a list."""
    if isinstance(result, list) and len(result) == 1:
        only = result[0]
        if isinstance(only, str) and only.startswith("Error: "):
            return only
        result = only
    if isinstance(result, dict) and "error" in result:
        return str(result["error"])
    return None


def _order_set_in(result: Any) -> None:
    marker = "Must be one of {"
    text = result.get("error", "") if isinstance(result, dict) else ""
    if isinstance(text, str) and marker in text:
        head, _, tail = text.partition(marker)
        result["error"] = head + marker + ", ".join(sorted(tail.rstrip("}").split(", "))) + "}"
