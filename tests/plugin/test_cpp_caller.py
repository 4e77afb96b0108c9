"""C++ programs call compiled graphs: tensors in and out, from threads that know no Python."""

import ctypes
import pathlib

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_of_a_cpp_program_call_a_graph(threads, tenon):
    build = pathlib.Path(tenon.__file__).parents[2]  # build/<preset>/python/torch_tenon/__init__.py
    caller = ctypes.CDLL(str(build / "tests" / "libtenon_cpp_caller.so"))
    inputs = [torch.randn(8, 16), torch.randn(16, 4)]
    run = tenon.compile_graph(make_fx(lambda x, w: [torch.tanh(x @ w), x + 1])(*inputs), inputs)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = run.function()
    said = ctypes.create_string_buffer(4000)
    caller.tenon_test_call(ctypes.c_void_p(pointer(capsule, b"torch_tenon.function")), threads, said, ctypes.c_size_t(4000))
    assert said.value.decode() == ""
    assert run.record.raw_stats()["calls"] == 50 * threads + 1  # and one that was refused
