// What to do about what the doctor found.
#ifndef KVTRIAGE_CLIENT_CLI_DOCTOR_ADVICE_H_
#define KVTRIAGE_CLIENT_CLI_DOCTOR_ADVICE_H_

#include <string_view>

namespace kvtriage::cli {

// One line for the word of a failed step; empty where there is nothing to say beyond the step's
// text.
std::string_view AdviceFor(std::string_view word);

}  // namespace kvtriage::cli

#endif  // KVTRIAGE_CLIENT_CLI_DOCTOR_ADVICE_H_
