"""An explorer without an LLM: tool schemas, live observations, and what earlier explorations taught.

Nothing of any benchmark is written here: it reads names, descriptions and schemas, tries calls,
reads error texts to find what is missing, and remembers what helped (section 3.2).
"""

from __future__ import annotations

import random
from typing import Any

from coevolve.config import ExploreConfig
from coevolve.environments.base import Environment
from coevolve.errors import BrokenWorldError
from coevolve.explore.arguments import Chooser
from coevolve.explore.base import Exploration, must_be_of
from coevolve.explore.corpus import Corpus
from coevolve.explore.errander import Errander
from coevolve.explore.focus import Plan, plan_from
from coevolve.explore.memory import Memory
from coevolve.explore.scene import Scene
from coevolve.explore.schema import Tool, read_tool
from coevolve.explore.scout import Scout
from coevolve.llm.base import Ledger
from coevolve.types import Signal, Split, Triplet, World


class ScriptedExplorer:
    """Explores worlds of one split; deterministic given the generator and its own memory.

    Args:
        environment: where it acts.
        config: ``calls`` bounds one exploration.
        split: the only split whose worlds it accepts. The loop uses ``train``; an evaluation that
            draws its own unguided test constructs another explorer for its own split.
    """

    name = "scripted"

    def __init__(
        self, environment: Environment, config: ExploreConfig | None = None, split: Split = "train"
    ) -> None:
        self._environment = environment
        self._config = config or ExploreConfig()
        self._split: Split = split
        self._corpus: Corpus | None = None
        self.memory = Memory()
        self.broken = 0
        """Explorations cut short because the world could no longer be compared."""

    @property
    def corpus(self) -> Corpus:
        """Values of all worlds of the split; read on first use."""
        if self._corpus is None:
            # Where the agent finds out for itself, a world's insides are nothing that a user would say.
            look = self._environment.closing() is None
            self._corpus = Corpus(self._environment, self._split, look)
        return self._corpus

    def explore(
        self,
        world: World,
        rng: random.Random,
        signal: Signal | None = None,
        lead: tuple[str, ...] = (),
        ledger: Ledger | None = None,
    ) -> Exploration:
        """Act in ``world`` for at most ``config.calls`` calls.

        Unguided without ``signal`` and ``lead``. With ``lead``, first bring about a success of each
        tool in turn. With ``signal``, lead with the pattern that failed, vary it and extend it. No
        language model is asked, and ``ledger`` stays as it is.

        Raises:
            HeldOutError: the world is not of this explorer's split.
            InfrastructureError: the world broke.
        """
        must_be_of(self._split, world)
        tools = {spec.name: read_tool(spec) for spec in self._environment.offered(world)}
        plan = (
            plan_from(signal, tools, rng, self._environment.names) if signal is not None else Plan(lead=lead)
        )
        closing = self._environment.closing()
        if closing is not None:
            means = closing.name.rpartition(".")[0]
            return self._errand(world, tools, means, plan, rng, signal)
        with self._environment.open(world) as session:
            scene = Scene(session, tools, self._config.calls)
            scene.focus = [
                v for call in world.prefix[-3:] for v in call.arguments.values() if isinstance(v, str)
            ]
            scout = Scout(scene, Chooser(self.corpus, self.memory), self.memory, plan, rng)
            try:
                scout.run()
            except BrokenWorldError:
                self.broken += 1
        return Exploration(world, tuple(scene.triplets), self.name, signal, plan.lead)

    def _errand(
        self,
        world: World,
        tools: dict[str, Tool],
        means: str,
        plan: Plan,
        rng: random.Random,
        signal: Signal | None,
    ) -> Exploration:
        """The same where an agent has to find things out before it can act."""
        triplets: list[Triplet] = []
        with self._environment.open(world) as session:
            try:
                errander = Errander(
                    session, tools, means, self._config.calls, self.corpus, self.memory, plan, rng
                )
                triplets = errander.triplets
                errander.run()
            except BrokenWorldError:
                self.broken += 1
        return Exploration(world, tuple(triplets), self.name, signal, plan.lead)

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory.state_dict(), "broken": self.broken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory.load_state_dict(state["memory"])
        self.broken = state["broken"]
