"""Converts rows whose columns have types to raw rows of a source: a value has its declared type, or is text that is cast later."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, BinaryType, StructField, StructType

from assets.contracts import SourceContract
from operators.columns import quoted_name
from platform_defs.engine.formats.raw_rows import new_column_fault, type_fault
from platform_defs.engine.formats.values import convert, is_lost, nullable, to_text

_MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]"
_JSON = {"ignoreNullFields": "false", "timestampFormat": f"{_MICROSECONDS}[XXX]", "timestampNTZFormat": _MICROSECONDS}


def column_of(name: str) -> Column:
    """A column by its name, which may contain any character."""
    return F.col(quoted_name(name))


@dataclass(frozen=True)
class TypedRows:
    """The columns of a source, made from rows with a schema.

    A column of the declared type is unchanged. A column of another type becomes text, to be cast and validated; if the declared type is
    nested, the column is converted here, part by part.

    Args:
        contract: the source's contract.
        schema: the rows' schema; the case of names is ignored.
        column_named: returns a column of the rows, given its name in the schema.
    """

    contract: SourceContract
    schema: StructType
    column_named: Callable[[str], Column] = column_of

    @property
    def columns(self) -> list[Column]:
        """The source's columns. A column that the schema lacks is null."""
        return [self._as_declared(field).alias(field.name) for field in self.contract.struct.fields]

    @property
    def faults(self) -> list[Column]:
        """The reasons to reject a row, each null if it does not apply: new columns, and values of another type."""
        new_columns = F.lit(new_column_fault(self.contract, self.schema.names)).cast("string")
        type_faults = [self._type_fault(field) for field in self.contract.struct.fields]
        return [new_columns, *[fault for fault in type_faults if fault is not None]]

    def as_json(self, names: Sequence[str]) -> Column:
        """A row as a JSON object that the JSON reader reads as the same row: with the contract's names and all digits of times.

        Args:
            names: the columns of the schema that the object contains.
        """
        declared = {name.lower(): name for name in self.contract.struct.fieldNames()}
        return F.to_json(F.struct(*[self.column_named(c).alias(declared.get(c.lower(), c)) for c in names]), _JSON)

    def _stored_name(self, declared: StructField) -> str | None:
        """The name that a column of the contract has in the rows' schema; None if the schema lacks it."""
        return {name.lower(): name for name in self.schema.names}.get(declared.name.lower())

    def _as_declared(self, declared: StructField) -> Column:
        name, target = self._stored_name(declared), nullable(declared.dataType)
        if name is None:
            return F.lit(None).cast(target)
        if self.schema[name].dataType == target:
            return self.column_named(name)
        stored_type = nullable(self.schema[name].dataType)
        if isinstance(target, AtomicType):
            return to_text(self.column_named(name), stored_type)
        return convert(self.column_named(name), stored_type, target).cast(target)

    def _type_fault(self, declared: StructField) -> Column | None:
        """Why a row is rejected if `_as_declared` loses the column's value; None if it loses none, as for text, which keeps every value."""
        name = self._stored_name(declared)
        if name is None:
            return None
        stored_type, target = nullable(self.schema[name].dataType), nullable(declared.dataType)
        is_text = isinstance(target, AtomicType) and not isinstance(stored_type, BinaryType)
        if stored_type == target or (is_text and not SourceContract.is_added(declared)):
            return None
        return F.when(is_lost(self.column_named(name), stored_type, target), F.lit(type_fault(declared, stored_type)))
