#include "client/cli/token_strip.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace kvtriage::cli {

std::vector<double> KeptShares(std::span<const int32_t> kept, uint64_t rows, uint64_t cells) {
  cells = std::min(cells, rows);
  std::vector<double> shares(cells);
  size_t next = 0;
  for (uint64_t cell = 0; cell < cells; ++cell) {
    const uint64_t begin = cell * rows / cells, end = (cell + 1) * rows / cells;
    uint64_t count = 0;
    for (; next < kept.size() && static_cast<uint64_t>(kept[next]) < end; ++next) ++count;
    shares[cell] = static_cast<double>(count) / static_cast<double>(end - begin);
  }
  return shares;
}

std::string StripText(const std::vector<double>& shares) {
  static constexpr std::array kShades = {" ", "░", "▒", "▓", "█"};
  std::string line;
  for (const double share : shares) {
    // Any kept token shows, and only a cell that is wholly kept is full.
    const auto shade = share >= 1 ? 4 : static_cast<size_t>(std::ceil(share * 3));
    line += kShades[shade];
  }
  return line;
}

}  // namespace kvtriage::cli
