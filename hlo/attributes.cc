#include "hlo/attributes.h"

#include <algorithm>

namespace tenon {
namespace {

bool KeyLess(const std::pair<Attr, AttrValue>& entry, Attr attr) { return entry.first < attr; }

}  // namespace

const AttrValue* Attributes::find(Attr a) const {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), a, KeyLess);
  return it == entries_.end() || it->first != a ? nullptr : &it->second;
}

void Attributes::set(Attr a, AttrValue value) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), a, KeyLess);
  if (it != entries_.end() && it->first == a) {
    it->second = std::move(value);
  } else {
    entries_.emplace(it, a, std::move(value));
  }
}

void Attributes::erase(Attr a) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), a, KeyLess);
  if (it != entries_.end() && it->first == a) entries_.erase(it);
}

}  // namespace tenon
