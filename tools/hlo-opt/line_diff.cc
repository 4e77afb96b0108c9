#include "tools/hlo-opt/line_diff.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tenon::opt {
namespace {

constexpr int kMostChanges = 1500;

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

struct Edit {
  char sign;  // ' ', '-', '+'
  int a, b;   // the line's number in each text (where it stands, or would)
};
using LineSpan = const std::vector<std::string_view>&;

// Edits of a[from_a, end_a) into b[from_b, end_b), appended. Greedy shortest paths, the furthest point of each diagonal
// kept per number of changes so that the path can be walked back.
void Shortest(LineSpan a, int from_a, int end_a, LineSpan b, int from_b, int end_b, std::vector<Edit>* edits) {
  const int n = end_a - from_a, m = end_b - from_b, most = std::min(n + m, kMostChanges);
  std::vector<std::vector<int>> trace;
  std::vector<int> furthest(2 * most + 3, 0);
  const auto at = [most](std::vector<int>& v, int k) -> int& { return v[k + most + 1]; };
  int changes = -1;
  for (int d = 0; d <= most && changes < 0; ++d) {
    trace.push_back(furthest);
    for (int k = -d; k <= d; k += 2) {
      const bool down = k == -d || (k != d && at(furthest, k - 1) < at(furthest, k + 1));
      int x = down ? at(furthest, k + 1) : at(furthest, k - 1) + 1, y = x - k;
      while (x < n && y < m && a[from_a + x] == b[from_b + y]) ++x, ++y;
      at(furthest, k) = x;
      if (x >= n && y >= m) changes = d;
    }
  }
  if (changes < 0) {
    for (int x = 0; x < n; ++x) edits->push_back({'-', from_a + x, from_b});
    for (int y = 0; y < m; ++y) edits->push_back({'+', end_a, from_b + y});
    return;
  }
  std::vector<Edit> back;
  int x = n, y = m;
  for (int d = changes; d >= 0; --d) {
    std::vector<int>& v = trace[d];
    const int k = x - y;
    const bool down = k == -d || (k != d && at(v, k - 1) < at(v, k + 1));
    const int before_x = d == 0 ? 0 : down ? at(v, k + 1) : at(v, k - 1);
    const int before_y = d == 0 ? 0 : before_x - (down ? k + 1 : k - 1);
    while (x > before_x && y > before_y) back.push_back({' ', from_a + --x, from_b + --y});
    if (d == 0) break;
    if (down)
      back.push_back({'+', from_a + x, from_b + --y});
    else
      back.push_back({'-', from_a + --x, from_b + y});
  }
  edits->insert(edits->end(), back.rbegin(), back.rend());
}

std::vector<Edit> EditsOf(LineSpan a, LineSpan b) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  int head = 0, tail = 0;
  while (head < n && head < m && a[head] == b[head]) ++head;
  while (tail < n - head && tail < m - head && a[n - 1 - tail] == b[m - 1 - tail]) ++tail;
  std::vector<Edit> edits;
  for (int i = 0; i < head; ++i) edits.push_back({' ', i, i});
  Shortest(a, head, n - tail, b, head, m - tail, &edits);
  for (int i = tail; i > 0; --i) edits.push_back({' ', n - i, m - i});
  return edits;
}

}  // namespace

std::string LineDiff(std::string_view before, std::string_view after, std::string_view before_name,
                     std::string_view after_name, int context) {
  const std::vector<std::string_view> a = Lines(before), b = Lines(after);
  const std::vector<Edit> edits = EditsOf(a, b);
  std::string out;
  for (size_t i = 0; i < edits.size();) {
    if (edits[i].sign == ' ') {
      ++i;
      continue;
    }
    // One hunk: changes that are at most twice the context apart.
    size_t end = i, quiet = 0;
    for (size_t j = i; j < edits.size() && quiet <= 2 * static_cast<size_t>(context); ++j) {
      quiet = edits[j].sign == ' ' ? quiet + 1 : 0;
      if (edits[j].sign != ' ') end = j + 1;
    }
    const size_t from = i - std::min<size_t>(i, context), to = std::min(edits.size(), end + context);
    int lines_a = 0, lines_b = 0;
    for (size_t j = from; j < to; ++j) lines_a += edits[j].sign != '+', lines_b += edits[j].sign != '-';
    if (out.empty()) absl::StrAppend(&out, "--- ", std::string(before_name), "\n+++ ", std::string(after_name), "\n");
    absl::StrAppend(&out, "@@ -", edits[from].a + 1, ",", lines_a, " +", edits[from].b + 1, ",", lines_b, " @@\n");
    for (size_t j = from; j < to; ++j) {
      const Edit& e = edits[j];
      absl::StrAppend(&out, std::string(1, e.sign), std::string(e.sign == '+' ? b[e.b] : a[e.a]), "\n");
    }
    i = to;
  }
  return out;
}

}  // namespace tenon::opt
