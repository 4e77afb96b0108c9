#include "tools/lab/generator.h"

namespace tenon::lab {

absl::Span<const Row> CollectiveRows() { return {}; }

}  // namespace tenon::lab
