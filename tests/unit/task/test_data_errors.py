"""Which errors of a converter are the fault of a record."""

import pytest

from headgate.connector.data_error import DataError
from headgate.connector.schema_registry import RegistryUnreachableError, SchemaRefusedError
from headgate_runtime.tasks.data_errors import data_error_text


def test_a_registry_that_is_down_costs_no_record() -> None:
    """Otherwise `errors.tolerance` = all would skip each record while the registry is away."""
    with pytest.raises(RegistryUnreachableError):
        data_error_text(RegistryUnreachableError("down"))


@pytest.mark.parametrize("error", [DataError("wrong"), SchemaRefusedError("wrong")])
def test_a_refused_record_is_told(error: Exception) -> None:
    assert data_error_text(error) == "wrong"
