"""The C seam: what is wrong with a request is told, and nothing thrown crosses it."""

import pytest


@pytest.mark.parametrize(
    "config",
    [
        '{"args":5}',
        '{"args":"()","rule":7}',
        '{"args":"()","strides":"no"}',
        '{"args":"()","num_results":1,"results":{}}',
        '["args":5]',
        '{"args":',
    ],
)
def test_a_framework_call_of_a_wrong_form_is_refused_by_name(tenon, config):
    from torch_tenon import hlo

    escaped = config.replace('"', '\\"')
    text = f"""HloModule m
ENTRY e {{
  p = f32[4] parameter(0)
  ROOT odd = f32[4] custom-call(p), custom_call_target="aten.relu.default", backend_config="{escaped}"
}}
"""
    with pytest.raises(ValueError, match=r"odd: wanted backend_config=") as raised:
        hlo.Module(text).compile()
    assert config[:5] in str(raised.value)
