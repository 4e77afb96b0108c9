"""torch_tenon.hlo: NumPy in and out, errors as exceptions, custom calls, cost."""

import sys
import subprocess
import threading

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes")

ADD = """HloModule add
ENTRY e {
  x = f32[2,3] parameter(0)
  y = f32[2,3] parameter(1)
  ROOT s = f32[2,3] add(x, y)
}
"""


def one(dtype, shape, operation, operand_shape=None):
    dims = ",".join(map(str, shape))
    return f"ENTRY e {{ x = {operand_shape or f'{dtype}[{dims}]'} parameter(0)\n ROOT r = {dtype}[{dims}] {operation} }}"


def test_evaluate_and_run_agree(hlo):
    x, y = np.random.default_rng(0).normal(size=(2, 2, 3)).astype(np.float32)
    for function in (hlo.evaluate, hlo.run, hlo.run):
        (result,) = function(ADD, [x, y])
        assert result.dtype == np.float32
        np.testing.assert_array_equal(result, x + y)


def test_flat_inputs_and_outputs_in_tuple_order(hlo):
    text = """ENTRY e {
      p = (s32[2], (f64[], pred[1])) parameter(0)
      a = s32[2] get-tuple-element(p), index=0
      inner = (f64[], pred[1]) get-tuple-element(p), index=1
      ROOT r = ((f64[], pred[1]), s32[2]) tuple(inner, a)
    }"""
    module = hlo.Module(text)
    assert module.inputs == [("s32", (2,)), ("f64", ()), ("pred", (1,))]
    assert module.outputs == [("f64", ()), ("pred", (1,)), ("s32", (2,))]
    scalar, flag, numbers = module.evaluate([np.array([1, 2], np.int32), np.float64(0.5), np.array([True])])
    assert scalar.shape == () and scalar == 0.5 and flag.tolist() == [True] and numbers.tolist() == [1, 2]


@pytest.mark.parametrize("hlo_type, numpy_type", [("pred", np.bool_), ("s8", np.int8), ("u16", np.uint16),
                                                  ("s64", np.int64), ("f16", np.float16), ("f64", np.float64),
                                                  ("c64", np.complex64), ("c128", np.complex128)])
def test_native_types(hlo, hlo_type, numpy_type):
    x = np.array([[1, 0, 1]]).astype(numpy_type)
    (result,) = hlo.evaluate(one(hlo_type, (1, 3), "copy(x)"), [np.asfortranarray(x)])
    assert result.dtype == numpy_type and (result == x).all()


@pytest.mark.parametrize("hlo_type", ["bf16", "f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4", "f8e5m2fnuz",
                                      "f8e4m3fnuz", "f4e2m1fn", "f8e8m0fnu", "s2", "s4", "u2", "u4"])
def test_ml_types(hlo, hlo_type):
    dtype = hlo._public(hlo_type)
    assert dtype.type.__module__.startswith("ml_dtypes")
    values = [1, 0, 1] if hlo_type != "f8e8m0fnu" else [1, 2, 4]
    x = np.array(values).astype(dtype)
    (result,) = hlo.evaluate(one(hlo_type, (3,), "copy(x)"), [x])
    assert result.dtype == dtype and result.astype(np.float32).tolist() == values
    (raw,) = hlo.evaluate(one(hlo_type, (3,), "copy(x)"), [hlo._to_storage(x, hlo_type, 0)])
    assert raw.astype(np.float32).tolist() == values


def test_scalars_of_ml_types(hlo):
    (result,) = hlo.evaluate(one("bf16", (), "negate(x)"), [np.array(2.5, ml_dtypes.bfloat16)])
    assert result.shape == () and float(result) == -2.5


def test_arithmetic_in_bfloat16(hlo):
    x = np.array([1.0, 256.0], ml_dtypes.bfloat16)
    text = one("bf16", (2,), "add(x, c)").replace("ROOT", "o = bf16[] constant(1)\n c = bf16[2] broadcast(o), dimensions={}\n ROOT")
    (result,) = hlo.evaluate(text, [x])
    assert result.astype(np.float32).tolist() == [2.0, 256.0]


def test_negative_sub_byte_integers(hlo):
    (result,) = hlo.evaluate(one("s4", (2,), "negate(x)"), [np.array([-3, 7]).astype(ml_dtypes.int4)])
    assert result.astype(np.int32).tolist() == [3, -7]


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_arrays(hlo, shape):
    x = np.zeros(shape, np.float32)
    for function in (hlo.evaluate, hlo.run):
        (result,) = function(one("f32", shape, "negate(x)"), [x])
        assert result.shape == shape


def test_errors_are_exceptions(hlo):
    with pytest.raises(ValueError, match="line 2, column 37: wanted .*'y'"):
        hlo.evaluate("ENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] negate(x), foo=1 z y", [])
    with pytest.raises(ValueError, match=r"wanted 2 inputs, got 1"):
        hlo.evaluate(ADD, [np.zeros((2, 3), np.float32)])
    with pytest.raises(ValueError, match=r"input 1: wanted f32\[2,3\], got f32\[3,2\]"):
        hlo.evaluate(ADD, [np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)])
    with pytest.raises(ValueError, match=r"input 0: wanted f32 \(float32\), got float64"):
        hlo.run(ADD, [np.zeros((2, 3))] * 2)
    with pytest.raises(NotImplementedError, match='custom-call target "nobody" is not registered'):
        hlo.evaluate(one("f32", (), 'custom-call(x), custom_call_target="nobody"'), [np.float32(1)])
    with pytest.raises(ValueError, match="unknown pass"):
        hlo.Module(ADD).run_passes(["no-such-pass"])
    with pytest.raises(MemoryError, match="exceeds the limit"):
        hlo.evaluate("ENTRY e { ROOT r = f64[1000000,1000000] iota(), iota_dimension=0 }")


def test_elided_constants(hlo):
    text = "ENTRY e { ROOT c = f32[4,5] constant({...}) }"
    with pytest.raises(ValueError, match="fill_elided_constants"):
        hlo.Module(text)
    first, second = (hlo.Module(text, fill_elided=True).evaluate()[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first)) > 1
    (other,) = hlo.Module(text.replace("c =", "d ="), fill_elided=True).evaluate()
    assert (other != first).any(), "filled by the instruction's name"


def test_text(hlo):
    text = hlo.canonical_text(ADD)
    assert text == hlo.canonical_text(text) == hlo.canonical_text(ADD.replace("x", "left"))
    module = hlo.Module(ADD)
    assert "ROOT %s = f32[2,3]" in module.text(percent=True) and str(module) == module.text()


def test_passes_change_the_module(hlo):
    module = hlo.Module(ADD.replace("ROOT", "dead = f32[2,3] cosine(x)\n  ROOT"))
    module.verify()
    assert module.run_passes(["dce"]) and not module.run_passes(["dce"])
    assert "cosine" not in str(module)
    module.run_passes()
    module.verify()


def test_unverified(hlo):
    bad = ADD.replace("add(x, y)", "add(x, x)").replace("s = f32[2,3]", "s = f32[3,2]")
    with pytest.raises(ValueError, match="add"):
        hlo.Module(bad)
    module = hlo.Module(bad, verify=False)
    with pytest.raises(ValueError, match="add"):
        module.verify()


def test_cost(hlo):
    text = """ENTRY e {
      a = f32[8,16] parameter(0)
      b = f32[16,4] parameter(1)
      d = f32[8,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT r = f32[8,4] tanh(d)
    }"""
    cost = hlo.Module(text).cost()
    assert cost["total"]["flops"] == 2 * 8 * 16 * 4 and cost["total"]["transcendentals"] == 32
    assert cost["total"]["bytes"] == 4 * (8 * 16 + 16 * 4 + 32) + 4 * 64
    assert cost["total"]["peak_bytes"] == 4 * (8 * 16 + 16 * 4 + 64)
    assert [i["opcode"] for i in cost["instructions"] if i["flops"]] == ["dot"]


def test_run_multiplies_matrices_without_a_framework(hlo):
    a, b = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    text = """ENTRY e { a = f32[3,4,4] parameter(0)
      b = f32[3,4,4] parameter(1)
      ROOT d = f32[3,4,4] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1} }"""
    np.testing.assert_allclose(hlo.run(text, [a, b])[0], a @ b, rtol=1e-5, atol=1e-5)


def test_many_threads(hlo):
    x = np.ones((2, 3), np.float32)
    wrong = []

    def work(k):
        for function in (hlo.evaluate, hlo.run):
            if (function(ADD, [x * k, x])[0] != k + 1).any():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert wrong == []


@pytest.mark.parametrize("run", ["evaluate", "run"])
def test_custom_calls(hlo, run):
    execute = getattr(hlo, run)
    text = """ENTRY e { x = f32[3] parameter(0)
      ROOT r = (f32[3], bf16[]) custom-call(x), custom_call_target="shift", backend_config="by=2" }"""
    seen = []

    def shift(call, x):
        seen.append((call.target, call.backend_config, call.outputs))
        assert not x.flags.writeable and "custom-call" in call.instruction
        return x + np.float32(2), np.array(x.sum()).astype(ml_dtypes.bfloat16)

    hlo.register_custom_call("shift", shift)
    try:
        assert "shift" in hlo.custom_calls()
        moved, total = execute(text, [np.arange(3, dtype=np.float32)])
        assert moved.tolist() == [2, 3, 4] and total == 3 and total.dtype == ml_dtypes.bfloat16
        assert seen == [("shift", "by=2", [("f32", (3,)), ("bf16", ())])]
        hlo.register_custom_call("shift", lambda call, x: 1 / 0)
        with pytest.raises(ValueError, match='custom-call r to "shift": ZeroDivisionError: division by zero'):
            execute(text, [np.zeros(3, np.float32)])
        hlo.register_custom_call("shift", lambda call, x: [x, x])
        with pytest.raises(ValueError, match=r"result 1: wanted shape \(\), got \(3,\)"):
            execute(text, [np.zeros(3, np.float32)])
    finally:
        hlo.register_custom_call("shift", None)
    with pytest.raises(NotImplementedError):
        execute(text, [np.zeros(3, np.float32)])


def _ffi(target, inputs, outputs, config="{}"):
    parameters = "".join(f"p{i} = {shape} parameter({i})\n" for i, shape in enumerate(inputs))
    operands = ", ".join(f"p{i}" for i in range(len(inputs)))
    return (f'ENTRY e {{ {parameters} ROOT r = {outputs} custom-call({operands}), custom_call_target="{target}", '
            f"api_version=API_VERSION_TYPED_FFI, backend_config={config} }}")


@pytest.mark.parametrize("letter, hlo_type, dtype", [("s", "f32", np.float32), ("d", "f64", np.float64),
                                                     ("c", "c64", np.complex64), ("z", "c128", np.complex128)])
class TestLapack:
    def matrices(self, dtype, *shape):
        rng = np.random.default_rng(1)
        values = rng.normal(size=shape)
        return (values + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)

    def tolerance(self, dtype):
        return 3e-5 if np.finfo(dtype).bits == 32 else 1e-12

    @pytest.mark.parametrize("uplo", "LU")
    def test_potrf(self, hlo, letter, hlo_type, dtype, uplo):
        a = self.matrices(dtype, 2, 5, 5)
        a = a @ a.conj().swapaxes(1, 2) + 5 * np.eye(5, dtype=dtype)
        a[1] = -a[1]
        text = _ffi(f"lapack_{letter}potrf_ffi", [f"{hlo_type}[2,5,5]"], f"({hlo_type}[2,5,5], s32[2])", f"{{uplo = {ord(uplo)} : ui8}}")
        factor, info = hlo.evaluate(text, [a])
        assert info.tolist() == [0, 1]
        want = np.linalg.cholesky(a[0])
        got = np.tril(factor[0]) if uplo == "L" else np.triu(factor[0]).conj().T
        np.testing.assert_allclose(got, want, rtol=0, atol=self.tolerance(dtype) * 5)

    @pytest.mark.parametrize("rows, cols", [(4, 4), (5, 3), (3, 5)])
    def test_getrf(self, hlo, letter, hlo_type, dtype, rows, cols):
        a, k = self.matrices(dtype, rows, cols), min(rows, cols)
        text = _ffi(f"lapack_{letter}getrf_ffi", [f"{hlo_type}[{rows},{cols}]"],
                    f"({hlo_type}[{rows},{cols}], s32[{k}], s32[])")
        factors, pivots, info = hlo.evaluate(text, [a])
        lower = np.tril(factors, -1)[:, :k] + np.eye(rows, k)
        assert info == 0 and (np.abs(lower) <= 1.5).all()
        product = lower @ np.triu(factors)[:k]
        for i in reversed(range(k)):
            product[[i, pivots[i] - 1]] = product[[pivots[i] - 1, i]]
        np.testing.assert_allclose(product, a, rtol=0, atol=self.tolerance(dtype))

    def test_getrf_of_a_singular_matrix(self, hlo, letter, hlo_type, dtype):
        text = _ffi(f"lapack_{letter}getrf_ffi", [f"{hlo_type}[2,2]"], f"({hlo_type}[2,2], s32[2], s32[])")
        assert hlo.evaluate(text, [np.zeros((2, 2), dtype)])[2] == 1

    @pytest.mark.parametrize("rows, cols", [(4, 4), (5, 3), (3, 5)])
    def test_geqrf_and_orgqr(self, hlo, letter, hlo_type, dtype, rows, cols):
        a, k = self.matrices(dtype, 2, rows, cols), min(rows, cols)
        shape = f"{hlo_type}[2,{rows},{cols}]"
        packed, taus = hlo.evaluate(_ffi(f"lapack_{letter}geqrf_ffi", [shape], f"({shape}, {hlo_type}[2,{k}])"), [a])
        r = np.triu(packed)[:, :k]
        target = f"lapack_{letter}{'or' if letter in 'sd' else 'un'}gqr_ffi"
        shape = f"{hlo_type}[2,{rows},{k}]"
        (q,) = hlo.evaluate(_ffi(target, [shape, f"{hlo_type}[2,{k}]"], shape), [packed[:, :, :k], taus])
        np.testing.assert_allclose(q @ r, a, rtol=0, atol=self.tolerance(dtype))
        np.testing.assert_allclose(q.conj().swapaxes(1, 2) @ q, np.broadcast_to(np.eye(k), (2, k, k)), atol=self.tolerance(dtype))
        want_q, want_r = np.linalg.qr(a)  # LAPACK's: the signs too
        np.testing.assert_allclose(q, want_q, rtol=0, atol=self.tolerance(dtype) * 5)
        np.testing.assert_allclose(r, want_r, rtol=0, atol=self.tolerance(dtype) * 5)

    @pytest.mark.parametrize("side", "LR")
    @pytest.mark.parametrize("uplo", "LU")
    @pytest.mark.parametrize("trans", "NTC")
    @pytest.mark.parametrize("diag", "NU")
    def test_trsm(self, hlo, letter, hlo_type, dtype, side, uplo, trans, diag):
        a = self.matrices(dtype, 4, 4) + 4 * np.eye(4, dtype=dtype)
        b = self.matrices(dtype, *((4, 2) if side == "L" else (2, 4)))
        config = f"{{diag = {ord(diag)} : ui8, side = {ord(side)} : ui8, trans_x = {ord(trans)} : ui8, uplo = {ord(uplo)} : ui8}}"
        shape = f"{hlo_type}[{b.shape[0]},{b.shape[1]}]"
        (x,) = hlo.evaluate(_ffi(f"lapack_{letter}trsm_ffi", [f"{hlo_type}[4,4]", shape], shape, config), [a, b])
        t = np.tril(a) if uplo == "L" else np.triu(a)
        if diag == "U":
            np.fill_diagonal(t, 1)
        t = {"N": t, "T": t.T, "C": t.conj().T}[trans]
        # Unit triangles of such entries are ill-conditioned: the residual is judged against the solution's size.
        residual = (t @ x if side == "L" else x @ t) - b
        assert np.abs(residual).max() <= self.tolerance(dtype) * max(1, np.abs(x).max()) * 10


    def library(self, hlo, text, inputs):
        """The results, or a skip where the process finds no LAPACK."""
        try:
            return hlo.evaluate(text, inputs)
        except NotImplementedError as error:
            assert "of a LAPACK library, and none was found" in str(error)
            pytest.skip(str(error))

    @pytest.mark.parametrize("uplo", "LU")
    def test_eigenvalues(self, hlo, letter, hlo_type, dtype, uplo):
        a = self.matrices(dtype, 2, 5, 5)
        a = a + a.conj().swapaxes(1, 2)
        target = f"lapack_{letter}{'sy' if letter in 'sd' else 'he'}evd_ffi"
        real = {"s": "f32", "d": "f64", "c": "f32", "z": "f64"}[letter]
        text = _ffi(target, [f"{hlo_type}[2,5,5]"], f"({hlo_type}[2,5,5], {real}[2,5], s32[2])",
                    f"{{mode = 86 : ui8, uplo = {ord(uplo)} : ui8}}")
        vectors, values, info = self.library(hlo, text, [np.tril(a) if uplo == "L" else np.triu(a)])
        assert info.tolist() == [0, 0]
        np.testing.assert_allclose(a @ vectors, vectors * values[:, None, :], rtol=0, atol=self.tolerance(dtype) * 5)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(a), rtol=0, atol=self.tolerance(dtype) * 5)

    @pytest.mark.parametrize("mode", "SA")
    @pytest.mark.parametrize("rows, cols", [(4, 4), (5, 3), (3, 5)])
    def test_singular_values(self, hlo, letter, hlo_type, dtype, mode, rows, cols):
        a, k = self.matrices(dtype, 2, rows, cols), min(rows, cols)
        real = {"s": "f32", "d": "f64", "c": "f32", "z": "f64"}[letter]
        m, n = (k, k) if mode == "S" else (rows, cols)
        out = f"({hlo_type}[2,{rows},{cols}], {real}[2,{k}], {hlo_type}[2,{rows},{m}], {hlo_type}[2,{n},{cols}], s32[2])"
        text = _ffi(f"lapack_{letter}gesdd_ffi", [f"{hlo_type}[2,{rows},{cols}]"], out, f"{{mode = {ord(mode)} : ui8}}")
        _, values, u, vt, info = self.library(hlo, text, [a])
        assert info.tolist() == [0, 0]
        np.testing.assert_allclose((u[:, :, :k] * values[:, None, :]) @ vt[:, :k], a, rtol=0, atol=self.tolerance(dtype) * 5)


def test_one_device_leaves_shardings_alone(hlo):
    x = np.arange(3, dtype=np.float32)
    text = one("f32", (3,), 'custom-call(x), custom_call_target="Sharding", sharding={devices=[2]<=[2]}')
    np.testing.assert_array_equal(hlo.evaluate(text, [x])[0], x)


@pytest.mark.parametrize("direction", ["GT", "LT"])
def test_top_k_custom_call(hlo, direction):
    text = f"""c {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      i = s32[] parameter(2)
      j = s32[] parameter(3)
      ROOT r = pred[] compare(a, b), direction={direction}, type=TOTALORDER }}
    ENTRY e {{ x = f32[2,4] parameter(0)
      ROOT t = (f32[2,2], s32[2,2]) custom-call(x), custom_call_target="TopK", called_computations={{c}} }}"""
    values, places = hlo.evaluate(text, [np.array([[3, 1, 3, 2], [-1, -4, 0, 5]], np.float32)])
    if direction == "GT":
        assert values.tolist() == [[3, 3], [5, 0]] and places.tolist() == [[0, 2], [3, 2]]
    else:
        assert values.tolist() == [[1, 2], [-4, -1]] and places.tolist() == [[1, 3], [1, 0]]


def test_torch_is_not_needed(hlo):
    code = "import sys; sys.modules['torch'] = None; from torch_tenon import hlo; print(len(hlo.custom_calls()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 21


def test_to_html(hlo, tmp_path):
    text = "HloModule page\nENTRY e { x = f32[4] parameter(0)\n ROOT y = f32[4] sine(x) }"
    page = hlo.Module(text).to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    for wanted in ("<title>page</title>", '"tier":"native"', "define void @k0"):
        assert wanted in page
    refused = hlo.Module(text).to_html(passes=["dce"])  # nothing fuses: the backend wants kernels in fusions
    assert '"program":null' in refused and '"error":"' in refused
    with pytest.raises(ValueError, match="isa"):
        hlo.Module(text).to_html(isa=7)
    assert hlo.Module(text)._repr_html_().startswith("<iframe")


def test_to_html_of_a_gpu_needs_none(hlo):
    text = "HloModule page\nENTRY e { x = f32[4096,64] parameter(0)\n ROOT y = f32[4096,64] sine(x) }"
    page = hlo.Module(text).to_html(target="sm_90")
    for wanted in ('"tier":"native"', ".visible .entry k0", '"target":{"name":"gpu-sm_90"', '"occupancy":{"k0":'):
        assert wanted in page
    assert '"name":"gpu-sm_120"' in hlo.Module(text).to_html(target="sm_120")
    assert "define void @k0" in hlo.Module(text).to_html(target="cpu")
    with pytest.raises(ValueError, match='"sm_7"'):
        hlo.Module(text).to_html(target="sm_7")
    with pytest.raises(ValueError, match='"abacus"'):
        hlo.Module(text).to_html(target="abacus")
