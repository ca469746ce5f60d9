"""Tables in memory, for the tasks that ask for them (U5)."""

from dataclasses import dataclass, field

from mens_pipeline.language.interpreter.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A table as programs hold it; its records are in the `Database` of the running test."""

    name: str


@dataclass(slots=True)
class Database:
    """The records of one test: table -> id -> record."""

    records: dict[str, dict[int, dict[str, Value]]] = field(default_factory=dict)
    num_inserted: dict[str, int] = field(default_factory=dict)

    def of(self, table: Table) -> dict[int, dict[str, Value]]:
        """Return the records of a table by their ids, oldest first."""
        return self.records.setdefault(table.name, {})

    def next_id(self, table: Table) -> int:
        """Return the id of a new record; ids count from 1 and are not used twice."""
        self.num_inserted[table.name] = self.num_inserted.get(table.name, 0) + 1
        return self.num_inserted[table.name]
