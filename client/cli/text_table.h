// Columns of text, as wide as their widest cell.
#ifndef KVTRIAGE_CLIENT_CLI_TEXT_TABLE_H_
#define KVTRIAGE_CLIENT_CLI_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace kvtriage::cli {

// One line per row; every row has as many cells as the first. Nothing is padded at a line's end.
std::string TextTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_TEXT_TABLE_H_
