"""A model behind an OpenAI-compatible endpoint: vLLM, SGLang, Ollama, llama.cpp, or a hosted one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import openai
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from coevolve.config import LlmConfig
from coevolve.errors import ConfigError
from coevolve.llm import requests
from coevolve.llm.address import is_address, plain_url
from coevolve.llm.ask import Ask, seconds_left
from coevolve.llm.base import Ledger, Message, NoToolsError, OutageError, Reply, SpentError, TooLongError
from coevolve.llm.faults import (
    AnswerFault,
    passing_fault,
    read_answer,
    retry_after,
    says_too_long,
    short,
    whole_body,
)
from coevolve.llm.spending import Meter, estimated_prompt, estimated_tokens
from coevolve.types import Json, ToolSpec

_MISCONFIGURED = (401, 403, 404)
_SEEDS = 2**31
_USELESS = ("empty_content", "empty_choices", "wrong_shape", "bad_call")
"""Faults after which the same seed could give the same again."""
_FAULT_NAMES = {"tools": "native_tools", "response_format": "json_schema"}


class Endpoint:
    """The model ``config.model`` at ``config.base_url``, asked through the ``openai`` SDK.

    Requests run in one event loop in a thread of their own, at most ``config.concurrency`` at once;
    :meth:`complete` is for callers in threads. An answer, its retries and pauses take no longer than
    ``config.attempts * config.seconds``, not counting the time until its turn comes.

    Args:
        config: the key is read from the environment variable that ``config.key`` names.
        back_off: seconds before the second request, doubled for each further one, with jitter.
        silence: whether a message of nothing is an answer, as it is where it ends a turn; else it is a fault.

    Raises:
        ConfigError: a base URL or key that cannot be used.
    """

    def __init__(self, config: LlmConfig, back_off: float = 0.5, *, silence: bool = False) -> None:
        url = config.base_url or ""
        if not is_address(url):
            raise ConfigError(
                f"llm.base_url: {url!r} is no address such as http://localhost:8000/v1 or https://api.host.com/v1"
            )
        self.config = config
        self.name = f"{config.model}@{plain_url(url)}"
        self.concurrency = config.concurrency
        self.meter = Meter.of(config)
        self._key = os.environ.get(config.key, "").strip()
        if not self._key.isascii():
            raise ConfigError(f"the key in the environment variable {config.key} has letters no key can have")
        self._client = openai.AsyncOpenAI(
            base_url=url,
            api_key=self._key or "none",  # local servers need no key, the SDK does
            timeout=config.seconds,
            max_retries=0,  # each fault is ours to count
        )
        self._back_off = back_off
        self._silence = silence
        self._refused = frozenset({"tools"}) if config.tools == "text" else frozenset()
        self._taken: frozenset[str] = frozenset()
        self._slots = asyncio.Semaphore(config.concurrency)
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def native_tools(self) -> bool:
        """Whether tools may be given; false for good once the endpoint has refused them."""
        return "tools" not in self._refused

    def complete(
        self,
        messages: Sequence[Message],
        *,
        stage: str,
        ledger: Ledger,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Json] | None = None,
        seed: int = 0,
    ) -> Reply:
        """See :meth:`coevolve.llm.base.LLM.complete`.

        Raises:
            ConfigError: before its first answer: a key, model or URL that the endpoint does not know.
        """
        left = self.config.attempts * self.config.seconds
        prompt = estimated_prompt(messages, tools)
        ask = Ask(messages, tools, schema, seed, stage, ledger, prompt, left)
        future = self._submit(ask)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise OutageError(f"the client of {self.name} was closed while it waited for an answer") from None
        except BaseException:
            future.cancel()  # of an interrupt: nothing goes on asking behind the caller's back
            raise

    def close(self) -> None:
        """Give up on what is under way and stop the thread; what waits gets an OutageError."""
        with self._lock:
            was_open, self._closed, thread = not self._closed, True, self._thread
            if was_open and thread is not None:
                asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
        if thread is not None:
            thread.join(timeout=5.0)
        elif was_open:
            self._loop.close()

    def _submit(self, ask: Ask) -> concurrent.futures.Future[Reply]:
        with self._lock:  # so that nothing is put into a loop that is about to stop
            if self._closed:
                raise OutageError(f"the client of {self.name} is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="llm-endpoint", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(self._answer(ask), self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _stop(self) -> None:
        loop = asyncio.get_running_loop()
        waiting = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await self._client.close()
        loop.stop()

    async def _answer(self, ask: Ask) -> Reply:
        async def pause(seconds: float) -> None:
            await self._pause(ask, seconds)

        retrying = AsyncRetrying(
            stop=stop_after_attempt(self.config.attempts),
            wait=lambda state: ask.wait(state, self._back_off),
            retry=retry_if_exception_type(AnswerFault),
            sleep=pause,
            reraise=True,
        )
        try:
            reply: Reply = await retrying(self._attempt, ask)
        except AnswerFault:
            times = self.config.attempts
            raise self._outage(ask, f"{times} requests" if times > 1 else "one request") from None
        self.meter.answered(ask.ledger, ask.stage)
        return reply

    async def _attempt(self, ask: Ask) -> Reply:
        """One request; sent again at once if only a part of it was refused."""
        while True:
            room = self.meter.room(ask.ledger, ask.prompt)
            if ask.tools and not self.native_tools:
                raise NoToolsError(f"{self.name} takes no native tools; ask by the text protocol")
            seed = (ask.seed + 1_000_003 * ask.useless) % _SEEDS
            settings = {"seed": seed, "temperature": self.config.temperature, "max_tokens": room}
            whole = requests.build(self.config.model, ask.messages, ask.tools, ask.schema, settings)
            sent = requests.without(whole, self._refused)
            try:
                return await self._request(ask, sent)
            except openai.APIStatusError as error:
                self._refusal(ask, sent, error)
            except AnswerFault as fault:
                ask.ledger.fault(fault.kind)
                ask.useless += fault.kind in _USELESS
                ask.last = self._redacted(str(fault))
                if fault.usage is not None:
                    self.meter.used(ask.ledger, ask.stage, *fault.usage)
                raise

    async def _request(self, ask: Ask, body: dict[str, Any]) -> Reply:
        """Send ``body`` once, within the deadline, and read the answer.

        Raises:
            AnswerFault: none that can be used; another request may get one.
            openai.APIStatusError: the endpoint refuses this very request.
        """
        create: Any = self._client.chat.completions.with_streaming_response.create
        async with self._slots:
            loop = asyncio.get_running_loop()
            began, deadline = loop.time(), ask.deadline(self.config.seconds)
            try:
                async with asyncio.timeout(deadline):  # the SDK's own starts again with every byte
                    async with create(**body) as response:
                        content = await whole_body(response)
            except (TimeoutError, openai.APITimeoutError):
                raise AnswerFault("timeout", f"no answer within {deadline:.3g} s") from None
            except openai.APIConnectionError as error:
                raise AnswerFault("connection", short(str(error.__cause__ or error))) from None
            except openai.APIStatusError as error:
                if (kind := self._passing(error, body)) is None:
                    raise
                wait = retry_after(error.response.headers)
                raise AnswerFault(kind, f"{error.status_code} {short(error.message)}", wait) from None
            finally:
                seconds = loop.time() - began
                ask.left -= min(seconds, deadline)  # more is the machine's own delay, not the endpoint's
                self.meter.waited(ask.ledger, ask.stage, seconds)
        reply, usage = read_answer(content, self._silence)
        self._taken |= body.keys()
        if usage is None:
            ask.ledger.fault("no_usage")
            written = reply.text + "".join(call.name + call.arguments for call in reply.calls)
            usage = ask.prompt, estimated_tokens(written)
        self.meter.used(ask.ledger, ask.stage, *usage)
        return replace(reply, prompt_tokens=usage[0], completion_tokens=usage[1])

    def _passing(self, error: openai.APIStatusError, sent: Mapping[str, Any]) -> str | None:
        """The kind of a fault that may pass; None where the same request would be refused again."""
        refused = self._refused_part(error, sent) is not None
        return None if refused else passing_fault(error.status_code, error.code)

    def _refused_part(self, error: openai.APIStatusError, sent: Mapping[str, Any]) -> str | None:
        return requests.refused_part(error.status_code, error.message, sent, self._taken)

    def _refusal(self, ask: Ask, sent: Mapping[str, Any], error: openai.APIStatusError) -> None:
        """Leave out the refused part from now on, or give up."""
        part = self._refused_part(error, sent)
        said = self._redacted(f"{error.status_code}, {short(error.message)}")
        if part == "tools" and self.config.tools == "native":
            raise ConfigError(
                f"llm.tools: {self.name} takes no native tools ({said}); set it to text or auto"
            )
        if part is not None:
            ask.ledger.fault(f"no_{_FAULT_NAMES.get(part, part)}")
            self._refused |= {part}
            return
        # What has answered is configured rightly: a later 401 or 404 is an outage like any other.
        if error.status_code in _MISCONFIGURED and not self._taken:
            ask.ledger.fault("refused")
            raise ConfigError(
                f"llm: {plain_url(self.config.base_url or '')} refuses {self.config.model!r} ({said}); "
                f"check llm.base_url, llm.model and the key in the environment variable {self.config.key}"
            ) from None
        too_long = says_too_long(error.message)
        ask.ledger.fault("context_too_long" if too_long else "refused")
        kind = TooLongError if too_long else OutageError
        raise kind(f"{self.name} refuses the request ({said})") from None

    async def _pause(self, ask: Ask, seconds: float) -> None:
        if seconds > ask.left:
            raise self._outage(
                ask, f"a pause of {seconds:.4g} s is asked for and {max(0.0, ask.left):.3g} s are left"
            )
        if seconds > seconds_left(ask.ledger):
            ask.ledger.fault("spent_seconds")
            raise SpentError(
                f"this exploration has {max(0.0, seconds_left(ask.ledger)):.3g} s left to wait, and "
                f"{self.name} should be asked again in {seconds:.3g} s"
            )
        await asyncio.sleep(seconds)
        ask.left -= seconds
        self.meter.waited(ask.ledger, ask.stage, seconds)

    def _outage(self, ask: Ask, why: str) -> OutageError:
        allowed = f"llm.attempts {self.config.attempts}, llm.seconds {self.config.seconds:g}"
        return OutageError(f"{self.name} gave no usable answer after {why} ({allowed}); last: {ask.last}")

    def _redacted(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text
