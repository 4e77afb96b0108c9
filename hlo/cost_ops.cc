#include "hlo/cost_ops.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hlo/own_calls.h"

namespace tenon {
namespace {

double Size(Dim d) { return static_cast<double>(Typical(d)); }

double Elements(const Shape& shape) {
  double n = 0;
  for (const Shape& leaf : FlattenShape(shape)) {
    if (!leaf.is_array()) continue;
    double count = 1;
    for (Dim d : leaf.dims()) count *= Size(d);
    n += count;
  }
  return n;
}

// Work of one application of a region, memory aside.
Cost Region(const Computation& c) {
  Cost sum;
  for (const Instruction* i : c.PostOrder()) {
    Cost cost = OwnCost(*i);
    cost.bytes = 0;
    Add(cost, 1, &sum);
  }
  return sum;
}

double Applied(const Instruction& i) { return i.attrs().has(Attr::kToApply) ? Region(*i.to_apply()).flops : 1; }

double DotFlops(const Instruction& i) {
  double contracted = 1;
  for (int64_t d : i.int_list(Attr::kLhsContractingDims)) {
    contracted *= Size(i.operand(0)->shape().dim(d));
  }
  return 2 * Elements(i.shape()) * contracted;
}

// A group g meets its rows only, so that over all groups each row is multiplied once.
double RaggedDotFlops(const Instruction& i) {
  const double rows = DotFlops(i);
  const auto ragged = i.int_list(Attr::kLhsRaggedDims), contracting = i.int_list(Attr::kLhsContractingDims);
  const bool shared = !ragged.empty() && std::count(contracting.begin(), contracting.end(), ragged[0]) > 0;
  const double groups = i.operand(2)->shape().dims().empty() ? 1 : Size(i.operand(2)->shape().dims().back());
  return shared ? rows / std::max(1.0, groups) : rows;
}

// Pairs of an output position and a kernel position that meet an element of the input, not padding or a dilation's hole.
double ValidPairs(int64_t input, int64_t output, const WindowDim& w) {
  int64_t pairs = 0;
  for (int64_t k = 0; k < w.size; ++k) {
    for (int64_t o = 0; o < output; ++o) {
      const int64_t at = o * w.stride - w.padding_low + k * w.window_dilation;
      pairs += at >= 0 && at % w.base_dilation == 0 && at / w.base_dilation < input;
    }
  }
  return static_cast<double>(pairs);
}

double ConvolutionFlops(const Instruction& i) {
  const DimLabels& labels = i.attrs().get<DimLabels>(Attr::kDimLabels);
  const Window window = i.attrs().get_or<Window>(Attr::kWindow, {});
  const Shape &input = i.operand(0)->shape(), &kernel = i.operand(1)->shape();
  double flops = 2;
  for (size_t d = 0; d < labels.input_spatial.size(); ++d) {
    WindowDim w;
    if (d < window.dims.size()) w = window.dims[d];
    flops *= ValidPairs(Typical(input.dim(labels.input_spatial[d])), Typical(i.shape().dim(labels.output_spatial[d])), w);
  }
  for (Dim d : {i.shape().dim(labels.output_batch), i.shape().dim(labels.output_feature), kernel.dim(labels.kernel_input_feature)}) {
    flops *= Size(d);
  }
  return flops;
}

double FftFlops(const Instruction& i) {
  const bool real = i.attrs().get<std::string>(Attr::kFftType).find('R') != std::string::npos;
  const double n = std::max(Elements(i.shape()), Elements(i.operand(0)->shape()));
  double length = 1;
  for (int64_t d : i.attrs().get<std::vector<int64_t>>(Attr::kFftLength)) length *= static_cast<double>(d);
  return (real ? 2.5 : 5) * n * std::log2(std::max(2.0, length));
}

double WindowSize(const Instruction& i) {
  double size = 1;
  for (const WindowDim& w : i.attrs().get_or<Window>(Attr::kWindow, {}).dims) size *= static_cast<double>(w.size);
  return size;
}

double SortFlops(const Instruction& i) {
  const Shape& keys = i.operand(0)->shape();
  const double n = keys.rank() == 0 ? 1 : Size(keys.dim(i.dimensions().at(0)));
  return Elements(keys) * std::log2(std::max(2.0, n)) * Applied(i);
}

double SolveFlops(const Instruction& i) {
  const Shape& a = i.operand(0)->shape();
  const double n = a.rank() == 0 ? 1 : Size(a.dims().back());
  return i.opcode() == Opcode::kCholesky ? Elements(a) * n / 3 : Elements(i.shape()) * n;
}

double WorkOf(const Instruction& i) {
  const double out = Elements(i.shape());
  const Shape* in = i.operand_count() > 0 ? &i.operand(0)->shape() : nullptr;
  switch (i.opcode()) {
    case Opcode::kDot:
    case Opcode::kScaledDot:
      return DotFlops(i);
    case Opcode::kRaggedDot:
      return RaggedDotFlops(i);
    case Opcode::kConvolution:
      return ConvolutionFlops(i);
    case Opcode::kReduce: {
      const double results = static_cast<double>(FlattenShape(i.shape()).size());
      return std::max(0.0, Elements(*in) - out / results) * Applied(i);
    }
    case Opcode::kReduceWindow:
      return out / static_cast<double>(FlattenShape(i.shape()).size()) * (WindowSize(i) - 1) * Applied(i);
    case Opcode::kSelectAndScatter:
      return Elements(i.operand(1)->shape()) * WindowSize(i);
    case Opcode::kScan:
    case Opcode::kMap:
    case Opcode::kAllReduce:
    case Opcode::kAllReduceStart:
    case Opcode::kReduceScatter:
    case Opcode::kCollectiveReduce:
      return Elements(*in) * Applied(i);
    case Opcode::kScatter:
      return Elements(i.operands().back()->shape()) * Applied(i);
    case Opcode::kSort:
      return SortFlops(i);
    case Opcode::kTopk:
      return Elements(*in) * std::log2(std::max(2.0, Size(in->dims().back())));
    case Opcode::kBatchNormTraining:
      return 5 * Elements(*in);
    case Opcode::kBatchNormInference:
      return 4 * Elements(*in);
    case Opcode::kBatchNormGrad:
      return 10 * Elements(*in);
    case Opcode::kFft:
      return FftFlops(i);
    case Opcode::kCholesky:
    case Opcode::kTriangularSolve:
      return SolveFlops(i);
    case Opcode::kRng:
    case Opcode::kRngBitGenerator:
      return out;
    default:
      if (IsPointwiseCall(i)) return 2 * out;
      return i.IsElementwise() && !OpCostOf(i.opcode()).transcendental ? out : 0;
  }
}

double BytesMoved(const Instruction& i) {
  double all = BytesOf(i.shape());
  for (const Instruction* operand : i.operands()) all += BytesOf(operand->shape());
  switch (i.opcode()) {
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kBitcast:
    case Opcode::kReshape:
    case Opcode::kOptBarrier:
    case Opcode::kDomain:
    case Opcode::kAddDependency:
    case Opcode::kAfterAll:
    case Opcode::kGetDimensionSize:
      return 0;
    case Opcode::kSlice:
    case Opcode::kDynamicSlice:
    case Opcode::kGather:  // what it takes, not what it takes from
      return all - BytesOf(i.operand(0)->shape()) + BytesOf(i.shape());
    case Opcode::kDynamicUpdateSlice:  // in place
      return 2 * BytesOf(i.operand(1)->shape());
    case Opcode::kScatter: {
      const double half = static_cast<double>(i.operand_count() - 1) / 2;
      double touched = 0;
      for (int64_t k = static_cast<int64_t>(half); k < i.operand_count(); ++k) {
        touched += BytesOf(i.operand(k)->shape()) * (k > half ? 3 : 1);  // updates and the elements they meet, twice
      }
      return touched;
    }
    default:
      return all;
  }
}

}  // namespace

const OpCost& OpCostOf(Opcode opcode) {
  static const std::array<OpCost, kNumOpcodes> table = [] {
    std::array<OpCost, kNumOpcodes> t;
    t.fill(OpCost());  // GCC 12 leaves most of it zero where it evaluates this while it compiles
    struct Row {
      Opcode opcode;
      int instructions, slots;
    };
    constexpr int kFunction = 25;  // instructions of a function of f32: from 20 to 58 (docs/accuracy.md)
    constexpr Row kSimple[] = {
        {Opcode::kDivide, 5, 16},
        {Opcode::kRemainder, 60, 100},
        {Opcode::kMaximum, 3, 3},
        {Opcode::kMinimum, 3, 3},
        {Opcode::kSign, 3, 3},
        {Opcode::kRoundNearestAfz, 4, 4},
        {Opcode::kIsFinite, 2, 2},
        {Opcode::kPopcnt, 4, 2},
        {Opcode::kCountLeadingZeros, 4, 2},
        {Opcode::kMulhi, 8, 8},
        {Opcode::kShiftLeft, 3, 3},
        {Opcode::kShiftRightLogical, 3, 3},
        {Opcode::kShiftRightArithmetic, 2, 2},
        {Opcode::kClamp, 6, 6},
        {Opcode::kConvert, 2, 2},
        {Opcode::kReducePrecision, 8, 8},
        {Opcode::kStochasticConvert, 8, 8},
        {Opcode::kReal, 0, 0},
        {Opcode::kImag, 0, 0},
        {Opcode::kComplex, 0, 0},
        {Opcode::kMap, 4, 4},
    };
    constexpr Row kTranscendental[] = {
        {Opcode::kAcos, kFunction, 68},
        {Opcode::kAcosh, kFunction, 78},
        {Opcode::kAsin, kFunction, 68},
        {Opcode::kAsinh, kFunction, 127},
        {Opcode::kAtan, kFunction, 49},
        {Opcode::kAtan2, kFunction, 65},
        {Opcode::kAtanh, kFunction, 73},
        {Opcode::kCbrt, kFunction, 116},
        {Opcode::kCosine, kFunction, 50},
        {Opcode::kCosh, kFunction, 42},
        {Opcode::kErf, kFunction, 34},
        {Opcode::kExponential, kFunction, 22},
        {Opcode::kExponentialMinusOne, kFunction, 34},
        {Opcode::kLog, kFunction, 25},
        {Opcode::kLogPlusOne, kFunction, 67},
        {Opcode::kLogistic, kFunction, 33},
        {Opcode::kPower, 50, 115},
        {Opcode::kRsqrt, 12, 31},
        {Opcode::kSine, kFunction, 50},
        {Opcode::kSinh, kFunction, 42},
        {Opcode::kSqrt, 6, 18},
        {Opcode::kTan, kFunction, 72},
        {Opcode::kTanh, kFunction, 39},
    };
    for (const Row& row : kSimple) t[static_cast<size_t>(row.opcode)] = {row.instructions, row.slots};
    for (const Row& row : kTranscendental) t[static_cast<size_t>(row.opcode)] = {row.instructions, row.slots, true};
    return t;
  }();
  return table[static_cast<size_t>(opcode)];
}

bool HasConstantDims(const Shape& shape) {
  for (const Shape& leaf : FlattenShape(shape)) {
    for (Dim d : leaf.dims()) {
      if (!d.is_constant()) return false;
    }
  }
  return true;
}

double BytesOf(const Shape& shape) {
  double bytes = 0;
  for (const Shape& leaf : FlattenShape(shape)) {
    if (leaf.is_array()) bytes += Elements(leaf) * static_cast<double>(ByteWidth(leaf.element_type()));
  }
  return bytes;
}

void Add(const Cost& cost, double times, Cost* to) {
  to->flops += times * cost.flops;
  to->transcendentals += times * cost.transcendentals;
  to->bytes += times * cost.bytes;
}

Cost Scaled(const Cost& cost, double by) { return {cost.flops * by, cost.transcendentals * by, cost.bytes * by}; }

Cost OwnCost(const Instruction& i) {
  Cost cost;
  if (i.opcode() == Opcode::kFusion) {
    cost = Region(*i.fused_computation());
  } else {
    cost.flops = WorkOf(i);
    if (OpCostOf(i.opcode()).transcendental) cost.transcendentals = Elements(i.shape());
    const bool applies = i.opcode() == Opcode::kMap || i.opcode() == Opcode::kReduce;
    if (applies) cost.transcendentals = Region(*i.to_apply()).transcendentals * Elements(i.operand(0)->shape());
  }
  cost.bytes = BytesMoved(i);
  return cost;
}

}  // namespace tenon
