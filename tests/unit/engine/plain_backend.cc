#include "tests/unit/engine/plain_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/core/splitmix64.h"
#include "kernels/core/status_macros.h"

namespace kvtriage {
namespace {

float SumOf(const AttentionInput& input, const LayerRows& layer, uint32_t head, uint32_t row) {
  const auto at = [&](uint32_t h) {
    return LoadElement(input.sums.At(0, h, row), input.sums.dtype);
  };
  if (input.sums_axis == HeadAxis::kSummed) return at(0);
  if (input.sums_axis == HeadAxis::kKv) return at(head);
  const uint32_t group = layer.q_heads / layer.k.layout.heads;
  float sum = 0;
  for (uint32_t h = 0; h < group; ++h) sum += at(head * group + h);
  return sum;
}

float ScoreOf(const ScoreRequest& request, uint32_t head, uint32_t row) {
  if (request.spec.scorer == Scorer::kRecency) return static_cast<float>(row);
  if (request.spec.scorer == Scorer::kRandom) {
    const uint64_t place = uint64_t{request.layer_index} * request.layer.k.layout.heads + head;
    return static_cast<float>(SplitMix64(request.spec.random_key, (place << 32) + row) >> 40);
  }
  return SumOf(request.input, request.layer, head, row);
}

// Bytes of one row, element by element.
std::vector<std::byte> ReadRow(const KvView& view, const SequenceRows& rows, uint32_t head,
                               uint64_t row) {
  const std::byte* at = RowAddress(view, rows, head, row);
  std::vector<std::byte> bytes(view.layout.row_bytes());
  if (view.layout.contiguous_rows()) {
    std::memcpy(bytes.data(), at, bytes.size());
    return bytes;
  }
  const uint64_t element = ElementBytes(view.layout.dtype);
  for (uint32_t e = 0; e < view.layout.row_elems; ++e) {
    std::memcpy(bytes.data() + e * element, at + e * view.layout.elem_stride, element);
  }
  return bytes;
}

void WriteRow(const KvView& view, const SequenceRows& rows, uint32_t head, uint64_t row,
              const std::vector<std::byte>& bytes) {
  std::byte* at = RowAddress(view, rows, head, row);
  if (view.layout.contiguous_rows()) {
    std::memcpy(at, bytes.data(), bytes.size());
    return;
  }
  const uint64_t element = ElementBytes(view.layout.dtype);
  for (uint32_t e = 0; e < view.layout.row_elems; ++e) {
    std::memcpy(at + e * view.layout.elem_stride, bytes.data() + e * element, element);
  }
}

void MoveOne(const MoveRequest& request, MoveResult& result) {
  for (uint32_t head = 0; head < request.kept.size(); ++head) {
    for (size_t j = 0; j < request.kept[head].size(); ++j) {
      const auto from = static_cast<uint64_t>(request.kept[head][j]);
      if (RowAddress(request.from, request.from_rows, head, from) ==
          RowAddress(request.to, request.to_rows, head, j)) {
        continue;
      }
      WriteRow(request.to, request.to_rows, head, j,
               ReadRow(request.from, request.from_rows, head, from));
      result.bytes_written += request.from.layout.row_bytes();
    }
  }
}

// One head, in float64: channel pairs turned by (to - from) * f, or the difference of float32
// products.
void RotateHead(const RotateRequest& request, size_t layer, uint32_t head, RotateResult& result) {
  const Rope& rope = *request.rope;
  const ViewLayout& layout = request.keys[layer].layout;
  for (uint32_t j = 0; j < request.count; ++j) {
    const size_t list = layer * layout.heads + head;
    const uint64_t was =
        request.from_rows.empty() ? j : static_cast<uint64_t>(request.from_rows[list][j]);
    const RowPosition from = request.from.At(was, rope.multi_plane());
    const RowPosition to = request.to.At(j, rope.multi_plane());
    if (from == to) continue;
    std::byte* const row =
        RowAddress(request.keys[layer], request.rows, head, uint64_t{request.first_row} + j);
    for (uint32_t p = 0; p < rope.rotary_dim / 2; ++p) {
      const bool first = p < rope.sections[0], second = p < rope.sections[0] + rope.sections[1];
      const size_t plane = !rope.multi_plane() || first ? 0 : second ? 1 : 2;
      const double angle = static_cast<double>(to[plane] - from[plane]) * rope.speeds[p];
      const bool half = rope.pairing == RopePairing::kHalf;
      const uint32_t a = rope.offset + (half ? p : 2 * p);
      const uint32_t b = rope.offset + (half ? p + rope.rotary_dim / 2 : 2 * p + 1);
      const float x = LoadElement(row + a * layout.elem_stride, layout.dtype);
      const float y = LoadElement(row + b * layout.elem_stride, layout.dtype);
      StoreElement(row + a * layout.elem_stride, layout.dtype,
                   static_cast<float>(x * std::cos(angle) - y * std::sin(angle)));
      StoreElement(row + b * layout.elem_stride, layout.dtype,
                   static_cast<float>(y * std::cos(angle) + x * std::sin(angle)));
    }
    result.bytes_written += rope.rotary_dim * ElementBytes(layout.dtype);
  }
}

float Element(const DivergenceRows& rows, uint32_t head, int32_t row, uint32_t e) {
  const ViewLayout& layout = rows.view.layout;
  const uint64_t index = static_cast<uint64_t>(row) - rows.first_row;
  return LoadElement(RowAddress(rows.view, rows.sequence, head, index) + e * layout.elem_stride,
                     layout.dtype) *
         RowScale(rows.view, rows.sequence, head, index);
}

}  // namespace

absl::Status PlainBackend::Score(std::span<const ScoreRequest> requests, const StopCheck& stop,
                                 std::vector<ScoreResult>& results) {
  ++hooks_->scores;
  if (hooks_->on_score) hooks_->on_score();
  results.clear();
  for (const ScoreRequest& request : requests) {
    KVTRIAGE_RETURN_IF_ERROR(stop());
    ScoreResult& result = results.emplace_back();
    const bool summed = request.input.source == AttentionSource::kColumnSums &&
                        request.input.sums_axis == HeadAxis::kSummed;
    result.lists = summed ? 1 : request.layer.k.layout.heads;
    result.usable_rows.resize(result.lists);
    for (uint32_t h = 0; h < result.lists; ++h) {
      for (uint32_t p = 0; p < request.layer.sequence.rows; ++p) {
        result.scores.push_back(ScoreOf(request, h, p));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlainBackend::Select(std::span<const SelectRequest> requests,
                                  std::vector<SelectResult>& results) {
  results.clear();
  for (const SelectRequest& request : requests) {
    SelectResult& result = results.emplace_back();
    std::vector<uint32_t> free_slots;
    for (size_t i = 0; i < request.scores.size(); ++i) {
      const uint32_t budget = std::min(request.BudgetOf(i), request.rows);
      free_slots.push_back(budget - static_cast<uint32_t>(request.protect[i].size()));
    }
    std::vector<std::vector<int32_t>> candidates(request.scores.size());
    for (size_t i = 0; i < request.scores.size(); ++i) {
      for (int32_t p = 0; p < static_cast<int32_t>(request.rows); ++p) {
        if (!std::binary_search(request.protect[i].begin(), request.protect[i].end(), p)) {
          candidates[i].push_back(p);
        }
      }
    }
    if (request.adaptive_alpha) {
      free_slots = AdaptiveCounts(request.scores, candidates[0], free_slots[0],
                                  *request.adaptive_alpha, request.protect[0].empty() ? 1 : 0);
    }
    for (size_t i = 0; i < request.scores.size(); ++i) {
      std::vector<int32_t> kept = TopK(request.scores[i], candidates[i], free_slots[i]);
      kept.insert(kept.end(), request.protect[i].begin(), request.protect[i].end());
      std::sort(kept.begin(), kept.end());
      result.kept.push_back(std::move(kept));
    }
  }
  return absl::OkStatus();
}

absl::Status PlainBackend::Measure(std::span<const QualityRequest> requests, const StopCheck& stop,
                                   std::vector<QualityResult>& results) {
  results.clear();
  for (const QualityRequest& request : requests) {
    KVTRIAGE_RETURN_IF_ERROR(stop());
    results.emplace_back().heads.resize(request.kept.size());
  }
  return absl::OkStatus();
}

absl::Status PlainBackend::Diverge(const DivergenceRequest& request, DivergenceResult& result) {
  const ViewLayout& layout = request.fresh.view.layout;
  for (const int32_t row : request.rows) {
    float diff = 0, old = 0;
    for (uint32_t h = 0; h < layout.heads; ++h) {
      for (uint32_t e = 0; e < layout.row_elems; ++e) {
        const float now = Element(request.fresh, h, row, e);
        const float then = Element(request.cached, h, row, e);
        diff += (now - then) * (now - then);
        old += then * then;
      }
    }
    const bool relative = request.metric == DivergenceMetric::kRelative && !request.apart;
    if (request.apart) result.old.push_back(old);
    result.divergence.push_back(relative ? diff / (old + 1e-6f) : diff);
  }
  return absl::OkStatus();
}

absl::Status PlainBackend::Move(std::span<const MoveRequest> requests, MoveResult& result) {
  const int call = hooks_->moves++;
  if (hooks_->on_move) hooks_->on_move();
  const bool fails = call == hooks_->fail_move;
  for (size_t i = 0; i < (fails ? (requests.size() + 1) / 2 : requests.size()); ++i) {
    MoveOne(requests[i], result);
  }
  return fails ? absl::InternalError("told to fail") : absl::OkStatus();
}

absl::Status PlainBackend::Rotate(std::span<const RotateRequest> requests, RotateResult& result) {
  for (const RotateRequest& request : requests) {
    for (size_t layer = 0; layer < request.keys.size(); ++layer) {
      for (uint32_t h = 0; h < request.keys[layer].layout.heads; ++h) {
        RotateHead(request, layer, h, result);
      }
    }
    if (hooks_->fail_writes) return absl::InternalError("told to fail");
  }
  return absl::OkStatus();
}

absl::Status PlainBackend::CopyRows(std::span<const RowCopy> copies, RowCopyResult& result) {
  for (const RowCopy& copy : copies) {
    for (uint32_t h = 0; h < copy.from.layout.heads; ++h) {
      for (uint32_t j = 0; j < copy.count; ++j) {
        const auto from = copy.from_row.empty() ? j : static_cast<uint64_t>(copy.from_row[j]);
        const auto to = copy.to_row.empty() ? j : static_cast<uint64_t>(copy.to_row[j]);
        WriteRow(copy.to, copy.to_rows, h, to, ReadRow(copy.from, copy.from_rows, h, from));
        result.bytes_written += copy.from.layout.row_bytes();
      }
    }
    if (hooks_->fail_writes) return absl::InternalError("told to fail");
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
