// A rank's Compress.
#include <variant>

#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/engine/compress_job.h"
#include "service/engine/fences.h"
#include "service/engine/group_part.h"
#include "service/engine/kept_scores.h"

namespace kvtriage {
namespace {

// The rank's range of heads holds for all layers, and ends inside the model.
absl::Status CheckHeads(const GroupSpec& group, const PlanCache& cache) {
  const uint32_t heads = cache.layers.front().kv_heads();
  for (const PlanLayer& layer : cache.layers) {
    if (layer.kv_heads() == heads) continue;
    return Error(ErrorReason::kGeometryInvalid, "group",
                 "a rank's layers need one number of KV heads")
        .Index(layer.index)
        .Got(layer.kv_heads())
        .Limit(heads);
  }
  if (heads <= group.total_kv_heads - group.first_kv_head) return absl::OkStatus();
  return Error(ErrorReason::kFieldInvalid, "group.total_kv_heads",
               "the rank's heads end behind the model's")
      .Got(group.total_kv_heads)
      .Limit(uint64_t{group.first_kv_head} + heads);
}

class CompressPart final : public GroupPart {
 public:
  CompressPart(const JobContext& context, const Job& job, Answer& answer)
      : observer_(context.observer),
        job_(job),
        spec_(std::get<CompressSpec>(job.spec)),
        answer_(answer),
        run_(context, *job.call.session, spec_, answer) {}

  absl::Status Score() {
    KVTRIAGE_RETURN_IF_ERROR(CheckFences(*job_.sequences, spec_));
    KVTRIAGE_RETURN_IF_ERROR(CheckDrafts(*job_.sequences, spec_));
    KVTRIAGE_RETURN_IF_ERROR(run_.Plan());
    KVTRIAGE_RETURN_IF_ERROR(CheckHeads(*spec_.group, run_.plan().cache));
    KVTRIAGE_ASSIGN_OR_RETURN(auto standing,
                              StandingScores(*job_.sequences, spec_, run_.plan().cache));
    run_.ScoreBy(std::move(standing));
    KVTRIAGE_RETURN_IF_ERROR(run_.Score());
    terms_ = TermsOf(spec_, run_.plan().cache);
    heads_ = run_.plan().cache.layers.front().kv_heads();
    run_.Unpin();
    return absl::OkStatus();
  }

  const GroupTerms& terms() const override { return terms_; }
  uint64_t bytes() const override { return run_.ScoredBytes(); }
  RankSums Sums() override {
    return {spec_.group->first_kv_head, heads_, ReplicaRuleOf(spec_.policy), run_.SharedScores()};
  }
  absl::Status Decide() override {
    KVTRIAGE_RETURN_IF_ERROR(run_.Select());
    return run_.Prepare();
  }
  void Begin() override { OpenCompress(job_, spec_, run_); }
  absl::Status Apply() override {
    return ApplyCompress(observer_, job_, spec_, std::get<CompressAnswer>(answer_.body), run_, {});
  }

 private:
  EngineObserver* const observer_;
  const Job& job_;
  const CompressSpec& spec_;
  Answer& answer_;
  CompressRun run_;
  GroupTerms terms_;
  uint32_t heads_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GroupPart>> ScoreCompressPart(const JobContext& context,
                                                             const Job& job, Answer& answer) {
  auto part = std::make_unique<CompressPart>(context, job, answer);
  KVTRIAGE_RETURN_IF_ERROR(part->Score());
  return std::unique_ptr<GroupPart>(std::move(part));
}

}  // namespace kvtriage
