"""Rows of aten.def that take no symbolic sizes in any recorded call, with the reason: a regular expression for what tenon says, or one of
these."""

NO_SIZES = "nothing of the call is a size that may change"
TORCH = "PyTorch's own fake kernel takes numbers only: in graphs with symbols the operator is taken apart (decompositions.WHOLE)"
SAYS_FOR_ITSELF = (NO_SIZES, TORCH)

WITHOUT_SYMBOLS = {
    "aten.diagonal_backward.default": "symbolic dimension used as a number",  # a dim of the diagonal
    "aten.as_strided_scatter.default": "as_strided of symbolic sizes",
    "aten.unfold_backward.default": "symbolic dimension used as a number",
    "aten.linspace.default": NO_SIZES,
    "aten.upsample_nearest1d_backward.default": TORCH,
    "aten.upsample_nearest3d_backward.default": TORCH,
    "aten._upsample_nearest_exact1d_backward.default": TORCH,
    "aten._upsample_nearest_exact3d_backward.default": TORCH,
    "aten.upsample_linear1d_backward.default": TORCH,
    "aten.upsample_bilinear2d_backward.default": TORCH,
    "aten.upsample_trilinear3d_backward.default": TORCH,
    "aten.upsample_bicubic2d_backward.default": TORCH,
    "aten._upsample_bicubic2d_aa_backward.default": TORCH,
}
