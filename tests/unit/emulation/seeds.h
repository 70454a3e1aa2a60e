// The schedules that every emulated kernel is tested under: in order, and three shuffled ones.
#ifndef KVTRIAGE_TESTS_UNIT_EMULATION_SEEDS_H_
#define KVTRIAGE_TESTS_UNIT_EMULATION_SEEDS_H_

#include <gtest/gtest.h>

#include <string>

#include "kernels/emulation/emulation.h"

namespace kvtriage {

// Parameter: the seed. Options go back to their defaults after a test.
class EverySchedule : public testing::TestWithParam<uint64_t> {
 protected:
  EverySchedule() { emulation::SetOptions({.seed = GetParam()}); }
  ~EverySchedule() override { emulation::SetOptions({}); }
};

inline std::string SeedName(const testing::TestParamInfo<uint64_t>& info) {
  return "Seed" + std::to_string(info.param);
}

}  // namespace kvtriage

#endif  // KVTRIAGE_TESTS_UNIT_EMULATION_SEEDS_H_
