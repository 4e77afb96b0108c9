// What a step reads and writes.
#pragma once

#include <functional>
#include <vector>

#include "runtime/program/program.h"

namespace tenon {

void ForEachView(const Step& step, const std::function<void(const View&)>& fn);
std::vector<int32_t> RegionsOf(const Step& step);  // that it runs
// Of the step, and of all the regions it runs.
void ForEachViewInside(const Program& program, const Step& step, const std::function<void(const View&)>& fn);

}  // namespace tenon
