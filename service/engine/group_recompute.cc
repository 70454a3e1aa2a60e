// A rank's SelectRecompute.
#include <variant>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/group_part.h"
#include "service/engine/recompute.h"

namespace kvtriage {
namespace {

class RecomputePart final : public GroupPart {
 public:
  RecomputePart(const JobContext& context, const Job& job, Answer& answer)
      : spec_(std::get<SelectRecomputeSpec>(job.spec)),
        run_(context, job, answer),
        terms_(TermsOf(spec_)) {}

  absl::Status Score() {
    KVTRIAGE_RETURN_IF_ERROR(run_.Diverge());
    const GroupSpec& group = *spec_.group;
    if (run_.heads() <= group.total_kv_heads - group.first_kv_head) return absl::OkStatus();
    return Error(ErrorReason::kFieldInvalid, "group.total_kv_heads",
                 "the rank's heads end behind the model's")
        .Got(group.total_kv_heads)
        .Limit(uint64_t{group.first_kv_head} + run_.heads());
  }

  const GroupTerms& terms() const override { return terms_; }
  uint64_t bytes() const override { return run_.bytes(); }
  // A head that two ranks hold has the same rows on both.
  RankSums Sums() override {
    return {spec_.group->first_kv_head, run_.heads(), ReplicaRule::kOnce, run_.Sums()};
  }
  absl::Status Decide() override { return run_.Select(); }
  void Begin() override {}
  absl::Status Apply() override { return run_.Apply(); }

 private:
  const SelectRecomputeSpec& spec_;
  RecomputeRun run_;
  const GroupTerms terms_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GroupPart>> ScoreRecomputePart(const JobContext& context,
                                                              const Job& job, Answer& answer) {
  auto part = std::make_unique<RecomputePart>(context, job, answer);
  KVTRIAGE_RETURN_IF_ERROR(part->Score());
  return std::unique_ptr<GroupPart>(std::move(part));
}

}  // namespace kvtriage
