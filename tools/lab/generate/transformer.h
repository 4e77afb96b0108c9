// A training-free step of a small decoder-only transformer as HLO, with inputs: the large module on
// which the reducer is measured.
//
// Per layer: layer norm; token shift (a pad that drops the last position); QKV projections with
// PyTorch-style [out, in] weights; rotary positions; a bf16 key/value cache updated in place at the
// step's position, whose old value is read for a drift statistic; causal, padding-masked softmax
// attention with an additive bias and a maximum-logit statistic; dropout by an unsigned threshold
// on random bits, twice; a GELU MLP. Around them: token and position embeddings by gather, a tied
// output projection, log-softmax cross entropy.
//
// The inputs hold what real ones do: padding ids out of range, NaN in the cache's unused positions
// of one sequence (it reaches that sequence's every result, as it must: the maximum is taken before
// the mask), a query whose every logit is biased far down.
#pragma once

#include <memory>
#include <vector>

#include "hlo/literal.h"
#include "hlo/module.h"
#include "tools/lab/reduce/reduce.h"

namespace tenon::lab {

struct TransformerOptions {
  int64_t layers = 4, batch = 2, sequence = 24, heads = 2, head_dim = 12, cache = 32,
          vocabulary = 37, hidden = 60;
};

// As a framework would trace it: nothing simplified.
std::unique_ptr<Module> TransformerStep(const TransformerOptions& options = {});
std::vector<Literal> TransformerInputs(const Module& step, const TransformerOptions& options = {},
                                       uint64_t seed = 1);

// The step after the pipeline's rewriting passes, up to layout assignment, with its inputs.
absl::StatusOr<Case> OptimizedTransformer(const TransformerOptions& options = {});

}  // namespace tenon::lab
