"""Methods of tables in memory (U5)."""

from typing import Final

from mens_pipeline.language.interpreter.database import Table
from mens_pipeline.language.interpreter.equality import equal
from mens_pipeline.language.interpreter.library.arguments import a_record, an_int
from mens_pipeline.language.interpreter.machine import Machine
from mens_pipeline.language.interpreter.results import Refusal
from mens_pipeline.language.interpreter.values import NONE, UNIT, Native, Refused, Value, Variant, error, ok, some


def _insert(machine: Machine, table: Table, record: Value) -> Variant:
    fields = a_record(record, "what `insert` stores")
    machine.allocate(1 + len(fields))
    number = machine.database.next_id(table)
    machine.database.of(table)[number] = {**fields, "_id": number}
    return ok(number)


def _find(machine: Machine, table: Table, number: Value) -> Variant:
    record = machine.database.of(table).get(an_int(number, "an id"))
    return NONE if record is None else some(record)


def _all(machine: Machine, table: Table) -> list[Value]:
    records = machine.database.of(table)
    machine.allocate(len(records))
    return list(records.values())


def _filter(machine: Machine, table: Table, fields: Value) -> list[Value]:
    wanted = a_record(fields, "what `filter` compares").items()
    return [
        record
        for record in _all(machine, table)
        if all(key in record and equal(machine, record[key], value) for key, value in wanted)
    ]


def _count(machine: Machine, table: Table) -> int:
    return len(machine.database.of(table))


def _delete(machine: Machine, table: Table, number: Value) -> Variant:
    records = machine.database.of(table)
    if records.pop(an_int(number, "an id"), None) is None:
        return error(f"{table.name} has no record {number}")
    return ok(UNIT)


def _refused(name: str) -> Native:
    def refuse(_machine: Machine, table: Table, *_arguments: Value) -> Value:
        raise Refused(Refusal.DATABASE, f"db.{table.name}.{name}").fault()

    return Native(name, refuse, 0, 100)


TABLE_METHODS: Final[dict[str, Native]] = {
    native.name: native
    for native in (
        Native("insert", _insert, 1, 1),
        Native("get", _find, 1, 1),
        Native("find", _find, 1, 1),
        Native("all", _all, 0, 0),
        Native("filter", _filter, 1, 1),
        Native("count", _count, 0, 0),
        Native("delete", _delete, 1, 1),
        *map(_refused, ("update", "where", "order_by", "limit", "select", "first")),
    )
}
