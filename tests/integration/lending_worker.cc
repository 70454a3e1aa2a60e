// A worker that tests kill or stop: lends a cache, says so, compresses once, then waits for its
// end.
//   lending_worker SOCKET
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/stamped_worker.h"

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  namespace client = kvtriage::client;
  client::ConnectOptions options;
  options.endpoint = argc > 1 ? argv[1] : "";
  const auto session = client::Session::Connect(options);
  if (!session.ok()) {
    std::cerr << session.status() << "\n";
    return 1;
  }
  client::StampedWorker worker(1, 64);
  worker.Lend(**session);
  std::cout << "lent" << std::endl;
  const auto seen = [&worker] {
    std::string ignored;
    return worker.Tokens(worker.Of(0), 0, 16, &ignored);
  };
  std::thread([seen, before = seen()] {
    while (seen() == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::cout << "moving" << std::endl;
  }).detach();
  const client::CompressOutcome outcome = (*session)->Compress(worker.Request({worker.Of(0)}, 16));
  std::cout << client::OutcomeName(outcome.outcome) << std::endl;
  while (true) pause();
}
