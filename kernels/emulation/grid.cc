#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels/emulation/block.h"
#include "kernels/emulation/counters.h"
#include "kernels/emulation/sanitizers.h"

namespace kvtriage::emulation {
namespace {

// Rounds in which every resident block of a host thread only spun. Blocks of other host threads may
// be what they wait for, so this is generous; a kernel that never ends is caught all the same.
constexpr uint64_t kSpinRounds = 2'000'000;

// What the host threads of one grid share.
struct Grid {
  GridShape shape;
  const std::function<void()>* body;
  Options options;
  std::vector<uint32_t> order;  // of the blocks
  std::atomic<uint32_t> next{0};
  char end_tag = 0;
};

// Runs blocks of a grid on one host thread, several at a time.
class Worker {
 public:
  Worker(Grid& grid, uint32_t number)
      : grid_(grid),
        random_(static_cast<uint32_t>(grid.options.seed * 2654435761u + 1 + number)),
        thread_order_(grid.shape.threads) {
    std::iota(thread_order_.begin(), thread_order_.end(), 0u);
  }

  void Run() {
    for (uint64_t turn = 0;; ++turn) {
      if (kReusesStacks && active_.empty()) RecycleStacks();
      if (!kReusesStacks || active_.empty()) Refill();
      if (active_.empty()) break;
      Step(grid_.options.seed != 0 ? random_() % active_.size() : turn % active_.size());
    }
    Acquire(&grid_.end_tag);
    ended_.clear();
    AddCounters(counters_);
  }

 private:
  // Making stacks takes longer than most grids: a host thread keeps them from grid to grid, where
  // stacks may be used again at all.
  StackPool& Stacks() {
    if constexpr (!kReusesStacks) return stacks_;
    thread_local StackPool kept;
    return kept;
  }

  void RecycleStacks() {
    ended_.clear();
    next_stack_ = 0;
  }

  void Refill() {
    const uint32_t total = static_cast<uint32_t>(grid_.order.size());
    while (active_.size() < std::max(1u, grid_.options.resident_blocks)) {
      const uint32_t turn = grid_.next.fetch_add(1, std::memory_order_relaxed);
      if (turn >= total) return;
      const uint32_t i = grid_.order[turn];
      const GridShape& shape = grid_.shape;
      const Index3 index{i % shape.blocks_x, i / shape.blocks_x % shape.blocks_y,
                         i / shape.blocks_x / shape.blocks_y};
      active_.push_back(
          MakeBlock(shape, index, *grid_.body, Stacks(), next_stack_, counters_, &grid_.end_tag));
      next_stack_ += shape.threads;
    }
  }

  void Step(size_t pick) {
    const Sweep sweep =
        SweepBlock(*active_[pick], thread_order_, grid_.options.seed != 0 ? &random_ : nullptr);
    spin_rounds_ = sweep == Sweep::kOnlySpins ? spin_rounds_ + 1 : 0;
    if (spin_rounds_ > kSpinRounds) Fail("a spin wait is never satisfied");
    if (sweep != Sweep::kEnded) return;
    ReleaseBlock(*active_[pick]);
    ended_.push_back(std::move(active_[pick]));
    active_.erase(active_.begin() + static_cast<ptrdiff_t>(pick));
  }

  Grid& grid_;
  std::minstd_rand random_;
  std::vector<uint32_t> thread_order_;
  StackPool stacks_;
  size_t next_stack_ = 0;
  std::vector<std::unique_ptr<Block>> active_, ended_;
  uint64_t spin_rounds_ = 0;
  Counters counters_;
};

}  // namespace

void RunGrid(const GridShape& shape, const std::function<void()>& thread) {
  if (current != nullptr) Fail("a kernel starts a grid");
  if (shape.threads < 1 || shape.threads > 1024) Fail("a block has 1 to 1024 threads");
  const uint64_t total = uint64_t{shape.blocks_x} * shape.blocks_y * shape.blocks_z;
  if (total == 0 || total > (uint64_t{1} << 31)) Fail("a grid has 1 to 2^31 blocks");
  Grid grid{.shape = shape, .body = &thread, .options = GetOptions()};
  grid.order.resize(total);
  std::iota(grid.order.begin(), grid.order.end(), 0u);
  if (grid.options.seed != 0) {
    std::minstd_rand random(static_cast<uint32_t>(grid.options.seed));
    std::shuffle(grid.order.begin(), grid.order.end(), random);
  }
  std::vector<std::thread> team;
  for (uint32_t i = 1; i < grid.options.host_threads; ++i) {
    team.emplace_back([&grid, i] { Worker(grid, i).Run(); });
  }
  Worker(grid, 0).Run();
  for (std::thread& member : team) member.join();
  AddCounters({.grids = 1});
}

}  // namespace kvtriage::emulation
