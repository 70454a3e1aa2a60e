// A policy as a caller states it: a name, named parts, or both (parts replace the name's own).
// proto/kvtriage/v1/triage.proto says what each part means.
#ifndef KVTRIAGE_CLIENT_POLICY_H_
#define KVTRIAGE_CLIENT_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvtriage::client {

struct Scorer {
  enum class Kind {
    kAttention,
    kObcValue,
    kObcKey,
    kObcJoint,
    kDrop,
    kVatp,
    kRecency,
    kRandom,
    kCritical,  // reads ScoreInputs::output_projection
    kKeyNorm,
    kKeyDiff,
    kLagKv,
    kExpectedAttention,  // reads ScoreInputs::query_mean and query_covariance
  };
  Kind kind = Kind::kAttention;
  uint64_t random_key = 0;  // kRandom only
  uint32_t lag = 0;         // kLagKv only
  double first_stage = 0;   // kCritical only: share of the free slots that attention alone fills
  double epsilon = 0;       // kCritical and kExpectedAttention
  uint32_t future = 0;      // kExpectedAttention only: positions whose queries are expected
};

struct Window {
  bool all = false;
  uint32_t last = 0;  // when not `all`
  // `all`, in Observe: what earlier rows have added is multiplied with it at every row that
  // follows. Above 0, at most 1; 0 is 1.
  double decay = 0;
};

enum class Reduce { kUnspecified = 0, kSum = 1, kMean = 2, kMax = 3, kPre = 4 };

struct Pool {
  enum class Kind { kUnspecified = 0, kNone = 1, kAvg = 2, kMax = 3 };
  Kind kind = Kind::kNone;
  uint32_t kernel = 0;  // odd; 0 when kNone
};

struct Protect {
  uint32_t sinks = 0;
  uint32_t recent = 0;
  double recent_share = 0;  // of the budget; the larger of the two counts
};

struct Budget {
  // One of the two amounts; none with explicit counts.
  std::optional<uint32_t> kept_tokens;
  std::optional<double> kept_ratio;  // the share KEPT
  // One of the three; none: the name's choice, else uniform.
  bool uniform_layers = false;
  std::optional<uint32_t> pyramid_beta;   // PyramidKV
  std::vector<uint32_t> explicit_layers;  // kept rows, one count per layer of the call
  // One of the three; none: the name's choice, else uniform.
  bool uniform_heads = false;
  std::optional<double> adaptive_alpha;  // AdaKV
  std::vector<uint32_t> explicit_heads;  // one count per (layer of the call, KV head)
};

enum class Granularity { kUnspecified = 0, kPerHead = 1, kPerLayer = 2, kPerSequence = 3 };

struct PolicyParts {
  std::optional<Scorer> scorer;
  std::optional<Window> window;
  std::optional<Reduce> reduce;
  std::optional<Pool> pool;
  std::optional<Protect> protect;
  std::optional<Budget> budget;
  std::optional<Granularity> granularity;
};

struct Policy {
  std::string name;
  PolicyParts parts;
};

// A named policy with the share of rows to keep.
Policy NamedPolicy(std::string name, double kept_ratio);
// A named policy with the number of rows to keep.
Policy NamedPolicyTokens(std::string name, uint32_t kept_tokens);

}  // namespace kvtriage::client

#endif  // KVTRIAGE_CLIENT_POLICY_H_
