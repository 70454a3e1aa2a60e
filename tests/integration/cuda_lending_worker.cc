// A worker for tests to kill: lends device memory, says so, then waits for its end.
//   cuda_lending_worker SOCKET
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <iostream>

#include "tests/integration/cuda_lender.h"
#include "tests/integration/raw_worker.h"

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const kvtriage::CudaLender lender;
  kvtriage::RawWorker worker(argc > 1 ? argv[1] : "");
  if (!worker.Attach() || worker.Bind() != "ok") return 1;
  std::cout << kvtriage::ReasonOf(worker.LendIn(lender.Region())) << std::endl;
  while (true) pause();
}
