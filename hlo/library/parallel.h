// How a library function shares its work. The runtime gives the framework's threads, everybody else the caller's alone. What a
// function computes must not depend on it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenon::library {

struct Parallel {
  int threads = 1;
  void* context = nullptr;
  // As TenonHost::parallel_for (runtime/tenon_c.h); nullptr if there is one thread.
  void (*parallel_for)(void* context, int64_t begin, int64_t end, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* arg) = nullptr;

  // body(k) for each k of [0, count), in any order and perhaps at once; returns when all are done. The body must not throw.
  template <typename Body>
  void For(int64_t count, const Body& body) const {
    if (threads <= 1 || count <= 1 || parallel_for == nullptr) {
      for (int64_t k = 0; k < count; ++k) body(k);
      return;
    }
    auto run = [](void* arg, int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) (*static_cast<const Body*>(arg))(k);
    };
    parallel_for(context, 0, count, 1, run, const_cast<Body*>(&body));
  }

  // body(begin, end) over pieces of [0, size), at least `grain` long each and not more of them than threads.
  template <typename Body>
  void Pieces(int64_t size, int64_t grain, const Body& body) const {
    const int64_t pieces = std::clamp<int64_t>(size / std::max<int64_t>(grain, 1), 1, threads);
    For(pieces, [&](int64_t k) { body(size * k / pieces, size * (k + 1) / pieces); });
  }
};

}  // namespace tenon::library
