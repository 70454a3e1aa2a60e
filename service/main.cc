#include <string>
#include <vector>

#include "service/app/run.h"

int main(int argc, char** argv) {
  return kvtriage::RunKvtriaged(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
