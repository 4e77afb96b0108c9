#include "torch_plugin/libtenon/seam_values.h"

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {
namespace {

using Kind = FrameworkArg::Kind;

constexpr int kMaxDepth = 64;  // as in the text

absl::StatusOr<std::vector<FrameworkArg>> Args(const TenonArg* args, int64_t count, int depth);

absl::StatusOr<FrameworkArg> Arg(const TenonArg& given, int depth) {
  if (given.kind < 0 || given.kind > static_cast<int32_t>(Kind::kSymInt)) {
    return absl::InvalidArgumentError(
        absl::StrCat("wanted a kind of argument from 0 to ", static_cast<int>(Kind::kSymInt), ", got ", given.kind));
  }
  FrameworkArg arg{.kind = static_cast<Kind>(given.kind)};
  switch (arg.kind) {
    case Kind::kTensor: {
      arg.i = given.i;
      TENON_ASSIGN_OR_RETURN(arg.list, Args(given.list, given.list_size, depth + 1));
      break;
    }
    case Kind::kInt:
      arg.i = given.i;
      break;
    case Kind::kBool:
      arg.i = given.i != 0;
      break;
    case Kind::kFloat:
      arg.f = given.f;
      break;
    case Kind::kComplex:
      arg.f = given.f;
      arg.im = given.im;
      break;
    case Kind::kDtype: {
      TENON_ASSIGN_OR_RETURN(arg.dtype, DtypeOf(given.dtype));
      break;
    }
    case Kind::kList: {
      if (depth >= kMaxDepth) return absl::InvalidArgumentError("lists nested too deeply");
      TENON_ASSIGN_OR_RETURN(arg.list, Args(given.list, given.list_size, depth + 1));
      break;
    }
    case Kind::kNone:
      break;
    default:
      if (given.s == nullptr) return absl::InvalidArgumentError("wanted an argument's text, got NULL");
      arg.s = given.s;
  }
  return arg;
}

absl::StatusOr<std::vector<FrameworkArg>> Args(const TenonArg* args, int64_t count, int depth) {
  if (count < 0 || (count > 0 && args == nullptr)) {
    return absl::InvalidArgumentError(absl::StrCat("wanted a list of arguments, got NULL with ", count, " elements"));
  }
  std::vector<FrameworkArg> all;
  all.reserve(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) {
    TENON_ASSIGN_OR_RETURN(FrameworkArg arg, Arg(args[k], depth));
    all.push_back(std::move(arg));
  }
  return all;
}

}  // namespace

absl::StatusOr<PrimitiveType> DtypeOf(int32_t number) {
  const auto type = static_cast<PrimitiveType>(number);
  if (number < 0 || number > static_cast<int32_t>(PrimitiveType::kBuffer) || !IsArrayType(type)) {
    return absl::InvalidArgumentError(absl::StrCat("wanted the number of a tensor's dtype, got ", number));
  }
  return type;
}

absl::StatusOr<std::vector<FrameworkArg>> ArgsOf(const TenonArg* args, int64_t count) { return Args(args, count, 0); }

}  // namespace tenon
