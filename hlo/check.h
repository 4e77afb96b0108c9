// TENON_CHECK: for our own bugs only. What a user or a model can cause is an absl::Status.
//
// A failing check throws InternalError (never aborts): every entry point of libtenon catches it, saves a repro
// and falls back, so that a bug of ours never takes the user's process down.
#pragma once

#include <stdexcept>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenon {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line, const std::string& message = "");

}  // namespace tenon

#define TENON_CHECK(condition, ...)                                                       \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::tenon::CheckFailed(#condition, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__);    \
  } while (false)

#define TENON_RETURN_IF_ERROR(expr)                         \
  do {                                                      \
    if (absl::Status _st = (expr); !_st.ok()) return _st;   \
  } while (false)

#define TENON_CONCAT_INNER_(a, b) a##b
#define TENON_CONCAT_(a, b) TENON_CONCAT_INNER_(a, b)
#define TENON_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.status();                \
  lhs = std::move(tmp).value()
#define TENON_ASSIGN_OR_RETURN(lhs, expr) \
  TENON_ASSIGN_OR_RETURN_IMPL_(TENON_CONCAT_(_statusor_, __LINE__), lhs, expr)
