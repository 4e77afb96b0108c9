"""HLO text from Python: evaluate it, run it on the CPU backend, look at it. NumPy in and out; torch isn't needed.

    from torch_tenon import hlo

    hlo.evaluate(text, [x, y])        # the reference evaluator: slow, plain, the definition
    hlo.run(text, [x, y])             # the CPU backend; compiled once per text
    hlo.canonical_text(text)          # print of parse, names renumbered, metadata left out
    m = hlo.Module(text)              # m.verify(), m.run_passes(), m.cost(), m.evaluate(...), str(m)
    hlo.register_custom_call("target", lambda call, x: x + 1)

Another target than the CPU is named: hlo.run(text, [x, y], target="gpu-emulated"), which test builds have: a GPU's code on an
emulator, thread by thread ("gpu-emulated:sm_80" for another model).

Inputs are the leaves of the parameters, outputs the leaves of the result, flat lists in tuple order. Types that NumPy
lacks are ml_dtypes' (bfloat16, float8_*, int4, ...); where ml_dtypes lacks one too, or as input at will, the raw bits as
an unsigned integer of the element's width. Errors are exceptions: ValueError for what the text or an input has wrong
(with line and column), NotImplementedError for what has no meaning here, MemoryError, RuntimeError for tenon's own bugs.
"""

from __future__ import annotations

import collections
import ctypes
import html as html_module
import importlib.util
import json
import os
import pathlib
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

__all__ = [
    "CustomCall",
    "Module",
    "canonical_text",
    "custom_calls",
    "evaluate",
    "register_custom_call",
    "run",
]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("tensor", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("dtype", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        ("target", ctypes.c_char_p),
        ("backend_config", ctypes.c_char_p),
        ("instruction", ctypes.c_char_p),
        ("operands", ctypes.POINTER(_Tensor)),
        ("results", ctypes.POINTER(_Tensor)),
        ("num_operands", ctypes.c_int64),
        ("num_results", ctypes.c_int64),
    ]


class _Arg(ctypes.Structure):
    pass


_Arg._fields_ = [
    ("kind", ctypes.c_int32),
    ("dtype", ctypes.c_int32),
    ("i", ctypes.c_int64),
    ("f", ctypes.c_double),
    ("im", ctypes.c_double),
    ("s", ctypes.c_char_p),
    ("list", ctypes.POINTER(_Arg)),
    ("list_size", ctypes.c_int64),
]


class _Option(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", _Arg)]


_INT, _FLOAT, _BOOL, _STRING, _LIST = 2, 3, 4, 6, 7  # FrameworkArg::Kind


def _arg(value: Any) -> _Arg:
    if isinstance(value, bool):
        return _Arg(kind=_BOOL, i=value)
    if isinstance(value, int):
        return _Arg(kind=_INT, i=value)
    if isinstance(value, float):
        return _Arg(kind=_FLOAT, f=value)
    if isinstance(value, (str, os.PathLike)):
        return _Arg(kind=_STRING, s=os.fspath(value).encode())
    if isinstance(value, (list, tuple)):
        return _Arg(kind=_LIST, list=(_Arg * len(value))(*map(_arg, value)), list_size=len(value))
    raise TypeError(f"an option is a bool, a number, a string or a list of them, got {value!r}")


def _options(options: dict[str, Any]) -> tuple[ctypes.Array, int]:
    return (_Option * len(options))(*(_Option(name.encode(), _arg(value)) for name, value in options.items())), len(options)


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Call), ctypes.c_void_p)
_MESSAGE_BYTES = 4096
_FILL_ELIDED, _NO_VERIFY = 1, 2
_CANONICAL, _PERCENT, _OPERAND_SHAPES, _NO_METADATA = 1, 2, 4, 8

_ERROR = ctypes.POINTER(ctypes.c_void_p)
_SIGNATURES = {
    "tenon_hlo_parse": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, _ERROR]),
    "tenon_hlo_release": (None, [ctypes.c_void_p]),
    "tenon_hlo_verify": (ctypes.c_int, [ctypes.c_void_p, _ERROR]),
    "tenon_hlo_print": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
    "tenon_hlo_signature": (ctypes.c_void_p, [ctypes.c_void_p]),
    "tenon_hlo_cost": (ctypes.c_void_p, [ctypes.c_void_p, _ERROR]),
    "tenon_hlo_run_passes": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, _ERROR]),
    "tenon_hlo_report": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(_Option), ctypes.c_int64, _ERROR]),
    "tenon_report_html": (ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_size_t, _ERROR]),
    "tenon_hlo_evaluate": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(_Tensor), ctypes.c_int64, _ERROR]),
    "tenon_hlo_compile": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(_Option), ctypes.c_int64, _ERROR]),
    "tenon_hlo_run": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.POINTER(_Tensor), ctypes.c_int64, _ERROR]),
    "tenon_hlo_result_count": (ctypes.c_int64, [ctypes.c_void_p]),
    "tenon_hlo_result_leaves": (ctypes.POINTER(_Tensor), [ctypes.c_void_p]),
    "tenon_hlo_result_release": (None, [ctypes.c_void_p]),
    "tenon_hlo_register_custom_call": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, _ERROR]),
    "tenon_hlo_custom_calls": (ctypes.c_void_p, []),
    "tenon_hlo_set_lapack": (ctypes.c_int, [ctypes.c_char_p, _ERROR]),
    "tenon_hlo_set_interrupted": (None, [ctypes.c_void_p]),
    "tenon_string_free": (None, [ctypes.c_void_p]),
    "tenon_dtype_from_name": (ctypes.c_int32, [ctypes.c_char_p]),
    "tenon_dtype_name": (ctypes.c_char_p, [ctypes.c_int32]),
}

_library_lock = threading.Lock()
_libraries: dict[str, ctypes.CDLL] = {}  # by target


def _library_path() -> pathlib.Path:
    return pathlib.Path(os.environ.get("TENON_LIBRARY") or pathlib.Path(__file__).parent / "libtenon.so")


def _lab_path() -> pathlib.Path:
    """libtenon_lab, which has the emulated targets: beside the package in a build with tests, <build>/python/torch_tenon."""
    return pathlib.Path(os.environ.get("TENON_LAB_LIBRARY") or _library_path().parents[2] / "tests" / "libtenon_lab.so")


def _load(path: pathlib.Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if lapack := _scipy_lapack():
        library.tenon_hlo_set_lapack(lapack.encode(), None)
    library.tenon_hlo_set_interrupted(ctypes.cast(_is_interrupted, ctypes.c_void_p))
    return library


def _lib(target: str = "cpu") -> ctypes.CDLL:
    """The library that runs modules there."""
    kind = "lab" if target.split(":")[0] == "gpu-emulated" else "cpu"
    with _library_lock:
        if kind not in _libraries:
            path = _lab_path() if kind == "lab" else _library_path()
            if kind == "lab" and not path.exists():
                raise NotImplementedError(
                    f'target "{target}": the emulated GPU is a part of test builds only (TENON_BUILD_TESTS): there is no {path}, '
                    "and TENON_LAB_LIBRARY names no other"
                )
            _libraries[kind] = _load(path)
        return _libraries[kind]


def _scipy_lapack() -> str | None:
    """SciPy's wheels bring an OpenBLAS of their own, the LAPACK that JAX uses too. Nothing is imported."""
    spec = importlib.util.find_spec("scipy")
    if spec is None or spec.origin is None:
        return None
    found = sorted(pathlib.Path(spec.origin).parents[1].glob("scipy.libs/libscipy_openblas-*.so*"))
    return str(found[0]) if found else None


_EXCEPTIONS = {
    "INVALID_ARGUMENT": ValueError,
    "OUT_OF_RANGE": ValueError,
    "NOT_FOUND": NotImplementedError,  # an operator that only a framework has
    "UNIMPLEMENTED": NotImplementedError,
    "RESOURCE_EXHAUSTED": MemoryError,
    "CANCELLED": InterruptedError,  # and then SIGINT's handler is called
}


def _take(pointer: int | None) -> str:
    text = ctypes.string_at(pointer).decode("utf-8", "replace")
    _lib().tenon_string_free(pointer)
    return text


def _call(
    name: str, *arguments: Any, failed: Callable[[Any], bool] = lambda result: not result, library: ctypes.CDLL | None = None
) -> Any:
    error = ctypes.c_void_p()
    result = getattr(library or _lib(), name)(*arguments, ctypes.byref(error))
    if failed(result):
        kind, _, message = _take(error.value).partition(": ")
        raise _EXCEPTIONS.get(kind, RuntimeError)(message)
    return result


# ---- Ctrl-C. Compiles and loops of compiled programs ask _is_interrupted some twenty times a second.
class _Interruptible:
    """Around a call of the main thread: SIGINT ends it, and its own handler is called after."""

    asked = False

    def __enter__(self):
        self.handler = None
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):  # not ignored, not the system's default
                self.handler = handler
                _Interruptible.asked = False
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_):
        if self.handler is None:
            return
        signal.signal(signal.SIGINT, self.handler)
        if _Interruptible.asked:
            _Interruptible.asked = False
            self.handler(signal.SIGINT, None)  # the default one raises KeyboardInterrupt

    @staticmethod
    def _note(_number: int, _frame: Any) -> None:
        _Interruptible.asked = True


@ctypes.CFUNCTYPE(ctypes.c_int)
def _is_interrupted() -> int:
    return _Interruptible.asked and threading.current_thread() is threading.main_thread()


# ---- types. Wide: NumPy's own. ml: by ml_dtypes' name, stored as the same bits unless sub-byte.
_NATIVE = {
    "pred": np.bool_,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "c64": np.complex64,
    "c128": np.complex128,
} | {f"{sign}{bits}": getattr(np, f"{word}{bits}") for sign, word in (("s", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)}
_ML_NAMES = {
    "bf16": "bfloat16",
    "f8e5m2": "float8_e5m2",
    "f8e4m3": "float8_e4m3",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e3m4": "float8_e3m4",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f4e2m1fn": "float4_e2m1fn",
    "f8e8m0fnu": "float8_e8m0fnu",
} | {f"{sign}{bits}": f"{word}{bits}" for sign, word in (("s", "int"), ("u", "uint")) for bits in (1, 2, 4)}
_SUB_BYTE_INTEGERS = {"s1", "s2", "s4", "u1", "u2", "u4"}


def _storage(name: str) -> np.dtype:
    """What an element looks like in tenon's memory."""
    if name in _NATIVE:
        return np.dtype(_NATIVE[name])
    if name in _SUB_BYTE_INTEGERS:
        return np.dtype(np.int8 if name[0] == "s" else np.uint8)
    return np.dtype(np.uint16 if name == "bf16" else np.uint8)


def _public(name: str) -> np.dtype:
    """What the user sees."""
    ml = getattr(ml_dtypes, _ML_NAMES.get(name, ""), None)
    return _storage(name) if ml is None else np.dtype(ml)


def _to_storage(value: Any, name: str, number: int) -> np.ndarray:
    array = np.asarray(value)
    storage, public = _storage(name), _public(name)
    if array.dtype == public and public != storage:
        # A sub-byte integer's spare bits mean nothing in ml_dtypes, so values travel; floats travel as bits.
        array = array.astype(storage) if name in _SUB_BYTE_INTEGERS else array.copy("C").view(storage)
        if name == "f4e2m1fn":
            array = array & storage.type(15)
    elif array.dtype != storage:
        raise ValueError(f"input {number}: wanted {name} ({public}), got {array.dtype}")
    return np.ascontiguousarray(array).reshape(array.shape)  # (the former would make rank 0 rank 1)


def _to_public(array: np.ndarray, name: str) -> np.ndarray:
    public = _public(name)
    if public == array.dtype:
        return array
    return array.astype(public) if name in _SUB_BYTE_INTEGERS else array.view(public)


def _view(tensor: _Tensor) -> tuple[np.ndarray, str]:
    """tenon's memory as an array, and its HLO type."""
    name = _lib().tenon_dtype_name(tensor.dtype).decode()
    shape, storage = tuple(tensor.sizes[: tensor.ndim]), _storage(name)
    count = int(np.prod(shape, dtype=np.int64)) * storage.itemsize
    if count == 0:
        return np.empty(shape, storage), name
    buffer = (ctypes.c_char * count).from_address(tensor.data)
    return np.frombuffer(buffer, storage).reshape(shape), name


class Module:
    """A parsed and verified HLO module. Errors name line and column."""

    def __init__(self, text: str, *, fill_elided: bool = False, verify: bool = True):
        """fill_elided: constants that a dump left out, `{...}`, get deterministic values instead of being refused."""
        data = text.encode()
        flags = _FILL_ELIDED * fill_elided | _NO_VERIFY * (not verify)
        self._handle = self._parsed(_lib(), data, flags)
        self._elsewhere: dict[str, int] = {}  # handles by target, of the library that has it
        self._read_signature()

    def _parsed(self, library: ctypes.CDLL, data: bytes, flags: int) -> int:
        handle = _call("tenon_hlo_parse", data, len(data), flags, library=library)
        # Not __del__: when the interpreter ends, this module's names may be gone before the object is.
        weakref.finalize(self, library.tenon_hlo_release, handle)
        return handle

    def _handle_for(self, target: str) -> int:
        if target == "cpu":
            return self._handle
        if target not in self._elsewhere:
            self._elsewhere[target] = self._parsed(_lib(target), self.text().encode(), _NO_VERIFY)
        return self._elsewhere[target]

    def _read_signature(self) -> None:
        signature = json.loads(_take(_lib().tenon_hlo_signature(self._handle)))
        self.name: str = signature["name"]
        self.inputs = [(leaf["dtype"], tuple(leaf["shape"])) for leaf in signature["inputs"]]
        self.outputs = [(leaf["dtype"], tuple(leaf["shape"])) for leaf in signature["outputs"]]

    def __str__(self) -> str:
        return self.text()

    def text(self, *, canonical: bool = False, percent: bool = False, operand_shapes: bool = False, metadata: bool = True):
        flags = (
            _CANONICAL * canonical | _PERCENT * percent | _OPERAND_SHAPES * operand_shapes | _NO_METADATA * (not metadata)
        )
        return _take(_lib().tenon_hlo_print(self._handle, flags))

    def verify(self) -> None:
        _call("tenon_hlo_verify", self._handle, failed=bool)

    def run_passes(self, passes: Sequence[str] = (), disable: Sequence[str] = ()) -> bool:
        """Runs these passes, or the default pipeline; says whether the module changed."""
        self._elsewhere.clear()
        lists = (",".join(names).encode() for names in (passes, disable))
        return _call("tenon_hlo_run_passes", self._handle, *lists, failed=lambda result: result < 0) == 1

    def cost(self) -> dict[str, Any]:
        """{"total": {flops, transcendentals, bytes, peak_bytes, ...}, "instructions": [{name, opcode, flops, ...}]}"""
        return json.loads(_take(_call("tenon_hlo_cost", self._handle)))

    def compile(self, *, target: str = "cpu", **options: Any) -> None:
        """Compiles for a target with options (isa="avx2", passes=[...], ...); run() does it without any."""
        handle = self._handle_for(target)
        try:
            with _Interruptible():
                _call("tenon_hlo_compile", handle, *_options(options | {"target": target}), failed=bool, library=_lib(target))
        except BaseException:
            self._elsewhere.pop(target, None)  # a run would compile it for the CPU
            raise

    def to_html(self, path: str | os.PathLike | None = None, *, target: str = "cpu", **options: Any) -> str:
        """A page of the module compiled for `target`: graph, buffers, costs, remarks, code. One self-contained text, written to
        `path` if given. What the backend refuses is shown as it is, with the reason. `options` as in compile().

        target="sm_90" (75, 80, 86, 89, 90, 100, 120) needs no GPU: parameters and results lie in its memory, and each kernel has its
        launch, its occupancy and PTX."""
        given, home = _options(options | {"target": target}), "cpu" if target.startswith("sm_") else target
        document = _take(_call("tenon_hlo_report", self._handle_for(home), *given, library=_lib(home))).encode()
        html = _take(_call("tenon_report_html", document, len(document)))
        if path is not None:
            pathlib.Path(path).write_text(html, encoding="utf-8")
        return html

    def _repr_html_(self) -> str:
        return notebook_frame(self.to_html())

    def evaluate(self, inputs: Sequence[Any] = ()) -> list[np.ndarray]:
        return self._execute("tenon_hlo_evaluate", inputs)

    def run(self, inputs: Sequence[Any] = (), *, target: str = "cpu") -> list[np.ndarray]:
        if target not in self._elsewhere and target != "cpu":
            self.compile(target=target)
        with _Interruptible():
            return self._execute("tenon_hlo_run", inputs, target)

    def _execute(self, function: str, inputs: Sequence[Any], target: str = "cpu") -> list[np.ndarray]:
        if len(inputs) != len(self.inputs):
            raise ValueError(f"wanted {len(self.inputs)} inputs, got {len(inputs)}")
        lib = _lib(target)
        tensors, kept = (_Tensor * len(inputs))(), []
        for i, (value, (name, _)) in enumerate(zip(inputs, self.inputs)):
            array = _to_storage(value, name, i)
            sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
            kept += [array, sizes]
            dtype = lib.tenon_dtype_from_name(name.encode())
            tensors[i] = _Tensor(None, array.ctypes.data, sizes, None, dtype, array.ndim)
        result = _call(function, self._handle_for(target), tensors, len(inputs), library=lib)
        try:
            leaves = lib.tenon_hlo_result_leaves(result)
            views = [_view(leaves[i]) for i in range(lib.tenon_hlo_result_count(result))]
            return [_to_public(array.copy(), name) for array, name in views]
        finally:
            lib.tenon_hlo_result_release(result)


def notebook_frame(page: str, height: int = 640) -> str:
    """A page inside of a notebook's: in a frame of its own, so that neither's names and styles touch the other's."""
    return f'<iframe style="width:100%;height:{height}px;border:0" srcdoc="{html_module.escape(page)}"></iframe>'


def evaluate(text: str, inputs: Sequence[Any] = ()) -> list[np.ndarray]:
    """What the module in `text` means for these inputs, by the reference evaluator."""
    return Module(text).evaluate(inputs)


_COMPILED_AT_ONCE = 128
_compiled: collections.OrderedDict[str, Module] = collections.OrderedDict()
_compiled_lock = threading.Lock()


def run(text: str, inputs: Sequence[Any] = (), *, target: str = "cpu") -> list[np.ndarray]:
    """The same on a target of the compiler: the CPU, or "gpu-emulated" in test builds. The last 128 texts stay compiled."""
    with _compiled_lock:
        module = _compiled.get(text)
        if module is None:
            module = _compiled[text] = Module(text)
        _compiled.move_to_end(text)
        while len(_compiled) > _COMPILED_AT_ONCE:
            _compiled.popitem(last=False)
    return module.run(inputs, target=target)


def canonical_text(text: str) -> str:
    return Module(text).text(canonical=True)


class CustomCall:
    """What a custom-call's function is told about its call, besides the operands."""

    def __init__(self, call: _Call, outputs: list[tuple[str, tuple[int, ...]]]):
        self.target = call.target.decode()
        self.backend_config = call.backend_config.decode()
        self.instruction = call.instruction.decode()  # its line of HLO text
        self.outputs = outputs  # (HLO type, shape) of each result


_callbacks: dict[str, Any] = {}  # ctypes' closures must outlive their registration


def register_custom_call(target: str, function: Callable[..., Any] | None) -> None:
    """Gives the evaluator's custom-call target a meaning, for the whole process; None takes it away.

    function(call, *operands) returns an array, or a sequence of them where the result is a tuple. Operands are
    read-only views that are valid during the call.
    """
    if function is None:
        _call("tenon_hlo_register_custom_call", target.encode(), None, None, failed=bool)
        _callbacks.pop(target, None)
        return

    def callback(_context: Any, pointer: Any, message: int) -> int:
        try:
            call = pointer.contents
            results = [_view(call.results[i]) for i in range(call.num_results)]
            operands = [_view(call.operands[i]) for i in range(call.num_operands)]
            operands = [_to_public(array, name) for array, name in operands]
            for array in operands:
                array.flags.writeable = False
            given = function(CustomCall(call, [(name, array.shape) for array, name in results]), *operands)
            given = [given] if isinstance(given, np.ndarray) or np.isscalar(given) else list(given)
            if len(given) != len(results):
                raise ValueError(f"wanted {len(results)} results, got {len(given)}")
            for i, (value, (to, name)) in enumerate(zip(given, results)):
                array = np.asarray(value)
                if array.shape != to.shape:
                    raise ValueError(f"result {i}: wanted shape {to.shape}, got {array.shape}")
                to[...] = _to_storage(array, name, i)
        except BaseException as error:  # nothing may cross C
            text = f"{type(error).__name__}: {error}".encode()[: _MESSAGE_BYTES - 1] + b"\0"
            ctypes.memmove(message, text, len(text))
            return 1
        return 0

    closure = _CALLBACK(callback)
    _call("tenon_hlo_register_custom_call", target.encode(), ctypes.cast(closure, ctypes.c_void_p), None, failed=bool)
    _callbacks[target] = closure


def custom_calls() -> list[str]:
    """The registered targets, tenon's own included."""
    return json.loads(_take(_lib().tenon_hlo_custom_calls()))
