"""torch_tenon.hlo for the tests that use it from Python; no torch needed."""

import ctypes
import json
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


class Emulated:
    """libtenon_lab's own functions."""

    def __init__(self, hlo):
        self.take, library = hlo._take, hlo._lib("gpu-emulated")
        self.last = library.tenon_lab_placement
        self.last.restype = ctypes.c_void_p

    def last_placement(self):
        """Of this thread's last module for a device: {"device": n, "host": n, "host_opcodes": {opcode: n}}."""
        return json.loads(self.take(self.last()))

    def placement(self, module, target="gpu-emulated"):
        module.compile(target=target)
        return self.last_placement()


@pytest.fixture(scope="session")
def emulated(hlo):
    try:
        return Emulated(hlo)
    except (NotImplementedError, OSError, AttributeError) as error:
        reason = f"libtenon_lab is not usable: {type(error).__name__}: {error}"
        if os.environ.get("CI") or os.environ.get("TENON_REQUIRE_EXTENSION"):
            pytest.fail(reason)
        pytest.skip(reason)
