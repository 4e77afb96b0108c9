// Custom calls whose results only a LAPACK gives (eigenvectors and singular vectors have signs of its choosing):
// "lapack_{s,d}syevd_ffi", "lapack_{c,z}heevd_ffi", "lapack_{s,d,c,z}gesdd_ffi", served by a LAPACK found at run time.
//
// Looked for, once: the file SetLapackLibrary or TENON_LAPACK names, liblapack.so.3, libopenblas.so.0, then what the
// process has loaded already; symbols as "ssyevd_" or, in SciPy's own library, "scipy_ssyevd_". None: kUnimplemented.
#pragma once

#include <string>

namespace tenon {

// Before the first such call.
void SetLapackLibrary(std::string path);

}  // namespace tenon
