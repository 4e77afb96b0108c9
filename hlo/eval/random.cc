#include "hlo/eval/internal.h"
namespace tenon::eval {
absl::Span<const HandlerRow> RandomHandlers() { return {}; }
absl::Span<const HandlerRow> LinalgHandlers() { return {}; }
}  // namespace tenon::eval
