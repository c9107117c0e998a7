"""Systems whose random instances are measured: each file states one, and is found by being here."""

import importlib
import pkgutil
from typing import Annotated, Any, Union

from pydantic import Field

from simstudy.design.settings import records
from simstudy.design.settings.records import Quantity, Record, tags
from simstudy.design.settings.tables import Instance

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def _below(record: Any) -> list[Any]:
    return [record] if tags(record) else [kind for each in record.__subclasses__() for kind in _below(each)]


_RECORDS = tuple(_below(Instance))
AnyInstance: Any = Annotated[Union[_RECORDS], records.KINDS] if _RECORDS else type(None)  # noqa: UP007 - of a tuple
KINDS: dict[str, type[Instance]] = {tag: record for record in _RECORDS for tag in tags(record)}
"""Records of all kinds of instances, by the name that designs state."""

QUANTITIES: dict[str, dict[str, Quantity]] = {kind: record.quantities for kind, record in KINDS.items()}
"""Numbers of each kind of instance; a name is one quantity in all kinds, as it becomes a measure."""

NAMES = tuple(dict.fromkeys(name for kind in QUANTITIES.values() for name in kind))
"""Names of all quantities."""


class System(Record):
    """A random system whose numbers are measured in place of estimates of heads."""

    instance: AnyInstance | None = Field(
        None, description=f"random instance whose numbers are measured in place of estimates: {', '.join(KINDS)}"
    )
