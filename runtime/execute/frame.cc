#include "runtime/execute/frame.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {

absl::Status HostBuffer::Reserve(int64_t bytes, const char* what, void* stream) {
  if (bytes <= size_ && !exact_ && stream == stream_) return absl::OkStatus();
  Free();  // first: the old and the new one needn't fit side by side
  const auto wanted = static_cast<size_t>(bytes);
  data_ = static_cast<char*>(space_ == 0 ? host_->allocate(host_->context, wanted)
                                         : host_->allocate_in(host_->context, space_, stream, wanted));
  if (data_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory: wanted ", bytes, " bytes for ", what,
                                                     space_ == 0 ? "" : absl::StrCat(" in memory space ", space_)));
  }
  stream_ = stream;
  size_ = bytes;
  return absl::OkStatus();
}

void HostBuffer::Free() {
  const auto bytes = static_cast<size_t>(size_);
  if (data_ != nullptr && space_ == 0) host_->deallocate(host_->context, data_, bytes);
  if (data_ != nullptr && space_ != 0) host_->deallocate_in(host_->context, space_, stream_, data_, bytes);
  data_ = nullptr;
  size_ = 0;
}

FrameArena::FrameArena(const BoundArena* bound, const TenonHost* host, int32_t space)
    : bound_(*bound), buffer_(host, space), memory_(&bound->placed), lent_(bound->lent) {
  if (GuardOfEnvironment() == MemoryGuard::kOff) return;
  for (size_t i = 0; i < bound_.values.size() + bound_.placed.values.size(); ++i) {
    apart_.push_back(std::make_unique<HostBuffer>(host, space));
  }
}

absl::Status FrameArena::Place(const Program& program, absl::Span<const int64_t> dims, void* stream, std::vector<char*>* base) {
  const int64_t fixed = Resolve(bound_.bytes, dims);
  if (fixed < 0) return absl::InvalidArgumentError(absl::StrCat("the arena's size comes out as ", fixed));
  const ArenaPlaces* places = nullptr;
  if (!bound_.placed.values.empty()) {
    TENON_ASSIGN_OR_RETURN(places, memory_.Find(dims));
  }
  const int64_t behind = AlignedUp(fixed);
  used_ = places == nullptr ? fixed : behind + places->bytes;
  if (!apart_.empty()) return PlaceApart(program, dims, stream, base);
  if (bound_.values.empty() && places == nullptr) return absl::OkStatus();
  const ArenaPlaces* written = std::exchange(places_, nullptr);
  TENON_RETURN_IF_ERROR(buffer_.Reserve(used_, "intermediate results", stream));
  char* data = buffer_.data();
  const bool moved = std::exchange(data_, data) != data;
  if (moved || !bound_.is_static) {
    for (int32_t value : bound_.values) (*base)[value] = data + Resolve(program.values[value].offset, dims);
  }
  if (places != nullptr && (moved || places != written)) {
    const PlacedValues& placed = bound_.placed;
    lent_ = bound_.lent;
    for (size_t k = 0; k < placed.values.size(); ++k) {
      (*base)[placed.values[k]] = data + behind + places->offsets[k];
      if (places->lent.empty() || places->lent[k] < 0) continue;
      lent_.push_back({placed.values[k], placed.lenders[places->lent[k]].output, places->offsets[k]});
    }
  }
  places_ = places;
  return absl::OkStatus();
}

void FrameArena::PlaceLent(const TenonTensor* outputs, std::vector<char*>* base) const {
  for (const auto& [value, output, offset] : lent_) (*base)[value] = static_cast<char*>(outputs[output].data) + offset;
}

absl::Status FrameArena::PlaceApart(const Program& program, absl::Span<const int64_t> dims, void* stream, std::vector<char*>* base) {
  for (size_t i = 0; i < apart_.size(); ++i) {
    const int32_t value = i < bound_.values.size() ? bound_.values[i] : bound_.placed.values[i - bound_.values.size()];
    TENON_RETURN_IF_ERROR(apart_[i]->Reserve(Resolve(program.values[value].bytes, dims), "an intermediate result", stream));
    (*base)[value] = apart_[i]->data();
  }
  return absl::OkStatus();
}

bool FrameArena::Holds(const char* p) const {
  auto in = [p](const HostBuffer& b) { return p >= b.data() && p < b.data() + b.size(); };
  return in(buffer_) || std::any_of(apart_.begin(), apart_.end(), [&](const auto& block) { return in(*block); });
}

Frame::Frame(const BoundProgram* b)
    : bound(*b),
      metas(b->num_metas),
      base(b->program.values.size()),
      slots(b->program.num_slots),
      caches(b->num_caches),
      pointers(b->max_operands),
      args(b->max_args),
      operands(b->max_operands),
      results(b->max_results),
      numbers(b->max_numbers),
      arena(&b->arena, b->host),
      scratch(b->host),
      overlap_(*b) {
  grouped.reserve(static_cast<size_t>(b->max_group));
  work_ends.reserve(static_cast<size_t>(b->max_group));
  for (size_t i = 0; i < bound.update_values.size(); ++i) updates.push_back(std::make_unique<HostBuffer>(bound.host));
  for (const LibraryStep* step : bound.symbolic_libraries) library_sizes.emplace_back(*step);
  for (const BoundDevice& d : bound.devices) devices.push_back(std::make_unique<OnDevice>(d, bound.host));
  for (const auto& [value, address] : bound.fixed_values) base[value] = static_cast<char*>(address);
  for (size_t v = 0; v < base.size(); ++v) {
    if (bound.program.values[v].kind == ValueKind::kErrorWord)
      base[v] = reinterpret_cast<char*>(&error_word);
  }
}

Frame::~Frame() {
  for (void* wrapper : caches) {
    if (wrapper != nullptr) bound.host->cache_release(bound.host->context, wrapper);
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    if (devices[d]->done != nullptr) bound.host->event_release(bound.host->context, bound.devices[d].space, devices[d]->done);
  }
}

absl::Status Frame::Begin(const TenonTensor* in, TenonTensor* out) {
  inputs = in;
  outputs = out;
  num_threads = 0;
  wrote_inputs = false;
  error_word.store(0, std::memory_order_relaxed);
  library_state = {};
  if (bound.has_dims || !bound.program.guards.empty()) TENON_RETURN_IF_ERROR(EvaluateGuarded(bound.program, in, &dims));
  if (bound.arena_step == 0) TENON_RETURN_IF_ERROR(PlaceArena());
  if (!devices.empty()) TENON_RETURN_IF_ERROR(PlaceDevices());
  for (const auto& [value, index] : bound.input_values)
    base[value] = static_cast<char*>(in[index].data);
  for (const auto& [value, index] : bound.output_values)
    base[value] = static_cast<char*>(out[index].data);
  arena.PlaceLent(out, &base);
  if (bound.num_metas != 0) ResolveMetas();
  return updates.empty() ? absl::OkStatus() : PlaceUpdates();
}

absl::Status Frame::PlaceUpdates() {
  updates_apart = overlap_.Overlaps(inputs) || (bound.calls_after_updates && !proven);
  for (size_t i = 0; i < updates.size(); ++i) {
    const auto& [value, index] = bound.update_values[i];
    base[value] = static_cast<char*>(inputs[index].data);
    if (!updates_apart) {
      updates[i]->Free();
      continue;
    }
    TENON_RETURN_IF_ERROR(updates[i]->Reserve(Resolve(bound.program.values[value].bytes, dims), "the new value of an input"));
    base[value] = updates[i]->data();
  }
  return absl::OkStatus();
}

// The arena may still be in use by the frame's last call, on another stream perhaps.
absl::Status Frame::PlaceDevices() {
  const TenonHost* host = bound.host;
  for (size_t k = 0; k < devices.size(); ++k) {
    const BoundDevice& d = bound.devices[k];
    OnDevice& here = *devices[k];
    here.stream = host->stream(host->context, d.space);
    if (void* done = std::exchange(here.done, nullptr)) {
      host->event_wait(host->context, d.space, here.stream, done);
      host->event_release(host->context, d.space, done);
    }
    TENON_RETURN_IF_ERROR(here.arena.Place(bound.program, dims, here.stream, &base));
  }
  return absl::OkStatus();
}

absl::StatusOr<char*> Frame::ScratchFor(const FreeMemory& room, int64_t bytes) {
  if (bytes <= room.bytes) {
    char* memory = room.output < 0 ? arena.data() : static_cast<char*>(outputs[room.output].data);
    if (memory != nullptr) return memory + room.offset;
  }
  TENON_RETURN_IF_ERROR(ReserveScratch(bytes));
  return scratch.data();
}

void Frame::ResolveMetas() {
  for (const BoundKernel& k : bound.kernels) {
    for (const BoundView& v : k.operands) Resolve1(v);
  }
  for (const BoundCall& c : bound.calls) {
    for (const BoundView& v : c.operands) Resolve1(v);
    for (const BoundView& v : c.results) Resolve1(v);
  }
  for (const BoundCopy& c : bound.copies) {
    Resolve1(c.from);
    Resolve1(c.to);
  }
  for (const BoundLibrary& l : bound.libraries) {
    for (const BoundView& v : l.views) Resolve1(v);
  }
  for (const BoundTransfer& t : bound.transfers) {
    Resolve1(t.copy.from);
    Resolve1(t.copy.to);
  }
}

void Frame::Resolve1(const BoundView& v) {
  if (v.meta < 0) return;
  int64_t* out = metas.data() + v.meta;
  for (SizeRef d : v.view->dims) *out++ = Resolve(d, dims);
  for (SizeRef s : v.view->strides) *out++ = Resolve(s, dims);
}

void Frame::End() {
  for (int32_t s = 0; s < static_cast<int32_t>(slots.size()); ++s) ReleaseSlot(s);
  if (owned != nullptr) {
    for (size_t i = 0; i < bound.program.inputs.size(); ++i) {
      if (std::exchange(owned[i], 0))
        bound.host->tensor_release(bound.host->context, inputs[i].tensor);
    }
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    if (devices[d]->done != nullptr) bound.host->event_release(bound.host->context, bound.devices[d].space, devices[d]->done);
    devices[d]->done = bound.host->event_record(bound.host->context, bound.devices[d].space, devices[d]->stream);
  }
  owned = nullptr;
  inputs = nullptr;
  outputs = nullptr;
  if (bound.arena_step == 0) return;
  arena.Free();
  scratch.Free();
}

void Frame::SetSlot(int32_t slot, const TenonTensor& tensor) {
  ReleaseSlot(slot);
  slots[slot] = tensor;
  for (int32_t value : bound.slot_values[slot]) base[value] = static_cast<char*>(tensor.data);
}

void Frame::ReleaseSlot(int32_t slot) {
  if (void* tensor = std::exchange(slots[slot].tensor, nullptr)) {
    bound.host->tensor_release(bound.host->context, tensor);
  }
}

}  // namespace tenon
