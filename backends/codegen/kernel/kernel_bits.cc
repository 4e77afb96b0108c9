// bitcast-convert between widths: one wide element is several narrow ones, low bits first.
#include <algorithm>

#include "backends/codegen/emit/convert.h"
#include "backends/codegen/kernel/kernel_emitter.h"

namespace tenon {

using llvm::Value;

namespace {

llvm::Type* IntOf(llvm::IRBuilder<>& b, llvm::Type* like, int bits) {
  return WithLanesOf(like, b.getIntNTy(static_cast<unsigned>(bits)));
}

}  // namespace

Val KernelEmitter::EvalJoinedBits(const Instruction* op, const IndexTuple& index,
                                  const Guard* guard) {
  const PrimitiveType from = op->operand(0)->shape().element_type(),
                      to = op->shape().element_type();
  const int width = BitWidth(from), word_bits = WordBits(to);
  std::vector<Val> pieces;
  Val r;
  size_t copies = 1;
  bool vector = false;
  for (int k = 0; k * width < BitWidth(to); ++k) {
    IndexTuple at = index;
    at.push_back(space_.Constant(k));
    pieces.push_back(Eval(op->operand(0), at, guard));
    r.level = std::max(r.level, pieces.back().level);
    copies = std::max(copies, pieces.back().v.size());
    vector |= pieces.back().is_vector();
  }
  for (size_t c = 0; c < copies; ++c) {
    std::vector<Value*> words(static_cast<size_t>(BitWidth(to) / word_bits), nullptr);
    for (size_t k = 0; k < pieces.size(); ++k) {
      Value* piece = pieces[k].at(c);
      if (vector) piece = Splat(piece, pieces[k].level);
      llvm::IRBuilder<>& b = At(r.level);
      piece = ToWords(b, from, piece, specs_.types)[0];
      piece = b.CreateZExt(piece, IntOf(b, piece->getType(), word_bits));
      const int bit = static_cast<int>(k) * width;
      piece = b.CreateShl(piece, static_cast<uint64_t>(bit % word_bits));
      Value*& word = words[static_cast<size_t>(bit / word_bits)];
      word = word == nullptr ? piece : b.CreateOr(word, piece);
    }
    r.v.push_back(FromWords(At(r.level), to, words, specs_.types));
  }
  return r;
}

Val KernelEmitter::EvalSplitBits(const Instruction* op, const IndexTuple& index,
                                 const Guard* guard) {
  const PrimitiveType from = op->operand(0)->shape().element_type(),
                      to = op->shape().element_type();
  const int width = BitWidth(to), word_bits = WordBits(from), per_word = word_bits / width;
  IndexTuple at = index;
  Index piece = at.back();
  at.pop_back();
  Val v = Eval(op->operand(0), at, guard);
  Val which = IsVectorIndex(piece) ? VectorIndex(piece, guard) : ScalarIndex(piece, guard);
  Val r{.level = std::max(v.level, which.level)};
  const bool vector = v.is_vector() || which.is_vector();
  for (size_t c = 0; c < std::max(v.v.size(), which.v.size()); ++c) {
    Value *x = v.at(c), *j = which.at(c);
    if (vector) {
      x = Splat(x, v.level);
      j = Splat(j, which.level);
    }
    llvm::IRBuilder<>& b = At(r.level);
    std::vector<Value*> words = ToWords(b, from, x, specs_.types);
    auto constant = [&](int64_t i) {
      return llvm::ConstantInt::get(j->getType(), static_cast<uint64_t>(i));
    };
    Value* word = words[0];
    if (words.size() > 1)
      word = b.CreateSelect(b.CreateICmpULT(j, constant(per_word)), words[0], words[1]);
    Value* bit = b.CreateMul(b.CreateAnd(j, constant(per_word - 1)), constant(width));
    bit = b.CreateZExtOrTrunc(bit, word->getType());
    Value* bits = b.CreateTrunc(b.CreateLShr(word, bit), IntOf(b, word->getType(), width));
    r.v.push_back(FromWords(b, to, {&bits, 1}, specs_.types));
  }
  return r;
}

}  // namespace tenon
