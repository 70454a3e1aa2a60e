#include "service/memory/cache_placement.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/core/checked_math.h"
#include "kernels/core/error.h"
#include "kernels/core/status_macros.h"
#include "service/memory/memory_unknown.h"
#include "service/policy/view_geometry.h"

namespace kvtriage {
namespace {

struct PlacedView {
  RegionPlace start;  // of the view's first byte
  uint64_t end = 0;   // in the file or allocation, one past the last byte
  const ViewLayout* layout = nullptr;
  size_t layer = 0;
  std::string name;  // "k", "v", "k.scale.per_row", "companions[0]"

  std::string Field() const { return absl::StrCat("spec.layers[", layer, "].", name); }
};

absl::StatusOr<PlacedView> Place(const ViewSpec& view, size_t layer, std::string name,
                                 const FindRange& find) {
  PlacedView placed;
  placed.layout = &view.layout;
  placed.layer = layer;
  placed.name = std::move(name);
  const LentRange* range = find(view.region_id);
  if (range == nullptr) return MemoryUnknown(absl::StrCat(placed.Field(), ".region_id"));
  const absl::StatusOr<uint64_t> span = ViewSpan(view.layout);
  if (!span.ok()) return WithFieldPrefix(span.status(), placed.Field());
  if (!RangeFits(view.offset, *span, range->bytes)) {
    return Error(ErrorReason::kRangeOutOfRegion, placed.Field(), "view ends outside its region")
        .Got(*span)
        .Limit(view.offset <= range->bytes ? range->bytes - view.offset : 0);
  }
  // A mapped range ends inside a file or allocation, so these sums stay below 2^63.
  placed.start = range->place;
  placed.start.offset += view.offset;
  placed.end = placed.start.offset + *span;
  return placed;
}

absl::StatusOr<std::vector<PlacedView>> PlaceAll(const CacheSpec& cache, const FindRange& find) {
  std::vector<PlacedView> views;
  for (size_t layer = 0; layer < cache.layers.size(); ++layer) {
    const auto place = [&](const ViewSpec& view, std::string name) -> absl::Status {
      KVTRIAGE_ASSIGN_OR_RETURN(views.emplace_back(), Place(view, layer, std::move(name), find));
      return absl::OkStatus();
    };
    KVTRIAGE_RETURN_IF_ERROR(cache.layers[layer].ForEachView(place));
  }
  return views;
}

absl::Status CheckOneDevice(const std::vector<PlacedView>& views) {
  for (const PlacedView& view : views) {
    if (view.start.memory == views.front().start.memory) continue;
    return Error(ErrorReason::kMixedMemory, view.Field(),
                 "views of one cache lie on different devices");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCachePlacement(const CacheSpec& cache, const FindRange& find) {
  KVTRIAGE_ASSIGN_OR_RETURN(std::vector<PlacedView> views, PlaceAll(cache, find));
  KVTRIAGE_RETURN_IF_ERROR(CheckOneDevice(views));
  // In order of their first bytes, a view can meet only those that start before it ends.
  std::stable_sort(views.begin(), views.end(), [](const PlacedView& a, const PlacedView& b) {
    return std::tie(a.start.device, a.start.object, a.start.offset) <
           std::tie(b.start.device, b.start.object, b.start.offset);
  });
  for (size_t i = 0; i < views.size(); ++i) {
    const PlacedView& a = views[i];
    for (size_t j = i + 1; j < views.size(); ++j) {
      const PlacedView& b = views[j];
      if (!a.start.SameObject(b.start) || b.start.offset >= a.end) break;
      if (!ViewsAlias(a.start.offset, *a.layout, b.start.offset, *b.layout)) continue;
      const bool a_is_later = a.layer > b.layer;
      return Error(ErrorReason::kViewOverlap, a_is_later ? a.Field() : b.Field(),
                   "view shares bytes with another view; index = layer of the other")
          .Index(a_is_later ? b.layer : a.layer);
    }
  }
  return absl::OkStatus();
}

}  // namespace kvtriage
