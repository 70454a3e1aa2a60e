// Streams of layers in the engine's books.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/core/error.h"
#include "service/engine/engine_state.h"

namespace kvtriage {
namespace {

// What any step costs beside the bytes it reads.
constexpr uint64_t kStepBytes = 64u << 10;

absl::Status BadLayer(std::string_view text, uint32_t layer) {
  return Error(ErrorReason::kFieldInvalid, "layer.layer", text).Got(layer);
}

absl::Status CheckLayer(const LayerStream& stream, uint32_t layer) {
  if (stream.PlaceOf(layer) == stream.progress.plan.cache.layers.size()) {
    return BadLayer("the stream did not announce this layer", layer);
  }
  if (stream.came.contains(layer)) return BadLayer("the layer came twice", layer);
  return absl::OkStatus();
}

absl::Status CheckComplete(const LayerStream& stream) {
  const std::vector<PlanLayer>& layers = stream.progress.plan.cache.layers;
  for (size_t place = 0; place < layers.size(); ++place) {
    if (stream.came.contains(layers[place].index)) continue;
    return Error(ErrorReason::kFieldMissing, "layer",
                 "the stream was closed before this layer came")
        .Index(place)
        .Got(layers[place].index);
  }
  return absl::OkStatus();
}

}  // namespace

// ---- calls --------------------------------------------------------------------------------------

void Engine::State::Open(const std::shared_ptr<LayerStream>& stream) {
  Callbacks later;
  bool queued = false;
  {
    const MutexLock lock(&mu);
    Books* books = BooksOf(*stream->call.session);
    auto job = std::make_unique<Job>();
    job->stream = stream;
    job->kind = CallKind::kCompressLayers;
    job->device = stream->device;
    job->call.session = stream->call.session;
    job->call.deadline = stream->call.deadline;
    job->call.cancelled = stream->dropped;
    job->key.session_id = stream->call.session->id();
    job->sequence_ids = stream->sequence_ids;
    job->bytes = kStepBytes;
    if (stream->spec.act.kind == ActKind::kInPlace) {
      job->ledger_slot = stream->spec.act.ledger_slot;
    }
    const absl::Status status =
        books == nullptr ? SessionEnded() : Admit(*job, *books, stream->call.deadline);
    if (status.ok()) {
      stream->sequences = books->sequences;
      stream->busy = queued = true;
      books->streams.push_back(stream);
      stream->id = next_job_id;
      Enqueue(std::move(job), *books);
    } else {
      stream->over = true;
      later.Answer(stream->call.ended, Refusal(status));
    }
  }
  later.Run();
  if (queued) TellQueue();
}

void Engine::State::Add(const std::shared_ptr<LayerStream>& stream, LayerCall layer) {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    if (stream->over || !stream->broken.ok()) return;
    if (const absl::Status status = CheckLayer(*stream, layer.layer); !status.ok()) {
      Break(stream, status, later);
    } else {
      stream->came.insert(layer.layer);
      stream->waiting.push_back(std::move(layer));
      Advance(stream, later);
    }
  }
  later.Run();
  TellQueue();
}

void Engine::State::HalfClose(const std::shared_ptr<LayerStream>& stream) {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    stream->half_closed = true;
    Advance(stream, later);
  }
  later.Run();
  TellQueue();
}

void Engine::State::Drop(const std::shared_ptr<LayerStream>& stream, const absl::Status& why) {
  Callbacks later;
  {
    const MutexLock lock(&mu);
    if (stream->over) return;
    *stream->dropped = true;
    const auto waits = [&stream](const Job& job) {
      return job.stream == stream && !job.closes_stream();
    };
    Refuse(queue.Take(stream->call.session->id(), waits), why, /*dead=*/false, later);
    Break(stream, why, later);
  }
  later.Run();
  TellQueue();
}

// ---- under the lock -----------------------------------------------------------------------------

void Engine::State::Advance(const std::shared_ptr<LayerStream>& stream, Callbacks& later) {
  if (stream->over || stream->busy) return;
  while (stream->broken.ok() && !stream->waiting.empty()) {
    if (AdvanceLayer(stream)) return;
  }
  if (stream->broken.ok() && !stream->half_closed) return;
  if (stream->broken.ok()) stream->broken = CheckComplete(*stream);
  // The lane has to close the slot, and to make the whole answer.
  if (stream->broken.ok() || stream->progress.slot_open) {
    return PushStep(stream, LayerStep::kClose, {}, nullptr);
  }
  EndStream(stream, Refusal(stream->broken), later);
}

bool Engine::State::AdvanceLayer(const std::shared_ptr<LayerStream>& stream) {
  const LayerCall layer = std::move(stream->waiting.front());
  stream->waiting.pop_front();
  const CallKey key{stream->call.session->id(), layer.header.key};
  // The same bytes name the same sequences, which this stream has to itself: no other call with
  // them can be running, and nobody ever waits here.
  IdempotencyStore::Done nobody = [](const CallResult&) {};
  CallResult known;
  switch (store.Arrive(key, CallKind::kCompress, layer.body, absl::Now(), nobody, known)) {
    case IdempotencyStore::Found::kUnseen:
      store.Begin(key, CallKind::kCompress, layer.body);
      PushStep(stream, LayerStep::kLayer, layer, nullptr);
      return true;
    case IdempotencyStore::Found::kAnswered:
      stream->broken = known.status;
      if (known.status.ok()) PushStep(stream, LayerStep::kLayer, layer, known.answer);
      return known.status.ok();
    case IdempotencyStore::Found::kWaits:
      break;
  }
  stream->broken = Error(ErrorReason::kInternal, "", "a layer's key is in use");
  return false;
}

void Engine::State::PushStep(const std::shared_ptr<LayerStream>& stream, LayerStep step,
                             const LayerCall& layer, std::shared_ptr<const Answer> stored) {
  auto job = std::make_unique<Job>();
  job->id = next_job_id++;
  job->stream = stream;
  job->step = step;
  job->device = stream->device;
  job->layer = layer.layer;
  job->stored = std::move(stored);
  job->kind = step == LayerStep::kLayer ? CallKind::kCompress : CallKind::kCompressLayers;
  job->key = {stream->call.session->id(), layer.header.key};
  job->call.session = stream->call.session;
  job->call.deadline = stream->call.deadline;
  job->call.cancelled = stream->dropped;
  job->sequences = stream->sequences;
  job->sequence_ids = stream->sequence_ids;
  job->bytes = kStepBytes;
  const size_t layers = stream->progress.plan.cache.layers.size();
  if (step == LayerStep::kLayer) job->bytes += stream->bytes / layers;
  job->admitted = absl::Now();
  stream->busy = true;
  queue.Push(std::move(job));
  changed.NotifyAll();
}

void Engine::State::FinishStep(const Job& job, const CallResult& result, Callbacks& later) {
  const std::shared_ptr<LayerStream>& stream = job.stream;
  stream->busy = false;
  if (job.step == LayerStep::kLayer && job.stored == nullptr) {
    later.AnswerAll(store.Finish(job.key, absl::Now(), result), result);
  }
  if (job.closes_stream()) return EndStream(stream, result, later);
  if (!result.status.ok()) {
    if (stream->broken.ok()) stream->broken = result.status;
  } else if (job.step == LayerStep::kOpen) {
    stream->opened = true;
    later.Add([stream, result] { stream->call.opened(result); });
  } else {
    stream->progress.done[static_cast<uint32_t>(stream->PlaceOf(job.layer))] = result.answer;
    later.Add([stream, layer = job.layer, result] { stream->call.layer_done(layer, result); });
  }
  if (stopped) {
    return EndStream(stream, Refusal(Error(ErrorReason::kDraining, "", "the service is stopping")),
                     later);
  }
  // The session's end comes next, and takes the stream with it.
  if (!sessions[job.session_id()].finished) Advance(stream, later);
}

void Engine::State::RefuseStep(const Job& job, const absl::Status& status, bool dead,
                               Callbacks& later) {
  job.stream->busy = false;
  if (job.stream->broken.ok()) job.stream->broken = status;
  if (job.step != LayerStep::kLayer || job.stored != nullptr) return;
  const CallResult result = Refusal(status);
  later.AnswerAll(dead ? store.MarkDead(job.key) : store.Finish(job.key, absl::Now(), result),
                  result);
}

void Engine::State::Break(const std::shared_ptr<LayerStream>& stream, const absl::Status& why,
                          Callbacks& later) {
  if (stream->broken.ok()) stream->broken = why;
  stream->waiting.clear();
  Advance(stream, later);
}

void Engine::State::EndStream(const std::shared_ptr<LayerStream>& stream, CallResult result,
                              Callbacks& later) {
  if (stream->over) return;
  stream->over = true;
  stream->opened = false;
  // After the first move the slot tells more than the error itself.
  if (stream->progress.moved) result.status = WithCacheState(result.status, CacheState::kSeeLedger);
  Books& books = sessions[stream->call.session->id()];
  std::erase(books.streams, stream);
  --books.jobs;
  if (stream->spec.act.kind == ActKind::kInPlace) {
    books.ledger_slots.erase(stream->spec.act.ledger_slot);
  }
  later.Answer(stream->call.ended, std::move(result));
  changed.NotifyAll();
}

void Engine::State::EndStreams(uint64_t session_id, const absl::Status& why, Callbacks& later) {
  const auto books = sessions.find(session_id);
  if (books == sessions.end()) return;
  // A copy: a stream that ends leaves the books.
  for (const auto& stream : std::vector(books->second.streams)) {
    if (!stream->busy) EndStream(stream, Refusal(why), later);
  }
}

}  // namespace kvtriage
