// How the C seam keeps what is thrown on its own side. Every entry point that can throw goes through one of these. Nothing outside of
// a try may allocate here: tests/seam makes each allocation of each entry fail.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "torch_plugin/libtenon/handle.h"

namespace tenon {

// For *error. Where there is no memory for the message either, a shorter one; NULL in the end.
inline void Tell(char** error, absl::StatusCode code, absl::string_view message, bool with_code = true) noexcept {
  if (error == nullptr) return;
  try {
    *error = NewString(with_code ? absl::StrCat(absl::StatusCodeToString(code), ": ", message) : std::string(message));
  } catch (...) {
    *error = strdup(with_code ? "RESOURCE_EXHAUSTED: out of memory" : "out of memory");
  }
}

// Runs `make`, which returns a Status or StatusOr. What it throws becomes one; what fails is told in *error ("CODE: message", or the
// message alone).
template <typename F>
auto Guarded(const F& make, char** error, bool with_code = true) noexcept -> decltype(make()) {
  absl::StatusCode code = absl::StatusCode::kInternal;
  std::string message;
  try {
    auto result = make();
    if (result.ok()) return result;
    if constexpr (std::is_same_v<decltype(make()), absl::Status>) {
      Tell(error, result.code(), result.message(), with_code);
    } else {
      Tell(error, result.status().code(), result.status().message(), with_code);
    }
    return result;
  } catch (const std::bad_alloc&) {
    code = absl::StatusCode::kResourceExhausted;
  } catch (const std::exception& e) {
    try {
      message = e.what();
    } catch (...) {
    }
  } catch (...) {
  }
  // Made with as little memory as can be: up to here all that was had is given back.
  if (code == absl::StatusCode::kResourceExhausted) {
    if (error != nullptr) *error = strdup(with_code ? "RESOURCE_EXHAUSTED: out of memory" : "out of memory");
  } else {
    Tell(error, code, message.empty() ? "something unknown was thrown" : message, with_code);
  }
  return absl::Status(code, "");  // without a message it is a number, and no memory
}

// `make` returns StatusOr<std::unique_ptr<T>>: the pointer is the caller's, NULL where it failed.
template <typename F>
auto Released(const F& make, char** error, bool with_code = true) noexcept -> decltype(make()->release()) {
  auto made = Guarded(make, error, with_code);
  return made.ok() ? made->release() : nullptr;
}

// `make` returns a string or a StatusOr of one: for tenon_string_free, NULL where it failed.
template <typename F>
char* GuardedText(const F& make, char** error, bool with_code = true) noexcept {
  auto text = Guarded([&]() -> absl::StatusOr<std::string> { return make(); }, error, with_code);
  return text.ok() ? strdup(text->c_str()) : nullptr;
}

}  // namespace tenon
