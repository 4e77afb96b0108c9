"""Prints `version;package folder;CXX11 ABI flag` of this interpreter's torch, as a CMake list."""

import os

import torch

version = torch.__version__.split("+")[0].split("a")[0].split("rc")[0]
print(version, os.path.dirname(torch.__file__), int(torch.compiled_with_cxx11_abi()), sep=";")
