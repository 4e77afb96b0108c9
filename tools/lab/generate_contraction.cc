#include "tools/lab/generator.h"

namespace tenon::lab {

absl::Span<const Row> ContractionRows() { return {}; }

}  // namespace tenon::lab
