"""How tenon judges results; public: users can hold their own models to the same rule.

`compare` is the rule (torch_tenon/_accuracy.py states it in full), `check_model` applies it to a
model under eager, a backend and float64. Importing needs neither the C++ extension nor a compiler.
"""

from ._accuracy import Leaf, Report, compare, leaf_names
from ._check_model import Capture, ModelReport, check_model

__all__ = ["Capture", "Leaf", "ModelReport", "Report", "check_model", "compare", "leaf_names"]
