#include "torch_plugin/libtenon/native.h"

namespace tenon {

absl::StatusOr<std::shared_ptr<Executable>> NativeCompile::Run() {
  return absl::UnimplementedError("no native backend in this build");
}

}  // namespace tenon
