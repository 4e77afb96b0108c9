"""Shared by the plugin tests."""

from torch_tenon.testing import check_model


def same_as_eager(function, *args, backend, train=False, **options):
    """Eager and `backend` agree by the accuracy rule: outputs, strides, mutations, gradients."""
    report = check_model(
        function, args, backend=backend, train=train, baseline=None, vacuous_ok=True, **options
    )
    report.raise_if_failed()
    assert report.coverage == 1.0, str(report)
    return report
