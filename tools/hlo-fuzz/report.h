// What a run found, counted: the table at the end, as text or JSON.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/hlo-fuzz/fuzz.h"

namespace tenon::lab {

class Report {
 public:
  void Add(const Record& record);
  void AddDeath(int64_t k, const std::string& how);

  int64_t modules() const { return modules_; }
  int64_t failures() const { return static_cast<int64_t>(failures_.size()); }  // differences, errors and deaths
  const std::vector<Record>& failed() const { return failures_; }

  std::string Line() const;  // of progress
  std::string Table(const FuzzOptions& options, double seconds) const;
  std::string Json(const FuzzOptions& options, double seconds) const;

 private:
  int64_t Quantile(double q) const;

  int64_t modules_ = 0, same_ = 0, refused_ = 0, elements_ = 0, bounded_ = 0, unjudged_ = 0, calls_ = 0, refused_calls_ = 0;
  std::vector<int64_t> instructions_;
  std::map<std::string, int64_t> opcodes_, types_, symbolic_, refusals_, outcomes_;
  std::vector<Record> failures_;
};

}  // namespace tenon::lab
