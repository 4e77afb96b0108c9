"""The rows: all that are promised, and that the newer ones say something."""

import environment
import equation_of_state
import pytest
import rows
import step
import torch
from torch_tenon.testing import compare

# Those that peers were measured on at first: a row that vanishes would not be missed in a table of fifty.
PROMISED = """lj_mlp_b1000 call_2op_8f call_2op_8f_grad adds100_8f chain20_1M add_ln_gelu_128x768 softmax_12x128x128 rms_rope_32x128x64
reduce_rows_4096x1024 reduce_cols_4096x1024 eos_64k eos_1M transformer4L_b1s128 transformer4L_b1s128_bf16 gpt_small_b4s64
gpt_small_b4s64_train resnet18_b4 resnet18_b4_train mobilenetv3_b4 densenet121_b1 lstm2x256_b64s50 lstmcell_T32_b16
lstmcell_T32_b16_train dlrm_b512 dlrm_b512_train gcn_10k_100k gcn_10k_100k_train adam50_loop adam50_foreach adam50_fused
sample_topk_8x32000 embed_cumsum_argmax sort_1M argsort_1M scatter_add_1M""".split()
NEWER = """bilinear_4x16x64x64 decode_kv4096 decode_kv4096_update moe_256x8 group_norm_4x128x32x32 swiglu_bf16_512x2048 int8_weights_16x1024
pools_8x64x56x56 odd_ln_softmax_37x1021 conv_channels_last_4x64x56 image_u8_to_bf16 eos_64k gcn_10k_100k argsort_1M""".split()


def test_every_row_is_there():
    assert not set(PROMISED) - set(rows.ROWS)


@pytest.mark.parametrize("name", NEWER)
def test_eager_passes_its_own_row(name):
    """A vacuous row, or one whose reference computes something else, would accept any peer."""
    row = rows.ROWS[name]
    eager, truth = step.Step(row), step.Step(row, dtype=torch.float64)
    eager.first_call()
    truth.first_call()
    values, reference = eager.values(), truth.values()
    if row.judged:
        values, reference = row.judged(values, eager.args), row.judged(reference, truth.args)
    compare(values, values, reference).raise_if_failed()
    again = step.Step(row)
    again.first_call()
    for a, b in zip(torch.utils._pytree.tree_leaves(again.values()), torch.utils._pytree.tree_leaves(eager.run())):
        torch.testing.assert_close(a, b, equal_nan=True)  # a call leaves nothing behind that changes the next


def test_the_order_of_equal_floats_is_free_but_not_their_number():
    x = (torch.tensor([2.0, 1.0, 2.0]),)
    wanted = rows._order(torch.tensor([1, 0, 2]), x)
    assert all(map(torch.equal, rows._order(torch.tensor([1, 2, 0]), x), wanted))
    assert not all(map(torch.equal, rows._order(torch.tensor([1, 0, 0]), x), wanted))


def test_sea_water_has_its_density():
    """Enthalpy's slope over pressure is the specific volume: 1 / 1021.84 kg/m^3 at this check value of TEOS-10's toolbox."""
    point = [torch.tensor(v, dtype=torch.float64) for v in (34.7118391, 28.8099)]
    enthalpy = lambda p: equation_of_state.enthalpy(*point, torch.tensor(p, dtype=torch.float64))[0]
    volume = (enthalpy(11.0) - enthalpy(9.0)) / 2e4  # dbar to Pa
    assert 1 / volume.item() == pytest.approx(1021.840, abs=0.01)


def test_the_slope_is_the_enthalpys():
    s, t, p = (x.double() for x in equation_of_state.inputs(64))
    value, slope = equation_of_state.enthalpy(s, t, p)
    step_t = 1e-3
    near = (equation_of_state.enthalpy(s, t + step_t, p)[0] - equation_of_state.enthalpy(s, t - step_t, p)[0]) / (2 * step_t)
    torch.testing.assert_close(slope, near, rtol=1e-3, atol=1e-3)
    assert value.std() > 100 and slope.std() > 1e-2


def test_cores_are_whole_ones_first():
    pairs = lambda core: f"{core % 4},{core % 4 + 4}"  # 8 threads of 4 cores
    assert environment.choose_cores(2, set(range(8)), pairs) == [0, 1]
    assert environment.choose_cores(2, {0, 4, 5}, pairs) == [0, 5]
    assert environment.choose_cores(3, {0, 4, 5}, pairs) == [0, 5, 4]
    assert environment.choose_cores(4, {3}, pairs) == [3]
