// Profiles across the C seam.
#include "hlo/check.h"
#include "runtime/profile/recorder.h"
#include "torch_plugin/libtenon/guarded.h"

struct TenonProfile {
  std::unique_ptr<tenon::Profile> profile;
};

extern "C" {

int tenon_profile_start(int64_t max_events, char** error) {
  return tenon::Guarded([&] { return tenon::Recorder::Start(max_events); }, error, /*with_code=*/false).ok() ? 0 : 1;
}
TenonProfile* tenon_profile_stop(char** error) {
  return tenon::Released(
      []() -> absl::StatusOr<std::unique_ptr<TenonProfile>> {
        auto made = std::make_unique<TenonProfile>();  // first: what was recorded is not lost where this fails
        TENON_ASSIGN_OR_RETURN(made->profile, tenon::Recorder::Stop());
        return made;
      },
      error, /*with_code=*/false);
}
void tenon_profile_release(TenonProfile* p) { delete p; }

char* tenon_profile_json(const TenonProfile* p, const TenonHost* host, char** error) {
  return tenon::GuardedText([&] { return p->profile->JsonText(tenon::RoofOf(*host)); }, error, /*with_code=*/false);
}
char* tenon_profile_table(const TenonProfile* p, const TenonHost* host, int64_t rows, char** error) {
  return tenon::GuardedText([&] { return p->profile->Table(tenon::RoofOf(*host), rows); }, error, /*with_code=*/false);
}
char* tenon_profile_trace(const TenonProfile* p, char** error) {
  return tenon::GuardedText([&] { return p->profile->ChromeTrace(); }, error, /*with_code=*/false);
}

}  // extern "C"
