// Where the kept tokens of one list stand: the rows cut into equal cells, the kept share of each.
#ifndef KVTRIAGE_CLIENT_CLI_TOKEN_STRIP_H_
#define KVTRIAGE_CLIENT_CLI_TOKEN_STRIP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvtriage::cli {

// Kept share of each of min(cells, rows) cells; cell c covers rows [c*rows/cells,
// (c+1)*rows/cells).
std::vector<double> KeptShares(std::span<const int32_t> kept, uint64_t rows, uint64_t cells);

// The shares as one line of block characters: ' ' for none, the darker the more, full for all.
std::string StripText(const std::vector<double>& shares);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_TOKEN_STRIP_H_
