// Shape inference of random number ops.
#include "hlo/infer/context.h"

namespace tenon::infer {
TENON_INFER(kRng) {
  TENON_ASSIGN_OR_RETURN(const Shape result, Declared(in));
  const std::string distribution = in.ident(Attr::kDistribution);
  TENON_WANT(distribution == "rng_uniform" || distribution == "rng_normal", "rng_c1",
             "distribution rng_uniform or rng_normal", distribution);
  TENON_WANT(result.is_array() && in.shape(0).is_scalar() && in.shape(1).is_scalar() &&
                 in.shape(0).element_type() == result.element_type() &&
                 in.shape(1).element_type() == result.element_type(),
             "rng_c2", "two scalars of the result's type", OperandShapes(in), " for ", result.ToString());
  TENON_WANT(distribution == "rng_uniform" || IsFloat(result.element_type()), "rng_c3", "a float rng_normal",
             result.ToString());
  return result;
}

TENON_INFER(kRngBitGenerator) {
  TENON_ASSIGN_OR_RETURN(const Shape result, Declared(in));
  const std::string algorithm = in.ident(Attr::kRngAlgorithm);
  TENON_WANT(algorithm == "rng_default" || algorithm == "rng_three_fry" || algorithm == "rng_philox",
             "rng_bit_generator_c1", "algorithm rng_default, rng_three_fry or rng_philox", algorithm);
  TENON_WANT(result.is_tuple() && result.elements().size() == 2 && KnownCompatible(result.element(0), in.shape(0)) &&
                 result.element(1).is_array(),
             "rng_bit_generator_c2", absl::StrCat("a result (", in.shape(0).ToString(), ", array)"),
             result.ToString());
  TENON_WANT(IsIntegral(in.shape(0).element_type()) && !IsComplex(result.element(1).element_type()) &&
                 result.element(1).element_type() != PrimitiveType::kPred,
             "rng_bit_generator_c3", "an integer state and bits as numbers", in.shape(0).ToString(), " for ",
             result.ToString());
  return result;
}

TENON_INFER(kRngGetAndUpdateState) {
  TENON_ASSIGN_OR_RETURN(const Shape result, Declared(in));
  const Shape wanted(PrimitiveType::kU64, {2});
  TENON_WANT(KnownCompatible(result, wanted), "rng_get_and_update_state_c1", "a result of u64[2]", result.ToString());
  return wanted;
}

}  // namespace tenon::infer
