#include "backends/codegen/llvm/emit_kernels.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/llvm/same_code.h"
#include "llvm/IR/Module.h"

namespace tenon {
namespace {

class Shares {
 public:
  Shares(const EmitRequest& request, const KernelEmission& emission) : request_(request), emission_(emission) {}

  absl::StatusOr<std::vector<EmittedShare>> Run() {
    const auto count = static_cast<size_t>(CountShares());
    texts_.resize(count);
    shares_.resize(count);
    Distribute();
    std::vector<ModuleRequest> requests;
    for (size_t t = 0; t < count; ++t) requests.push_back(Request(t));
    const auto ask = [&] { cancelled_ = cancelled_ || (request_.cancelled && request_.cancelled()); };
    auto modules = CompileModules(requests, request_.threads, ask);
    for (size_t t = 0; t < count; ++t) {
      Show(StageKind::kLlvm, absl::StrCat("llvm.", t, ".emitted.ll"), std::move(texts_[t].emitted));
      Show(StageKind::kOptimizedLlvm, absl::StrCat("llvm.", t, ".ll"), std::move(texts_[t].ir));
      Show(StageKind::kAssembly, absl::StrCat("llvm.", t, requests[t].as_text ? ".ptx" : ".s"), std::move(texts_[t].assembly));
    }
    for (size_t t = 0; t < count; ++t) {
      TENON_RETURN_IF_ERROR(modules[t].status());
      shares_[t].code = *std::move(modules[t]);
    }
    return std::move(shares_);
  }

 private:
  struct Texts {
    std::string emitted, ir, assembly;
  };

  // Of many kernels two a thread: one on a core that something else slows down leaves the last one to others.
  int CountShares() const {
    constexpr int kMany = 16;  // a thread
    const auto kernels = static_cast<int>(request_.kernels.size());
    const bool many = request_.threads > 1 && kernels >= kMany * request_.threads;
    return std::clamp(kernels / 2, 1, many ? 2 * request_.threads : request_.threads);
  }

  bool Wants(StageKind kind) const { return request_.stages != nullptr && request_.stages->Wants(kind); }
  void Show(StageKind kind, std::string file, std::string text) const {
    if (!text.empty() && Wants(kind)) request_.stages->take({kind, std::move(file), std::move(text)});
  }

  // Each kernel to the share that has least to do, those that are alike to the same one, as long as that has not more than its part. Of
  // these most turn out to be the same code as the first: they are emitted, and then no more.
  void Distribute() {
    constexpr int64_t kAlike = 4;
    std::vector<Likeness> likeness;
    absl::flat_hash_set<uint64_t> seen;
    int64_t all = 0;
    for (const auto& kernel : request_.kernels) {
      Likeness& l = likeness.emplace_back(kernel->likeness());
      if (l.key && !seen.insert(*l.key).second) l.operations /= kAlike;
      all += l.operations;
    }
    std::vector<int64_t> load(shares_.size(), 0);
    absl::flat_hash_map<uint64_t, size_t> share_of;
    for (size_t k = 0; k < likeness.size(); ++k) {
      size_t share = static_cast<size_t>(std::ranges::min_element(load) - load.begin());
      if (likeness[k].key) {
        size_t& last = share_of.try_emplace(*likeness[k].key, share).first->second;
        if (load[last] * static_cast<int64_t>(load.size()) > all) last = share;
        share = last;
      }
      load[share] += likeness[k].operations;
      shares_[share].kernels.push_back(k);
    }
  }

  // Share t. A fault is injected into the first share only: one thread is lost, not each.
  ModuleRequest Request(size_t t) {
    ModuleRequest request = emission_.module(absl::StrCat(std::string(request_.name), ".", t));
    request.cancelled = &cancelled_;
    if (t == 0) request.inject_fault = request_.inject_fault;
    EmittedShare& share = shares_[t];
    Texts& texts = texts_[t];
    if (Wants(StageKind::kLlvm)) request.emitted_ir = &texts.emitted;
    if (Wants(StageKind::kOptimizedLlvm)) request.llvm_ir = &texts.ir;
    if (Wants(StageKind::kAssembly)) request.assembly = &texts.assembly;
    if (emission_.keep_bitcode) request.bitcode = &share.bitcode;
    request.emit = [this, &share](llvm::Module& module) -> absl::Status {
      SameCode same;
      for (const size_t k : share.kernels) {
        if (cancelled_) return absl::CancelledError("interrupted");
        TENON_RETURN_IF_ERROR(emission_.emit(module, *request_.kernels[k], request_.symbols[k]));
        if (emission_.aliases) same.Emitted(module.getFunction(request_.symbols[k]));
      }
      return absl::OkStatus();
    };
    return request;
  }

  const EmitRequest& request_;
  const KernelEmission& emission_;
  std::vector<EmittedShare> shares_;
  std::vector<Texts> texts_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

absl::StatusOr<std::vector<EmittedShare>> EmitKernels(const EmitRequest& request, const KernelEmission& emission) {
  return Shares(request, emission).Run();
}

}  // namespace tenon
