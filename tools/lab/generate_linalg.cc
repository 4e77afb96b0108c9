#include "tools/lab/generator.h"

namespace tenon::lab {

absl::Span<const Row> LinalgRows() { return {}; }

}  // namespace tenon::lab
