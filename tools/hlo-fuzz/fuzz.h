// One module of a fuzzing run: made, run on the evaluator and under a few configurations of the backend, judged. Each executable
// runs thrice (miscompare.h), and once more on other inputs, also judged. One with symbols runs at several sizes, in an order of its own
// and again, and is called as it may not be.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/lab/generate/random_module.h"
#include "tools/lab/judge/miscompare.h"

namespace tenon::lab {

struct FuzzOptions {
  uint64_t seed = 0;
  GeneratorOptions generator;
  std::vector<std::string> isas;    // never empty
  std::vector<int> threads = {1, 3};
  std::vector<bool> excess_precision = {true, false};
  int runs = 2;                     // configurations a module runs under, drawn from isas x threads; excess precision takes turns
  RunOptions run;                   // the rest of each configuration
  int64_t large_every = 50;         // one module in so many has arrays of 10^4 to 10^6 elements, and users' grains; 0, or symbols: none
  int sizes = 5;                    // assignments of sizes that an executable of a module with symbols runs at
  double reduce_seconds = 20;       // spent on cutting a failing module down; 0: it is kept as it is
};

// Seed of module k: of its generator and of its first inputs.
uint64_t ModuleSeed(uint64_t seed, int64_t k);
bool IsLarge(const FuzzOptions& options, int64_t k);
std::unique_ptr<Module> MakeModule(const FuzzOptions& options, int64_t k);
std::vector<RunOptions> ConfigurationsOf(const FuzzOptions& options, int64_t k);

struct Record {
  int64_t k = -1;
  Outcome outcome = Outcome::kSame;  // of the first configuration that isn't the same
  std::string configuration, text;
  std::string file;  // of a failure: module and arguments, reduced, as tests/regress holds them
  int64_t instructions = 0, elements = 0, bounded = 0, unjudged = 0;
  int64_t calls = 0, refused_calls = 0;  // of modules with symbols: right calls, judged; wrong ones, refused
  std::map<std::string, int64_t> opcodes, types;  // instructions of each opcode; arrays of each element type
  std::map<std::string, int64_t> symbolic;  // 1 for each opcode of which an instruction has or reads an array of symbolic size
};
// Generates, evaluates, runs. A generator's own failure is an evaluator error.
Record FuzzOne(const FuzzOptions& options, int64_t k);

// One line without '\n', for a pipe.
std::string Encode(const Record& record);
Record Decode(const std::string& line);

}  // namespace tenon::lab
