// Repros: what a failed compile was given, saved so that it can be run again.
#pragma once

#include <string>
#include <string_view>

namespace tenon {

// Writes <dir>/<name>-<content hash>.aten (and .hlo unless empty) with the error as a leading
// comment. `dir` "": TENON_REPRO_DIR, else $XDG_CACHE_HOME/tenon/repro, else ~/.cache/tenon/repro.
// Returns the .aten path, "" if nothing could be written: a failed compile must not fail once more
// on a full disk.
std::string SaveRepro(std::string dir, std::string_view name, std::string_view error,
                      std::string_view aten, std::string_view hlo);

}  // namespace tenon
