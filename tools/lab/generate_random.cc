#include "tools/lab/generator.h"

namespace tenon::lab {

absl::Span<const Row> RandomRows() { return {}; }

}  // namespace tenon::lab
