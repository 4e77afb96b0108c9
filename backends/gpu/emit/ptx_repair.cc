#include "backends/gpu/emit/ptx_repair.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

namespace tenon::gpu {
namespace {

using llvm::StringRef;

// Bits of a register by its name; 0: it is none that is stored from.
int RegisterBits(StringRef name) {
  const StringRef kind = name.take_until([](char c) { return llvm::isDigit(c); });
  return kind == "%rd" ? 64 : kind == "%r" ? 32 : kind == "%rs" ? 16 : 0;
}

std::vector<StringRef> Operands(StringRef text) {
  std::vector<StringRef> operands;
  while (!text.empty()) {
    const auto [first, rest] = text.split(", ");
    operands.push_back(first);
    text = rest;
  }
  return operands;
}

// "st.global.v2.b32 \t[%rd1+8], {%rd2, %r3};" with what is wider than 32 bits cut before. "": nothing is.
std::string CutStore(StringRef line) {
  const StringRef op = line.take_until([](char c) { return c == ' '; });
  int bits = 0;
  if (op.rsplit(".b").second.getAsInteger(10, bits) || bits > 32) return "";
  const size_t value = line.substr(0, line.find('{')).rfind(", ");
  if (value == line.npos) return "";
  const StringRef before = line.substr(1, value + 1);
  StringRef values = line.drop_front(value + 2);
  values.consume_back(";");
  const bool vector = values.consume_front("{") && values.consume_back("}");
  std::string cut;
  std::vector<std::string> parts;
  for (const StringRef part : Operands(values)) {
    const int have = RegisterBits(part), want = bits == 8 ? 16 : bits;
    if (have <= bits) {
      parts.push_back(part.str());
      continue;
    }
    const std::string name = absl::StrCat("%cut", parts.size());
    absl::StrAppend(&cut, " .reg .b", want, " ", name, ";");
    if (have == want) absl::StrAppend(&cut, " and.b16 ", name, ", ", part.str(), ", 255;");
    else absl::StrAppend(&cut, " cvt.u", want, ".u", have, " ", name, ", ", part.str(), ";");
    parts.push_back(name);
  }
  if (cut.empty()) return "";
  const std::string joined = absl::StrJoin(parts, ", ");
  return absl::StrCat("\t{", cut, " ", before.str(), vector ? absl::StrCat("{", joined, "}") : joined, "; }");
}

// -x as ~(x - 1).
std::string Negated(const std::string& to, const std::string& from) {
  return absl::StrCat("add.s32 \t", to, ", ", from, ", -1; not.b32 \t", to, ", ", to, ";");
}

// "neg.s32 \t%r2, %r1;" by other means, "abs.s16 \t%rs2, %rs1;" in 32 bits. "": it is no such instruction.
std::string Signed(StringRef line) {
  StringRef text = line.trim("\t;");
  const bool absolute = text.consume_front("abs.s16 \t");
  const bool difference = !absolute && text.consume_front("sub.s");
  if (!absolute && !difference && !text.consume_front("neg.s")) return "";
  const bool words = !absolute && text.consume_front("32 \t");
  if (!absolute && !words && !text.consume_front("16 \t")) return "";
  const std::vector<StringRef> operands = Operands(text);
  if (difference && operands[1] != "0") return "";
  const std::string to = operands.front().str(), from = operands.back().str();
  if (words) return absl::StrCat("\t", Negated(to, from));
  return absl::StrCat("\t{ .reg .b32 %word; cvt.s32.s16 %word, ", from, "; ",
                      absolute ? "abs.s32 %word, %word;" : Negated("%word", "%word"), " cvt.u16.u32 ", to, ", %word; }");
}

}  // namespace

std::string RepairPtx(std::string_view ptx) {
  std::string repaired;
  repaired.reserve(ptx.size());
  for (StringRef rest(ptx.data(), ptx.size()); !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const StringRef line = rest.take_front(end);
    const std::string other = line.starts_with("\tst.") ? CutStore(line) : Signed(line);
    repaired += other.empty() ? std::string_view(line) : std::string_view(other);
    if (end < rest.size()) repaired += '\n';
    rest = rest.drop_front(std::min(end + 1, rest.size()));
  }
  return repaired;
}

}  // namespace tenon::gpu
