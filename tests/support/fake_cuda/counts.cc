#include "tests/support/fake_cuda/counts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>

#include "tests/support/fake_cuda/call.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace kvtriage::fake_cuda {
namespace {

struct Slot {
  char name[56];  // empty: free
  int64_t count;
};
using Table = std::array<Slot, 64>;

std::mutex mutex;

std::string FileOf(const std::string& folder, pid_t process) {
  return folder + "/counts." + std::to_string(process);
}

Table& OwnTable() {
  static Table* table = [] {
    static Table local{};
    if (Folder().empty()) return &local;
    const int fd = open(FileOf(Folder(), getpid()).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Table)) != 0) Misuse("counts", "no file in the folder");
    void* mapped = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return mapped == MAP_FAILED ? &local : static_cast<Table*>(mapped);
  }();
  return *table;
}

Slot& SlotOf(const char* name) {
  for (Slot& slot : OwnTable()) {
    if (slot.name[0] == 0) std::strncpy(slot.name, name, sizeof slot.name - 1);
    if (std::strcmp(slot.name, name) == 0) return slot;
  }
  Misuse(name, "more names than the table of counts holds");
}

bool IsState(const char* name) {
  return std::strcmp(name, "allocations") == 0 || std::strcmp(name, "mappings") == 0;
}

std::map<std::string, uint64_t> ToMap(const Table& table) {
  std::map<std::string, uint64_t> counts;
  for (const Slot& slot : table) {
    if (slot.name[0] != 0) counts[slot.name] = static_cast<uint64_t>(slot.count);
  }
  return counts;
}

}  // namespace

uint64_t CountCall(const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  return static_cast<uint64_t>(++SlotOf(name).count);
}

void AddToCount(const char* name, int64_t change) {
  const std::lock_guard<std::mutex> lock(mutex);
  SlotOf(name).count += change;
}

void ResetCounts() {
  const std::lock_guard<std::mutex> lock(mutex);
  for (Slot& slot : OwnTable()) {
    if (!IsState(slot.name)) slot.count = 0;
  }
}

std::map<std::string, uint64_t> Counts() {
  const std::lock_guard<std::mutex> lock(mutex);
  return ToMap(OwnTable());
}

std::map<std::string, uint64_t> CountsOf(const std::string& folder, pid_t process) {
  Table table{};
  std::ifstream file(FileOf(folder, process), std::ios::binary);
  file.read(reinterpret_cast<char*>(&table), sizeof table);
  return ToMap(table);
}

}  // namespace kvtriage::fake_cuda
