// A case on disk: HLO text, and an .npz with one member in0, in1, ... per array of the arguments,
// as `hlo-run --inputs=` takes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/literal.h"
#include "hlo/text/text.h"

namespace tenon::lab {

// "-" is standard input. Errors name the path.
absl::StatusOr<std::string> ReadText(const std::string& path);
// For a flag that names a file: tells on standard error what is wrong with it.
bool ReadInto(const std::string& path, std::string* to);
absl::StatusOr<std::unique_ptr<Module>> ReadModule(const std::string& path,
                                                   const ParseOptions& options = {});

// The members of an .npz by number where they are named <prefix><number>, else in file order: .npy files.
absl::StatusOr<std::vector<std::string>> ReadArrays(const std::string& npz);

// Arguments for the entry's parameters: members by number where they are named so, else in file
// order.
absl::StatusOr<std::vector<Literal>> ReadArguments(const Module& module, const std::string& npz);

// Writes both files; the .npz's path, which is `path` with its ending changed.
absl::StatusOr<std::string> WriteCase(const Module& module, absl::Span<const Literal> arguments,
                                      const std::string& path);

// `s` as a JSON string, quotes included.
std::string JsonString(std::string_view s);

}  // namespace tenon::lab
