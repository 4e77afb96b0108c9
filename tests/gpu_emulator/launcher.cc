#include "tests/gpu_emulator/launcher.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tenon::gpu {
namespace {

constexpr char kHead[] = R"(
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
)";

constexpr char kDeclarations[] = R"(
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.tid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.laneid()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
declare void @llvm.nvvm.barrier.cta.sync.aligned.count(i32, i32)
declare void @llvm.nvvm.barrier.cta.sync.all(i32)
declare i32 @llvm.nvvm.barrier.cta.red.popc.aligned.all(i32, i1)
declare void @llvm.nvvm.bar.warp.sync(i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)
declare float @llvm.nvvm.shfl.sync.down.f32(i32, float, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.down.i32(i32, i32, i32, i32)
declare {i32, i1} @llvm.nvvm.shfl.sync.up.i32p(i32, i32, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.idx.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)
declare i1 @llvm.nvvm.vote.all.sync(i32, i1)
declare i1 @llvm.nvvm.vote.any.sync(i32, i1)
declare i32 @llvm.nvvm.match.any.sync.i32(i32, i32)
declare i32 @llvm.nvvm.redux.sync.add(i32, i32)
)";

}  // namespace

std::string ModuleOf(const std::string& text) { return absl::StrCat(kHead, text, kDeclarations); }

std::shared_ptr<EmulatedModule> MustLoad(const std::string& text) {
  absl::StatusOr<std::shared_ptr<EmulatedModule>> module = EmulatedModule::Load(ModuleOf(text));
  TENON_CHECK(module.ok(), module.status().ToString());
  return *std::move(module);
}

testing::Matcher<absl::Status> Ok() {
  return testing::Truly([](const absl::Status& s) { return s.ok(); });
}

testing::Matcher<absl::Status> Fails(absl::StatusCode code, const std::vector<std::string>& parts) {
  return testing::Truly([code, parts](const absl::Status& s) {
    if (s.code() != code) return false;
    for (const std::string& part : parts) {
      if (!absl::StrContains(std::string(s.message()), part)) return false;
    }
    return true;
  });
}

}  // namespace tenon::gpu
