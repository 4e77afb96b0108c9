// Bodies with branches and loops, as functions of their own beside the kernel: where a body is emitted into, blocks are the caller's.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/IR/IRBuilder.h"

namespace tenon::math {

// The results, of the types `results`, of a call of the module's function `name` for arguments of these types. It is made if it is missing:
// `body` gets a builder in it and its arguments, and returns its results where it ends. A name stands for one body.
std::vector<llvm::Value*> CallOutOfLine(
    llvm::IRBuilderBase& b, std::string_view name, std::span<llvm::Value* const> args, std::span<llvm::Type* const> results,
    llvm::function_ref<std::vector<llvm::Value*>(llvm::IRBuilderBase&, std::span<llvm::Value* const>)> body);

// Whether any lane of `condition` holds.
llvm::Value* AnyLane(llvm::IRBuilderBase& b, llvm::Value* condition);

}  // namespace tenon::math
