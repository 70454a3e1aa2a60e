// The steps of a Compress on the lane, one call each, in this order: Plan, Triage (or, with others
// to meet, Score and Select), Prepare, Move. Who runs them adds the fences before and the books
// after.
#ifndef KVTRIAGE_SERVICE_ENGINE_COMPRESS_RUN_H_
#define KVTRIAGE_SERVICE_ENGINE_COMPRESS_RUN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "service/engine/in_place.h"
#include "service/engine/job_context.h"
#include "service/engine/kept_scores.h"
#include "service/engine/plan.h"
#include "service/engine/plan_writes.h"
#include "service/engine/running_scores.h"
#include "service/engine/triage_halves.h"
#include "service/session/session.h"

namespace kvtriage {

// What an answer says beside its sequences: the policy, the layers.
void FillHead(const CompressSpec& spec, const CompressPlan& plan, CompressAnswer& answer);

// Table entries with changed bytes, as an answer has them.
std::vector<uint8_t> BitmapOf(const SequenceWrites& writes);

class CompressRun {
 public:
  // Everything but `context` outlives it. `answer` gets the body, and the times of the steps.
  CompressRun(JobContext context, Session& session, const CompressSpec& spec, Answer& answer);

  absl::Status Plan();  // errors: service/engine/planner.h
  // Sequence by sequence. Asks context.stop() between sequences and layers; errors: TriageOne.
  absl::Status Triage();
  // After Plan: one per sequence, to score by instead of query rows; none is as before.
  void ScoreBy(ScoresOfSequences standing) { standing_ = std::move(standing); }
  // Instead of Triage: what another way of choosing has found.
  void TakeResults(std::vector<TriageResult> results);
  // The halves of Triage over all sequences. Between them the run needs neither pins nor lane:
  // Unpin lets go of them, and Select plans anew.
  absl::Status Score();
  void Unpin();
  absl::Status Select();
  // Between the halves: what lists that heads share are chosen by, and what all of it occupies.
  std::vector<std::span<float>> SharedScores();
  uint64_t ScoredBytes() const;
  // After the triage: the sequence changes in layers that this run does not see, so also a layer
  // that keeps all its rows is written where the others go.
  void CountAsChanged(size_t sequence);
  // What will be written, checked, and the answer as it will be when the moves succeed: only
  // kv_revision and the kept sets are missing. Errors: plan_writes.h, RESULT_TOO_LARGE, and what
  // context.stop() says last: from here on nothing stops the job.
  absl::Status Prepare();
  // `ledger` is for writing in place only; its slot is open.
  MoveReport Move(const LedgerJob& ledger);

  // Tells the metrics what became of every sequence.
  void ReportDecisions(const MoveReport& report) const;
  // MOVE_FAILED, naming the sequence that `report` stopped at.
  absl::Status MoveFailed(const MoveReport& report) const;
  // Puts a sequence's kept sets into the answer: once, last.
  void Complete(size_t sequence, uint32_t kv_revision);

  const CompressPlan& plan() const { return plan_; }
  const std::vector<TriageResult>& results() const { return results_; }
  const std::vector<SequenceWrites>& writes() const { return writes_; }
  // keep_state: the sums of every sequence's rows.
  std::vector<RowSums>& seeds() { return seeds_; }

 private:
  absl::Status ScoreOne(size_t sequence);
  absl::Status ScoreSource(size_t sequence);
  absl::Status ScoreAndKeep(size_t sequence);
  absl::Status SelectOne(size_t sequence);
  void TellTriage();
  absl::Status CheckRenumber();
  absl::Status CheckWrites();
  void Compose();
  absl::Status CheckSize() const;
  MoveReport NoMoves() const;
  MoveReport Copy();
  void Tell(Stage stage, double seconds) const;

  const JobContext context_;
  Session& session_;
  const CompressSpec& spec_;
  Answer& answer_;
  CompressAnswer& body_;
  CompressPlan plan_;
  std::vector<ScoredSequence> scored_;
  std::vector<TriageResult> results_;
  std::vector<SequenceWrites> writes_;
  std::vector<RowSums> seeds_;
  ScoresOfSequences standing_;
};

}  // namespace kvtriage

#endif  // KVTRIAGE_SERVICE_ENGINE_COMPRESS_RUN_H_
