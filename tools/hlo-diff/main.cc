// hlo-diff: what differs between two HLO modules, as graphs.
#include <iostream>

#include "absl/strings/str_split.h"
#include "hlo/check.h"
#include "tools/lab/case_files.h"
#include "tools/lab/diff/diff.h"

namespace tenon::lab {
namespace {

constexpr const char kUsage[] =
    R"(usage: hlo-diff [options] a.hlo b.hlo       ("-" reads standard input)

Matches the computations and instructions of two modules by structure, name and neighbourhood, and prints what was removed
(-), added (+) and changed (both, with each field that differs).

  --ignore=a,b     don't tell of: names, metadata, layout, backend_config, literals, order (the schedule)
  --stat           only the counts
  --json           one JSON object
  --quiet          only the exit code
  --fill-elided    fill {...} constants deterministically
  --help           this text

Exit code: 0 equal, 1 different, 2 bad usage or a file that was refused.
)";

struct Options {
  std::vector<std::string> files;
  DiffOptions diff;
  ParseOptions parse;
  bool json = false, quiet = false, stat = false;
};

bool Usage(const std::string& what) {
  std::cerr << "hlo-diff: " << what << " (--help tells more)\n";
  return false;
}

bool ParseFlags(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--ignore=", 0) == 0) {
      for (const std::string& what :
           std::vector<std::string>(absl::StrSplit(arg.substr(9), ',', absl::SkipEmpty()))) {
        if (!Ignore(what, &o->diff)) return Usage("cannot ignore " + what);
      }
    } else if (arg == "--json") {
      o->json = true;
    } else if (arg == "--quiet") {
      o->quiet = true;
    } else if (arg == "--stat") {
      o->stat = true;
    } else if (arg == "--fill-elided") {
      o->parse.fill_elided_constants = true;
    } else if (arg.size() > 1 && arg[0] == '-') {
      return Usage("unknown option " + arg);
    } else {
      o->files.push_back(arg);
    }
  }
  return o->files.size() == 2 || Usage("two files, please");
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help") return std::cout << kUsage, 0;
  }
  Options o;
  if (!ParseFlags(argc, argv, &o)) return 2;
  try {
    const absl::StatusOr<std::unique_ptr<Module>> a = ReadModule(o.files[0], o.parse),
                                                  b = ReadModule(o.files[1], o.parse);
    for (const auto* m : {&a, &b}) {
      if (!m->ok())
        return std::cerr << "hlo-diff: " << std::string(m->status().message()) << "\n", 2;
    }
    const ModuleDiff diff = Diff(**a, **b, o.diff);
    if (o.json) {
      std::cout << diff.ToJson() << "\n";
    } else if (o.stat) {
      std::cout << diff.removed() << " removed, " << diff.added() << " added, " << diff.changed()
                << " changed\n";
    } else if (!o.quiet) {
      std::cout << diff.ToText(o.files[0], o.files[1]);
    }
    return diff.equal() ? 0 : 1;
  } catch (const std::exception& e) {
    return std::cerr << "hlo-diff: " << e.what() << "\n", 2;
  }
}

}  // namespace
}  // namespace tenon::lab

int main(int argc, char** argv) { return tenon::lab::Main(argc, argv); }
