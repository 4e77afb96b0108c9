#include "tests/toy_target/toy_kernel.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <sstream>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/eval/scalar_op.h"
#include "hlo/text/text.h"
#include "tests/toy_target/toy_memory.h"

namespace tenon::toy {
namespace {

using Index = std::vector<int64_t>;

int64_t Linear(const Index& index, const std::vector<int64_t>& dims) {
  int64_t at = 0;
  for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + index[d];
  return at;
}
Index Unravel(int64_t at, const std::vector<int64_t>& dims) {
  Index index(dims.size());
  for (size_t d = dims.size(); d-- > 0; at /= dims[d]) index[d] = at % dims[d];
  return index;
}

struct Element {
  alignas(16) std::byte bytes[16] = {};
};

// The leaves of a computation's root: an instruction, and which of its results.
struct Root {
  const Instruction* op = nullptr;
  int64_t component = 0;
};
std::vector<Root> RootsOf(const Computation& c) {
  auto made = [](const Instruction* op) {
    return op->opcode() == Opcode::kGetTupleElement ? Root{op->operand(0), op->tuple_index()} : Root{op, 0};
  };
  std::vector<Root> roots;
  const Instruction* root = c.root();
  if (root->opcode() == Opcode::kTuple) {
    for (const Instruction* o : root->operands()) roots.push_back(made(o));
  } else if (root->shape().is_tuple()) {
    for (int64_t k = 0; k < static_cast<int64_t>(root->shape().elements().size()); ++k) roots.push_back({root, k});
  } else {
    roots.push_back(made(root));
  }
  return roots;
}
const Shape& ShapeOf(const Root& root) {
  return root.op->shape().is_tuple() ? root.op->shape().element(root.component) : root.op->shape();
}

// Does the element of parameter `p` that an element of a root hangs on always have that root's own index?
bool ReadsInPlace(const Computation& c, const Instruction* p, const std::vector<Root>& roots) {
  if (absl::c_any_of(roots, [&](const Root& r) { return !Shape::SameDims(ShapeOf(r), p->shape()); })) return false;
  std::vector<const Instruction*> affected = {p};
  for (size_t i = 0; i < affected.size(); ++i) {
    for (const Instruction* user : affected[i]->users()) {
      if (user->opcode() == Opcode::kTuple) continue;
      if (!eval::ScalarOp::Handles(*user) || !Shape::SameDims(user->shape(), p->shape())) return false;
      if (!absl::c_linear_search(affected, user)) affected.push_back(user);
    }
  }
  return true;
}

std::string Line(std::string_view key, const std::vector<Dim>& strides) {
  const std::string numbers = absl::StrJoin(strides, " ", [](std::string* out, Dim d) { absl::StrAppend(out, d.constant()); });
  return absl::StrCat(std::string(key), " ", numbers, "\n");
}

// The fused computation as the entry of a module of its own.
std::string TextOf(const Computation& fused) {
  const std::unique_ptr<Module> module = fused.module()->Clone();
  const std::vector<Computation*> all = module->computations();
  const auto entry = absl::c_find_if(all, [&](const Computation* c) { return c->name() == fused.name(); });
  TENON_CHECK(entry != all.end(), fused.name());
  module->set_entry(*entry);
  module->entry_layout.reset();
  module->aliases.clear();
  module->attributes.clear();
  module->origin_tables.clear();
  module->is_scheduled = false;
  module->name() = "toy";
  module->RemoveUnreachableComputations();
  return Print(*module);
}

}  // namespace

std::string ToyPlan::ToString() const {
  return absl::StrCat("toy elements=", elements, " each=", each, " threads=", threads, " blocks=", blocks(),
                      " shared=", shared_bytes_per_thread * threads);
}

absl::Status CanInterpret(const Instruction& op) {
  const auto no = [&](std::string_view why) { return absl::UnimplementedError(absl::StrCat(op.name(), ": ", std::string(why))); };
  for (const Shape& leaf : FlattenShape(op.shape())) {
    if (!leaf.is_array() || !leaf.is_static()) return no("no static array");
    if (BitWidth(leaf.element_type()) % 8 != 0 && leaf.element_type() != PrimitiveType::kPred) return no("elements of less than a byte");
  }
  for (const Instruction* o : op.operands()) {
    if (o->shape().is_tuple() && op.opcode() != Opcode::kGetTupleElement) return no("a tuple as operand");
  }
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kIota:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kReverse:
    case Opcode::kPad:
    case Opcode::kConcatenate:
    case Opcode::kReduce: return absl::OkStatus();
    default:
      if (eval::ScalarOp::Handles(op)) return absl::OkStatus();
      return no(absl::StrCat("no ", std::string(OpcodeName(op.opcode())), " on the toy"));
  }
}

absl::StatusOr<PlannedToy> PlanToy(const KernelRequest& request) {
  const Computation& fused = *request.fusion->fused_computation();
  const std::vector<Root> roots = RootsOf(fused);
  PlannedToy planned;
  for (const Instruction* op : fused.instructions()) {
    TENON_RETURN_IF_ERROR(CanInterpret(*op));
    if (op->opcode() != Opcode::kReduce) continue;
    for (const Instruction* user : op->users()) {
      if (user->opcode() != Opcode::kTuple && user->opcode() != Opcode::kGetTupleElement) {
        return absl::UnimplementedError(absl::StrCat(op->name(), ": a reduction that ", user->name(), " hangs on in the same kernel"));
      }
    }
    planned.plan.shared_bytes_per_thread = std::max<int64_t>(planned.plan.shared_bytes_per_thread, 16 * (op->operand_count() / 2));
  }
  for (const Root& root : roots) planned.plan.elements = std::max(planned.plan.elements, ShapeOf(root).num_elements_constant());
  planned.text = absl::StrCat(planned.plan.ToString(), "\n");
  for (const auto& [key, layouts] : {std::pair{"operand", &request.operands}, std::pair{"result", &request.results}}) {
    for (const OperandLayout& layout : *layouts) {
      if (absl::c_any_of(layout.strides, [](Dim d) { return !d.is_constant(); })) return absl::UnimplementedError("symbolic strides");
      absl::StrAppend(&planned.text, Line(key, layout.strides));
    }
  }
  absl::StrAppend(&planned.text, TextOf(fused));
  KernelInfo& info = planned.info;
  info.plan_text = planned.plan.ToString();
  for (const Instruction* p : fused.parameters()) {
    const int64_t o = p->parameter_number();
    if (!ReadsInPlace(fused, p, roots)) continue;
    for (int64_t r = 0; r < static_cast<int64_t>(roots.size()); ++r) {
      if (ShapeOf(roots[r]).element_type() == p->shape().element_type() && request.operands[o].strides == request.results[r].strides) {
        info.may_overwrite.push_back({o, r});
      }
    }
  }
  info.launch = LaunchDims{.grid = {planned.plan.blocks(), 1, 1}, .block = {planned.plan.threads, 1, 1},
                           .shared_bytes = planned.plan.shared_bytes_per_thread * planned.plan.threads};
  info.flops = planned.plan.elements;
  return planned;
}

void AppendKernel(std::string_view symbol, std::string_view text, std::vector<uint8_t>* image) {
  const std::string record = absl::StrCat("kernel ", std::string(symbol), " ", text.size(), "\n", std::string(text));
  image->insert(image->end(), record.begin(), record.end());
}

class ToyKernel {
 public:
  static absl::StatusOr<std::shared_ptr<const ToyKernel>> Parse(const std::string& text) {
    auto kernel = std::make_shared<ToyKernel>();
    std::istringstream in(text);
    std::string line;
    std::getline(in, line);
    for (const std::string& word : std::vector<std::string>(absl::StrSplit(line, ' '))) {
      const std::vector<std::string> pair = absl::StrSplit(word, '=');
      if (pair.size() == 2 && pair[0] == "each" && !absl::SimpleAtoi(pair[1], &kernel->each_)) return absl::DataLossError(line);
    }
    std::streampos at = in.tellg();
    for (; std::getline(in, line); at = in.tellg()) {
      const bool operand = line.starts_with("operand");
      if (!operand && !line.starts_with("result")) break;
      std::istringstream words(line.substr(line.find(' ') + 1));
      std::vector<int64_t> strides;
      for (int64_t s; words >> s;) strides.push_back(s);
      (operand ? kernel->operands_ : kernel->results_).push_back(std::move(strides));
    }
    TENON_ASSIGN_OR_RETURN(kernel->module_, ParseModule(text.substr(static_cast<size_t>(at))));
    TENON_RETURN_IF_ERROR(kernel->Prepare());
    return kernel;
  }

  const Computation& computation() const { return *module_->entry(); }
  const std::vector<Root>& roots() const { return roots_; }
  int64_t each() const { return each_; }
  const std::vector<int64_t>& operand(int64_t i) const { return operands_[i]; }
  const std::vector<int64_t>& result(size_t i) const { return results_[i]; }
  int64_t pointers() const { return static_cast<int64_t>(operands_.size() + results_.size()); }
  const eval::ScalarOp& scalar(const Instruction* op) const { return scalars_.at(op); }
  const Literal& value(const Instruction* op) const { return values_.at(op); }
  const std::vector<int64_t>& dims(const Instruction* op) const { return dims_.at(op); }

 private:
  absl::Status Prepare() {
    roots_ = RootsOf(computation());
    for (const Instruction* op : computation().instructions()) {
      if (op->shape().is_array()) dims_[op] = op->shape().constant_dims();
      if (op->opcode() == Opcode::kConstant) values_[op] = op->literal();
      if (op->opcode() == Opcode::kIota) {
        TENON_ASSIGN_OR_RETURN(values_[op], EvaluateInstruction(*op, {}));
      }
      if (eval::ScalarOp::Handles(*op)) {
        TENON_ASSIGN_OR_RETURN(eval::ScalarOp resolved, eval::ScalarOp::Resolve(*op));
        scalars_.emplace(op, resolved);
      }
    }
    if (operands_.size() != computation().parameters().size() || results_.size() != roots_.size()) {
      return absl::DataLossError("a toy kernel's operands or results are not its computation's");
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Module> module_;
  std::vector<Root> roots_;
  int64_t each_ = 1;
  std::vector<std::vector<int64_t>> operands_, results_;
  absl::flat_hash_map<const Instruction*, eval::ScalarOp> scalars_;
  absl::flat_hash_map<const Instruction*, Literal> values_;
  absl::flat_hash_map<const Instruction*, std::vector<int64_t>> dims_;
};

namespace {

// One thread of a launch.
class Thread {
 public:
  Thread(const ToyKernel& kernel, const std::vector<void*>& pointers, std::span<std::byte> shared)
      : k_(kernel), pointers_(pointers), shared_(shared) {}

  absl::Status Run(int64_t first, int64_t end) {
    for (int64_t at = first; at < end; ++at) {
      memo_.clear();
      std::vector<Element> made(k_.roots().size());
      for (size_t r = 0; r < made.size(); ++r) {  // all of them before any is stored: one may lie in an operand's memory
        const Root& root = k_.roots()[r];
        if (at >= ShapeOf(root).num_elements_constant()) continue;
        TENON_ASSIGN_OR_RETURN(made[r], ValueOf(root.op, Unravel(at, ShapeOf(root).constant_dims()), root.component));
      }
      for (size_t r = 0; r < made.size(); ++r) {
        const Shape& shape = ShapeOf(k_.roots()[r]);
        if (at >= shape.num_elements_constant()) continue;
        const size_t pointer = k_.computation().parameters().size() + r;
        const int64_t width = ByteWidth(shape.element_type());
        TENON_ASSIGN_OR_RETURN(std::byte * to, Address(pointer, k_.result(r), Unravel(at, shape.constant_dims()), width));
        std::memcpy(to, made[r].bytes, static_cast<size_t>(width));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::byte*> Address(size_t pointer, const std::vector<int64_t>& strides, const Index& index, int64_t width) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
    return TheMemory().At(static_cast<const char*>(pointers_[pointer]) + offset * width, width);
  }

  absl::StatusOr<Element> ValueOf(const Instruction* op, const Index& index, int64_t component = 0) {
    const bool keep = !in_reduction_ && op->user_count() > 1 && op->shape().is_array();
    const std::pair<const Instruction*, int64_t> key{op, keep ? Linear(index, k_.dims(op)) : 0};
    if (keep) {
      if (const auto known = memo_.find(key); known != memo_.end()) return known->second;
    }
    TENON_ASSIGN_OR_RETURN(const Element made, Compute(op, index, component));
    if (keep) memo_[key] = made;
    return made;
  }

  absl::StatusOr<Element> Compute(const Instruction* op, const Index& index, int64_t component) {
    switch (op->opcode()) {
      case Opcode::kParameter: {
        Element read;
        const int64_t width = ByteWidth(op->shape().element_type()), n = op->parameter_number();
        TENON_ASSIGN_OR_RETURN(const std::byte* from, Address(static_cast<size_t>(n), k_.operand(n), index, width));
        std::memcpy(read.bytes, from, width);
        return read;
      }
      case Opcode::kConstant:
      case Opcode::kIota: {
        Element read;
        const int64_t width = ByteWidth(op->shape().element_type());
        std::memcpy(read.bytes, k_.value(op).bytes() + Linear(index, k_.dims(op)) * width, width);
        return read;
      }
      case Opcode::kGetTupleElement: return ValueOf(op->operand(0), index, op->tuple_index());
      case Opcode::kBroadcast: {
        Index inner;
        for (int64_t d : op->dimensions()) inner.push_back(index[d]);
        return ValueOf(op->operand(0), inner);
      }
      case Opcode::kReshape: return ValueOf(op->operand(0), Unravel(Linear(index, k_.dims(op)), k_.dims(op->operand(0))));
      case Opcode::kTranspose: {
        Index inner(index.size());
        for (size_t d = 0; d < index.size(); ++d) inner[op->dimensions()[d]] = index[d];
        return ValueOf(op->operand(0), inner);
      }
      case Opcode::kSlice: {
        Index inner(index.size());
        const SliceSpec& slice = op->attrs().get<SliceSpec>(Attr::kSlice);
        for (size_t d = 0; d < index.size(); ++d) inner[d] = slice.starts[d].constant() + index[d] * slice.strides[d];
        return ValueOf(op->operand(0), inner);
      }
      case Opcode::kReverse: {
        Index inner = index;
        for (int64_t d : op->dimensions()) inner[d] = k_.dims(op)[d] - 1 - index[d];
        return ValueOf(op->operand(0), inner);
      }
      case Opcode::kPad: return Pad(op, index);
      case Opcode::kConcatenate: {
        Index inner = index;
        const int64_t along = op->dimensions()[0];
        for (const Instruction* o : op->operands()) {
          if (inner[along] < k_.dims(o)[along]) return ValueOf(o, inner);
          inner[along] -= k_.dims(o)[along];
        }
        return absl::InternalError(op->name());
      }
      case Opcode::kReduce: return Reduce(op, index, component);
      default: return Pointwise(op, index);
    }
  }

  absl::StatusOr<Element> Pad(const Instruction* op, const Index& index) {
    Index inner(index.size());
    const PaddingConfig& padding = op->attrs().get<PaddingConfig>(Attr::kPadding);
    for (size_t d = 0; d < index.size(); ++d) {
      const int64_t step = padding.dims[d].interior + 1, at = index[d] - padding.dims[d].low;
      inner[d] = at / step;
      if (at < 0 || at % step != 0 || inner[d] >= k_.dims(op->operand(0))[d]) return ValueOf(op->operand(1), {});
    }
    return ValueOf(op->operand(0), inner);
  }

  absl::StatusOr<Element> Pointwise(const Instruction* op, const Index& index) {
    Element operands[3], result;
    eval::ScalarOp::Operand given[3] = {};
    for (int64_t i = 0; i < op->operand_count(); ++i) {
      const bool scalar = op->operand(i)->shape().rank() == 0;  // of select, clamp
      TENON_ASSIGN_OR_RETURN(operands[i], ValueOf(op->operand(i), scalar ? Index() : index));
      given[i].data = operands[i].bytes;
    }
    k_.scalar(op).Run({given, static_cast<size_t>(op->operand_count())}, result.bytes, 1);
    return result;
  }

  // In the order of the evaluator, values so far in the block's shared memory.
  absl::StatusOr<Element> Reduce(const Instruction* op, const Index& index, int64_t component) {
    const int64_t n = op->operand_count() / 2;
    const std::vector<int64_t>& dims = k_.dims(op->operand(0));
    std::vector<int64_t> walked;
    for (int64_t d : op->dimensions()) walked.push_back(d);
    std::sort(walked.begin(), walked.end());
    Index inner(dims.size(), 0);
    for (size_t d = 0, from = 0; d < dims.size(); ++d) {
      if (!absl::c_linear_search(walked, static_cast<int64_t>(d))) inner[d] = index[from++];
    }
    if (static_cast<int64_t>(shared_.size()) < 16 * n) return absl::OutOfRangeError("a reduction's values are not in the shared memory");
    std::vector<Literal> args;
    for (int64_t i = 0; i < n; ++i) {
      TENON_ASSIGN_OR_RETURN(const Element init, ValueOf(op->operand(n + i), {}));
      std::memcpy(shared_.data() + 16 * i, init.bytes, 16);
    }
    int64_t count = 1;
    for (int64_t d : walked) count *= dims[d];
    const bool outer = std::exchange(in_reduction_, true);
    for (int64_t at = 0; at < count; ++at) {
      int64_t rest = at;
      for (size_t d = walked.size(); d-- > 0; rest /= dims[walked[d]]) inner[walked[d]] = rest % dims[walked[d]];
      args.clear();
      for (int64_t i = 0; i < 2 * n; ++i) {
        const PrimitiveType type = op->operand(i % n)->shape().element_type();
        Literal arg(Shape::Scalar(i < n ? op->to_apply()->parameter(i)->shape().element_type() : type));
        if (i < n) {
          std::memcpy(arg.mutable_bytes(), shared_.data() + 16 * i, ByteWidth(arg.type()));
        } else {
          TENON_ASSIGN_OR_RETURN(const Element x, ValueOf(op->operand(i - n), inner));
          std::memcpy(arg.mutable_bytes(), x.bytes, ByteWidth(arg.type()));
        }
        args.push_back(std::move(arg));
      }
      TENON_ASSIGN_OR_RETURN(const Literal next, Evaluate(*op->to_apply(), args));
      for (int64_t i = 0; i < n; ++i) {
        const Literal& value = next.shape().is_tuple() ? next.elements()[i] : next;
        std::memcpy(shared_.data() + 16 * i, value.bytes(), ByteWidth(value.type()));
      }
    }
    in_reduction_ = outer;
    Element result;
    std::memcpy(result.bytes, shared_.data() + 16 * component, 16);
    return result;
  }

  const ToyKernel& k_;
  const std::vector<void*>& pointers_;
  const std::span<std::byte> shared_;
  bool in_reduction_ = false;
  absl::flat_hash_map<std::pair<const Instruction*, int64_t>, Element> memo_;
};

}  // namespace

int64_t PointersOf(const ToyKernel& kernel) { return kernel.pointers(); }

absl::Status RunGrid(const ToyKernel& kernel, const std::vector<void*>& pointers, const KernelLaunch& launch) {
  std::vector<int64_t> blocks(static_cast<size_t>(launch.grid[0]));
  for (size_t b = 0; b < blocks.size(); ++b) blocks[b] = static_cast<int64_t>(b);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(static_cast<uint64_t>(launch.grid[0])));
  int64_t elements = 0;
  for (const Root& root : kernel.roots()) elements = std::max(elements, ShapeOf(root).num_elements_constant());
  for (int64_t b : blocks) {
    std::vector<std::byte> shared(static_cast<size_t>(launch.shared_bytes), ToyMemory::kPoison);
    const size_t share = shared.size() / static_cast<size_t>(launch.block[0]);
    for (int32_t t = 0; t < launch.block[0]; ++t) {
      const int64_t first = (b * launch.block[0] + t) * kernel.each();
      Thread thread(kernel, pointers, std::span(shared).subspan(share * static_cast<size_t>(t), share));
      TENON_RETURN_IF_ERROR(thread.Run(first, std::min(first + kernel.each(), elements)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::shared_ptr<const ToyKernel>>> LoadKernels(std::span<const uint8_t> image,
                                                                          std::span<const std::string> symbols) {
  std::map<std::string, std::string> texts;
  const std::string all(image.begin(), image.end());
  for (size_t at = 0; at < all.size();) {
    const size_t line = all.find('\n', at);
    const std::vector<std::string> words = absl::StrSplit(all.substr(at, line - at), ' ');
    size_t size = 0;
    if (line == std::string::npos || words.size() != 3 || words[0] != "kernel" || !absl::SimpleAtoi(words[2], &size) ||
        size > all.size() - line - 1) {
      return absl::DataLossError("an image that is not the toy's");
    }
    texts[words[1]] = all.substr(line + 1, size);
    at = line + 1 + size;
  }
  std::vector<std::shared_ptr<const ToyKernel>> kernels;
  for (const std::string& symbol : symbols) {
    const auto text = texts.find(symbol);
    if (text == texts.end()) return absl::NotFoundError(absl::StrCat("unresolved symbol ", symbol));
    TENON_ASSIGN_OR_RETURN(kernels.emplace_back(), ToyKernel::Parse(text->second));
  }
  return kernels;
}

}  // namespace tenon::toy
