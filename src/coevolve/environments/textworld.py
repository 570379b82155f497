"""TextWorld (the extra ``textworld``): small text adventures, made offline from seeds, as an environment.

Each verb of the game is a tool, so a call is one typed command. A game is a world. Its objective is the
official task of that world, solved by winning; the reference solution is the game's own winning commands.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import textworld

from coevolve.environments.arguments import compile_arguments
from coevolve.environments.base import Environment, Session
from coevolve.environments.cache import alone, cache_root, scratch
from coevolve.environments.grading import References, Rule, judge
from coevolve.environments.recording import RecordingSession
from coevolve.types import Grade, Json, Observation, Origin, Split, Task, ToolCall, ToolSpec, World

VERSION = "1.7.0-r3-o6-q3"  # of the package; rooms, objects, commands to win
SEEDS: Mapping[Split, range] = {"train": range(16), "dev": range(2000, 2004), "test": range(3000, 3008)}
RULE = Rule(answers=False, check_empty=True, abstain=False)
warnings.filterwarnings("ignore", message="Game .* is not fully supported")  # of made games, at each start

# Tool: the command it sends, and what it does. A parameter is called what the state lists its values under.
COMMANDS = {
    "look": ("look", "Look around in the room."),
    "inventory": ("inventory", "List what you carry."),
    "go": ("go {direction}", "Go in a direction."),
    "examine": ("examine {thing}", "Examine a thing."),
    "open": ("open {container_or_door}", "Open a container or door."),
    "close": ("close {container_or_door}", "Close a container or door."),
    "take": ("take {item}", "Take an item."),
    "drop": ("drop {item}", "Drop an item."),
    "insert": ("insert {item} into {container}", "Insert an item into a container."),
    "put": ("put {item} on {support}", "Put an item on a support."),
    "eat": ("eat {food}", "Eat a food."),
    "unlock": ("unlock {container_or_door} with {key}", "Unlock a container or door with a key."),
    "lock": ("lock {container_or_door} with {key}", "Lock a container or door with a key."),
}
# Which of the game's types (object, food, key, container, support, door) go by that name.
_KINDS = {"thing": "ofkcsd", "item": "ofk", "container": "c", "support": "s", "container_or_door": "cd"}
_KINDS |= {"key": "k", "food": "f"}
# What may name a thing: a full stop or 'then' would begin a second command.
_NAME = re.compile(r"(?!.*\bthen\b)[\w' -]{1,60}")
_SLOTS: dict[str, Json] = {"direction": {"type": "string", "enum": ["north", "east", "south", "west"]}}


def _spec(name: str, template: str, description: str) -> ToolSpec:
    slots = {slot: _SLOTS.get(slot, {"type": "string"}) for slot in re.findall(r"{(\w+)}", template)}
    return ToolSpec(name, description, {"type": "object", "properties": slots, "required": list(slots)})


SPECS = tuple(_spec(name, *command) for name, command in COMMANDS.items())
_CHECKS = {spec.name: compile_arguments(spec.parameters) for spec in SPECS}


def _game(world: World) -> Path:
    """The game's file; it is made where it is missing, and appears by one rename."""
    folder = cache_root() / f"textworld-{VERSION}" / world.id
    if not folder.exists():
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects, options.quest_length, options.seeds = 3, 6, 3, world.start
        with alone(folder), scratch(folder) as fresh:
            if not folder.exists():
                options.path = f"{fresh}/made/game.z8"
                textworld.make(options)
                Path(fresh, "made").rename(folder)
    return folder / "game.z8"


def call_of(command: str) -> ToolCall:
    """A command of the game as a call; where something is taken from needs no saying."""
    name = command.partition(" ")[0]
    form = re.sub(r"{(\w+)}", r"(?P<\1>.+?)", COMMANDS[name][0])
    found = re.fullmatch(form + ("(?: from .+)?" if name == "take" else ""), command)
    return ToolCall(name, dict(found.groupdict() if found else {}))


class TextWorldEnvironment(Environment):
    """Games of three rooms, six objects and three commands to win; one a seed."""

    name, version = "textworld", VERSION

    def __init__(self, seeds: Mapping[Split, Sequence[int]] = SEEDS) -> None:
        self._seeds, self._references = seeds, References(asking=True)

    def worlds(self, split: Split) -> Sequence[World]:
        return [World(self.name, f"game-{seed}", split, seed) for seed in self._seeds.get(split, ())]

    def tasks(self, split: Split) -> Sequence[Task]:
        return [self._official(world) for world in self.worlds(split)]

    def _official(self, world: World) -> Task:
        game = textworld.Game.load(str(_game(world).with_suffix(".json")))
        calls = tuple(call_of(command) for command in game.metadata["walkthrough"])
        return Task(self.name, VERSION, world, (game.objective,), (calls,), Origin("official"), world.id)

    def offered(self, world: World) -> Sequence[ToolSpec]:
        return SPECS

    def open(self, world: World) -> Session:
        return TextWorldSession(world)

    def grade(self, task: Task, session: Session) -> Grade:
        turns = session.record()
        findings = judge(turns, self._references.of(self, task), RULE)
        scores = {"strict": float(not any(findings))}
        if task.origin.kind == "official":
            scores["official"] = float(any(isinstance(t.state, dict) and t.state["won"] for t in turns))
        return Grade(scores.get("official", scores["strict"]), scores, findings)


class TextWorldSession(RecordingSession):
    """One game under way, in an interpreter of its own."""

    def __init__(self, world: World) -> None:
        infos = textworld.EnvInfos(facts=True, admissible_commands=True)
        self._environment = textworld.start(str(_game(world)), infos)
        self._now = self._environment.reset()
        super().__init__(world.prefix)

    def _run(self, call: ToolCall) -> Observation:
        wrong = _CHECKS[call.name](call.arguments) if call.name in _CHECKS else "no such tool"
        odd = [value for value in call.arguments.values() if not _NAME.fullmatch(str(value))]
        if wrong or odd or self._now["won"] or self._now["lost"]:
            error = f"{call.name}: {wrong or (f'{odd[0]!r} names no thing' if odd else 'the game is over')}"
            return Observation(f"Error: {error}", None, error)
        command, before = COMMANDS[call.name][0].format(**call.arguments), self._now
        self._now, _, _ = self._environment.step(command)
        # Without the status line and the ending, which count moves: equal answers have equal texts.
        text = " ".join(re.split(r"\n>|\*\*\*", self._now["feedback"])[0].split())
        done = command in before["admissible_commands"] or set(before["facts"]) != set(self._now["facts"])
        return Observation(text, text, None if done else text)

    def state(self) -> Json:
        """Every fact, whether the game is won, and what is within reach, by kind."""
        commands, facts = self._now["admissible_commands"], self._now["facts"]
        near = [(n, kind) for n, kind in self._now["typed_entities"] if f"examine {n}" in commands]
        reach = {k: sorted(n for n, kind in near if kind in letters) for k, letters in _KINDS.items()}
        told = sorted(f"{fact.name}: {', '.join(v.name for v in fact.arguments)}" for fact in facts)
        return {"won": bool(self._now["won"]), "reach": reach, "facts": told}  # type: ignore[dict-item]

    def close(self) -> None:
        self._environment.close()
