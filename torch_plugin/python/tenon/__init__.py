"""The name of the log: `TORCH_LOGS="tenon"`.

torch accepts in TORCH_LOGS only names that it knows or that are importable modules, and it decides before any backend is loaded.
The package users import is `torch_tenon`.
"""
