// What collectives say about the devices of a program, and which of them mean something on one device.
//
// Sources: XLA's replica_group.h (lists, iota, mesh) and hlo_instructions.cc for the text forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/instruction.h"

namespace tenon {

// replica_groups, in one of three spellings: lists {{0,1},{2,3}}, iota [groups,size]<=[dims]T(perm), or mesh['a'=2,'b'=4] {'a'}.
// {} means one group of all devices.
struct ReplicaGroups {
  std::vector<std::vector<int64_t>> lists;  // of the first spelling only
  int64_t groups = 0;                       // how many; 0: {}
  int64_t size = 0;                         // members of the largest group; 0: {}
};

// InvalidArgument for text that is none of the spellings, for negative or repeated devices, and for sizes whose product disagrees.
absl::StatusOr<ReplicaGroups> ParseReplicaGroups(std::string_view text);

// {{source,target},...}: no source and no target twice.
absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> ParseSourceTargetPairs(std::string_view text);

// Unimplemented, naming the op and what it asks for, where `op` talks to devices other than device 0; OK for every other op. Two
// groups of one device each are OK: no data moves. `op` has passed shape inference, so its texts parse.
absl::Status CheckOneDevice(const Instruction& op);

}  // namespace tenon
