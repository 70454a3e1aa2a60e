// One rank as a process: lends, calls once, says what became of it and of its rows, and waits.
//   rank_process SOCKET SEED RANK RANKS KEPT
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "tests/integration/rank_worker.h"

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  namespace client = kvtriage::client;
  if (argc != 6) return 2;
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  const auto rank = static_cast<uint32_t>(number(3)), ranks = static_cast<uint32_t>(number(4));
  const auto kept = static_cast<uint32_t>(number(5));
  client::ConnectOptions options;
  options.endpoint = argv[1];
  const auto session = client::Session::Connect(options);
  if (!session.ok()) {
    std::cerr << session.status() << "\n";
    return 1;
  }
  client::RankWorker worker(number(2), rank, ranks);
  worker.Lend(**session);
  std::cout << "lent" << std::endl;
  const client::CompressOutcome outcome =
      (*session)->Compress(worker.Request(kept), {.deadline_ms = 120'000});
  std::cout << client::OutcomeName(outcome.outcome) << std::endl;
  if (outcome.result.has_value()) {
    const auto& lists = outcome.result->sequences[0].kept_sets.lists;
    std::cout << (worker.Holds(lists) ? "moved" : "torn") << std::endl;
    for (const auto& list : lists) {
      for (const int32_t row : list) std::cout << row << " ";
      std::cout << std::endl;
    }
  }
  std::cout << "done" << std::endl;
  while (true) pause();
}
