"""What a set of synthetic pairs consists of."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mens_pipeline.corpus.schema.training_pair import TrainingPair
from mens_pipeline.language import CONSTRUCTS


@dataclass
class SynthesisAccount:
    """Counts over synthetic pairs.

    Attributes:
        num_pairs: All of them.
        kinds: Template, combination, mutation, repair.
        templates: What made them.
        constructs: What they teach.
        failing: What made programs that were not kept, because a test of their own did not pass.
    """

    num_pairs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    templates: Counter[str] = field(default_factory=Counter)
    constructs: Counter[str] = field(default_factory=Counter)
    failing: Counter[str] = field(default_factory=Counter)

    def add(self, pair: TrainingPair) -> TrainingPair:
        """Count a pair and pass it on.

        Args:
            pair: A synthetic pair.
        """
        self.num_pairs += 1
        self.kinds[pair.task_family] += 1
        self.templates[str(pair.template)] += 1
        self.constructs[pair.category] += 1
        return pair

    def fail(self, template: str) -> None:
        """Count a program that was not kept.

        Args:
            template: What made it.
        """
        self.failing[template] += 1

    def as_json(self, coverage: Mapping[str, int]) -> dict[str, Any]:
        """Return the counts and shares in JSON types.

        Args:
            coverage: Construct -> examples there were before.
        """
        return {
            "num_pairs": self.num_pairs,
            "failing_tests": dict(sorted(self.failing.items())),
            "kinds": self._shares(sorted(self.kinds), self.kinds),
            "templates": self._shares(sorted(self.templates), self.templates),
            "constructs": {
                name: {"before": coverage.get(name, 0), **self._share(self.constructs[name])} for name in CONSTRUCTS
            },
        }

    def _shares(self, names: Iterable[str], counts: Counter[str]) -> dict[str, Any]:
        return {name: self._share(counts[name]) for name in names}

    def _share(self, count: int) -> dict[str, Any]:
        return {"count": count, "share": count / self.num_pairs if self.num_pairs else None}


def coverage_of(constructs: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Construct -> texts that show it.

    Args:
        constructs: Construct -> number of declarations, for each text.
    """
    counts: Counter[str] = Counter()
    for shown in constructs:
        counts.update(shown.keys())
    return {name: counts[name] for name in CONSTRUCTS}
