#include "service/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "service/engine/engine_state.h"
#include "service/engine/lane.h"
#include "service/engine/planner.h"
#include "service/engine/row_source.h"

namespace kvtriage {

Engine::Engine(const EngineLimits& limits, std::unique_ptr<Backend> backend,
               EngineObserver* observer, std::vector<DeviceLane> devices)
    : state_(std::make_shared<State>(limits, observer)) {
  // A std::function must be copyable, a backend is not.
  auto host = std::make_shared<std::unique_ptr<Backend>>(std::move(backend));
  const auto make_host = [host]() -> absl::StatusOr<LaneDevice> {
    return LaneDevice{nullptr, std::move(*host), nullptr};
  };
  devices.insert(devices.begin(), DeviceLane{make_host, nullptr, observer});
  for (const DeviceLane& device : devices) state_->AddLane(device.observer);
  for (DeviceIndex i = 0; i < devices.size(); ++i) {
    lanes_.push_back(std::make_unique<Lane>(i, std::move(devices[i]), state_->limits, *state_));
  }
  keeper_ = std::thread([state = state_] { state->KeepGroups(); });
}

Engine::~Engine() {
  state_->Stop();
  keeper_.join();
  lanes_.clear();
}

absl::Status Engine::WaitReady() {
  absl::Status all;
  for (const std::unique_ptr<Lane>& lane : lanes_) all.Update(lane->WaitReady());
  return all;
}

void Engine::Compress(Call call, CompressSpec spec) {
  auto job = std::make_unique<Job>();
  job->kind = CallKind::kCompress;
  job->device = call.session->memory().DeviceOfCache(spec.cache_id);
  job->bytes = EstimateBytes(call.session->memory(), spec);
  for (const SequenceSpec& sequence : spec.sequences) {
    job->sequence_ids.push_back(sequence.sequence_id);
  }
  std::sort(job->sequence_ids.begin(), job->sequence_ids.end());
  if (spec.act.kind == ActKind::kInPlace) job->ledger_slot = spec.act.ledger_slot;
  const RequestHeader header = spec.header;
  job->spec = std::move(spec);
  state_->Submit(std::move(call), header, std::move(job));
}

void Engine::Observe(Call call, ObserveSpec spec) {
  auto job = std::make_unique<Job>();
  job->kind = CallKind::kObserve;
  job->device = call.session->memory().DeviceOfCache(spec.cache_id);
  uint64_t rows = 0;
  for (const SequenceSpec& sequence : spec.sequences) {
    job->sequence_ids.push_back(sequence.sequence_id);
    rows += sequence.physical_len;
  }
  std::sort(job->sequence_ids.begin(), job->sequence_ids.end());
  job->bytes = rows * SequenceRowBytes(call.session->memory(), spec.cache_id, {});
  if (spec.act.kind == ActKind::kInPlace) job->ledger_slot = spec.act.ledger_slot;
  const RequestHeader header = spec.header;
  job->spec = std::move(spec);
  state_->Submit(std::move(call), header, std::move(job));
}

void Engine::Rewind(Call call, RewindSpec spec) {
  auto job = std::make_unique<Job>();
  job->kind = CallKind::kRewind;
  job->sequence_ids = {spec.sequence_id};
  const RequestHeader header = spec.header;
  job->spec = std::move(spec);
  state_->Submit(std::move(call), header, std::move(job));
}

void Engine::SelectRecompute(Call call, SelectRecomputeSpec spec) {
  auto job = std::make_unique<Job>();
  job->kind = CallKind::kSelectRecompute;
  SessionMemory& memory = call.session->memory();
  job->device = DeviceOf(memory, spec.fresh);
  job->bytes = spec.rows * (RowBytes(memory, spec.fresh) + RowBytes(memory, spec.cached));
  const RequestHeader header = spec.header;
  job->spec = std::move(spec);
  state_->Submit(std::move(call), header, std::move(job));
}

std::shared_ptr<LayerStream> Engine::OpenLayers(LayersCall call, CompressSpec spec) {
  auto stream = std::make_shared<LayerStream>();
  stream->bytes = EstimateBytes(call.session->memory(), spec);
  stream->device = call.session->memory().DeviceOfCache(spec.cache_id);
  for (const SequenceSpec& sequence : spec.sequences) {
    stream->sequence_ids.push_back(sequence.sequence_id);
  }
  std::sort(stream->sequence_ids.begin(), stream->sequence_ids.end());
  stream->call = std::move(call);
  stream->spec = std::move(spec);
  state_->Open(stream);
  return stream;
}

void Engine::AddLayer(const std::shared_ptr<LayerStream>& stream, LayerCall layer) {
  state_->Add(stream, std::move(layer));
}

void Engine::CloseLayers(const std::shared_ptr<LayerStream>& stream) { state_->HalfClose(stream); }

void Engine::DropLayers(const std::shared_ptr<LayerStream>& stream, const absl::Status& why) {
  state_->Drop(stream, why);
}

void Engine::Rerotate(Call call, RerotateSpec spec) {
  auto job = std::make_unique<Job>();
  job->kind = CallKind::kRerotate;
  job->device = call.session->memory().DeviceOfCache(spec.cache_id);
  job->bytes = spec.rows * SequenceRowBytes(call.session->memory(), spec.cache_id, spec.layers);
  job->sequence_ids = {spec.sequence.sequence_id};
  if (spec.act.kind == ActKind::kInPlace) job->ledger_slot = spec.act.ledger_slot;
  const RequestHeader header = spec.header;
  job->spec = std::move(spec);
  state_->Submit(std::move(call), header, std::move(job));
}

void Engine::Fuse(Call call, FuseSpec spec) {
  auto job = std::make_unique<Job>();
  job->kind = CallKind::kFuse;
  job->device = call.session->memory().DeviceOfCache(spec.cache_id);
  const uint64_t rows = spec.full ? spec.sequence.physical_len : spec.rows.size();
  job->bytes = rows * SequenceRowBytes(call.session->memory(), spec.cache_id, spec.layers);
  job->sequence_ids = {spec.sequence.sequence_id};
  job->ledger_slot = spec.ledger_slot;
  const RequestHeader header = spec.header;
  job->spec = std::move(spec);
  state_->Submit(std::move(call), header, std::move(job));
}

void Engine::Register(Call call, RegisterSpec spec) {
  state_->Register(std::move(call), std::move(spec));
}

void Engine::ReleaseSequences(const std::shared_ptr<Session>& session,
                              std::vector<uint64_t> sequence_ids,
                              std::function<void(Released)> done) {
  state_->Release(session, std::move(sequence_ids), std::move(done));
}

void Engine::EndSession(const std::shared_ptr<Session>& session, std::function<void()> finished) {
  state_->EndSession(session, std::move(finished));
}

void Engine::StopAdmitting() { state_->Drain(); }

void Engine::NoteCancelled() { state_->WakeKeeper(); }

uint32_t Engine::waiting_ranks() const {
  const MutexLock lock(&state_->mu);
  return state_->groups.waiting();
}

uint32_t Engine::jobs_left() const {
  const MutexLock lock(&state_->mu);
  return state_->JobsLeft();
}

bool Engine::WaitIdle(uint64_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  const MutexLock lock(&state_->mu);
  while (state_->JobsLeft() > 0) {
    if (!state_->changed.WaitUntil(&state_->mu, deadline)) return state_->JobsLeft() == 0;
  }
  return true;
}

uint64_t Engine::RunningMs() const {
  uint64_t longest = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_) longest = std::max(longest, lane->RunningMs());
  return longest;
}

void Engine::MarkSick() {
  const MutexLock lock(&state_->mu);
  state_->sick = true;
}

void Engine::GiveUp() { state_->GiveUp(); }

}  // namespace kvtriage
