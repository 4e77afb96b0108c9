// Cases of tests/passes/*.hlo: a module, the passes to run over it, and what must come out.
//
//   // case: <words>
//   // run: simplify,cse
//   // numerics: exact              how the result must agree with the input's on random arguments (evaluator): exact (default),
//                                   ulps <n>, close (1e-5 relative, arguments without extremes), off: <reason>
//   // symbols: s0=3,s1=4           values for the numeric check of a module with symbols
//   // target: max_fusion_instructions=8     machine numbers that differ from the default; refuses=tanh: fusions with a tanh that is not
//                                   alone cannot be planned; convolutions: the host has a library for them, others are kernels;
//                                   no_library: all products are kernels; host_attention: the host has a library for attention;
//                                   generated: it has, but kernels are asked for;
//                                   device: parameters of S(1) lie in the memory of a device, which has code for all but sine;
//                                   device_rows: of one whose blocks keep rows of 1024 bytes, four at once with a cache of 4096
//   // print: remarks|plan|launches what must come out instead of the module: remarks, buffers, what the kernels' plans say of memory
//   <module>
//   // expect:                      "// expect: unchanged" says that the passes must change nothing
//   <printed module, remarks or buffer plan>
//
// UPDATE_GOLDEN=1 rewrites what stands behind "// expect:".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tenon {

struct PassCase {
  std::string name, run, numerics = "exact", symbols, target, print = "module";
  std::string header;  // the directive lines as written
  std::string input, expect;
  bool unchanged = false;
};

struct PassFile {
  std::string preamble;  // lines before the first case
  std::vector<PassCase> cases;
};

PassFile ReadPassFile(const std::filesystem::path& path);
std::string PrintPassFile(const PassFile& file);

}  // namespace tenon
