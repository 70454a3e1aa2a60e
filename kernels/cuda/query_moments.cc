#include "kernels/cuda/query_moments.h"

#include <algorithm>

#include "kernels/core/checked_math.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/product_tile.h"

namespace kvtriage {

void DeviceMoments::AddHeads(const ScoreRequest& request) {
  const AttentionInput& input = request.input;
  const bool given = static_cast<bool>(input.query_mean);
  const TensorView& queries = given ? input.query_mean : input.q;
  QueryList list{.q = OnDevice(queries), .elems = queries.elems};
  if (given) {
    list.given = OnDevice(input.query_covariance);
  } else {
    list.first_row = request.sinks;
    list.rows = queries.rows - std::min(queries.rows, request.sinks);
  }
  for (list.head = 0; list.head < request.layer.q_heads; ++list.head) {
    list.first = rows_;
    list.first_piece = pieces_;
    list.mean = means_;
    list.covariance = covariances_;
    lists_.push_back(list);
    rows_ += list.rows;
    pieces_ += static_cast<uint32_t>(CeilDiv(list.rows, kPieceRows));
    means_ += list.elems;
    covariances_ += uint64_t{list.elems} * list.elems;
    given_ += given ? 1 : 0;
  }
  args_.pitch = std::max(args_.pitch, list.elems);
}

std::vector<CovarianceTile> DeviceMoments::Tiles() const {
  std::vector<CovarianceTile> tiles;
  for (uint32_t i = 0; i < lists_.size(); ++i) {
    if (lists_[i].rows == 0) continue;
    for (uint32_t row = 0; row < lists_[i].elems; row += kProductTile) {
      for (uint32_t column = 0; column < lists_[i].elems; column += kProductTile) {
        tiles.push_back({i, row, column});
      }
    }
  }
  return tiles;
}

absl::StatusOr<DeviceMoments> DeviceMoments::Make(ScoreRequests requests, Workspace& workspace) {
  DeviceMoments made;
  for (const ScoreRequest* request : requests) {
    made.first_list_.push_back(made.lists());
    if (request->sinks < request->layer.sequence.rows) made.AddHeads(*request);
  }
  std::vector<uint32_t> rows;
  for (const QueryList& list : made.lists_) rows.push_back(list.rows);
  const std::vector<CovarianceTile> tiles = made.Tiles();
  made.tiles_ = static_cast<uint32_t>(tiles.size());
  MomentArgs& args = made.args_;
  const std::span<const QueryList> lists(made.lists_);
  KVTRIAGE_ASSIGN_OR_RETURN(args.lists, workspace.Upload(lists));
  KVTRIAGE_ASSIGN_OR_RETURN(args.pieces, CutIntoPieces(rows, kPieceRows, workspace));
  KVTRIAGE_ASSIGN_OR_RETURN(args.tiles, workspace.Upload(std::span<const CovarianceTile>(tiles)));
  KVTRIAGE_ASSIGN_OR_RETURN(args.is_good, workspace.Take<uint8_t>(made.rows_));
  const uint64_t sums = uint64_t{made.pieces_} * args.pitch;
  KVTRIAGE_ASSIGN_OR_RETURN(args.sums, workspace.Take<float>(sums));
  KVTRIAGE_ASSIGN_OR_RETURN(args.good, workspace.Take<uint32_t>(made.pieces_));
  KVTRIAGE_ASSIGN_OR_RETURN(args.means, workspace.Take<double>(made.means_));
  KVTRIAGE_ASSIGN_OR_RETURN(args.counts, workspace.TakeZeroed<uint32_t>(made.lists_.size()));
  KVTRIAGE_ASSIGN_OR_RETURN(args.covariances, workspace.Take<float>(made.covariances_));
  return made;
}

absl::Status DeviceMoments::Run(Workspace& workspace) const {
  if (pieces_ > 0) {
    KVTRIAGE_RETURN_IF_CUDA_ERROR(
        LaunchQueryMoments(args_, lists(), pieces_, tiles_, workspace.stream()),
        "query_moments.launch");
  }
  if (given_ == 0) return absl::OkStatus();
  return CudaStatus(LaunchCopyMoments(args_, lists(), workspace.stream()), "query_moments.copy");
}

absl::Status DeviceMoments::Download(uint32_t list, Workspace& workspace,
                                     QueryMoments& moments) const {
  const QueryList& of = lists_[list];
  std::vector<float> sums(uint64_t{of.elems} * of.elems);
  uint32_t good = 0;
  moments.mean.resize(of.elems);
  KVTRIAGE_RETURN_IF_ERROR(workspace.Download<double>(args_.means + of.mean, moments.mean));
  KVTRIAGE_RETURN_IF_ERROR(workspace.Download<float>(covariance(list), sums));
  moments.covariance.assign(sums.begin(), sums.end());
  if (of.given.base != nullptr) {
    CountGivenMoments(moments);
    return absl::OkStatus();
  }
  KVTRIAGE_RETURN_IF_ERROR(workspace.Download<uint32_t>(args_.counts + list, {&good, 1}));
  moments.rows = good;
  moments.skipped = of.rows - good;
  for (double& x : moments.covariance) x /= good;
  return absl::OkStatus();
}

}  // namespace kvtriage
