"""torch_tenon.hlo for the tests that use it from Python; no torch needed."""

import os

import pytest


@pytest.fixture(scope="session")
def hlo():
    try:
        from torch_tenon import hlo

        hlo.custom_calls()  # loads libtenon.so
    except (ImportError, OSError, AttributeError) as error:
        reason = f"torch_tenon.hlo is not usable: {type(error).__name__}: {error}"
        if os.environ.get("CI") or os.environ.get("TENON_REQUIRE_EXTENSION"):
            pytest.fail(reason)
        pytest.skip(reason)
    return hlo
