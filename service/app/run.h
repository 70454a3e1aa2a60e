// The program, apart from main().
#ifndef KVTRIAGE_SERVICE_APP_RUN_H_
#define KVTRIAGE_SERVICE_APP_RUN_H_

#include <string>
#include <vector>

namespace kvtriage {

// Runs kvtriaged with these arguments (without the program's name). The exit code.
int RunKvtriaged(const std::vector<std::string>& arguments);

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_APP_RUN_H_
