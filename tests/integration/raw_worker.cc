#include "tests/integration/raw_worker.h"

#include <grpcpp/generic/generic_stub.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cctype>
#include <cstring>
#include <future>
#include <random>

#include "gtest/gtest.h"
#include "kernels/core/error.h"
#include "proto/wire/fd_packet.h"
#include "tests/support/lent_memfd.h"

namespace kvtriage {
namespace {

template <typename Packet>
Packet NewPacket(wire::FdPacketType type) {
  Packet packet{};
  std::memcpy(packet.header.magic, wire::kFdMagic, sizeof(wire::kFdMagic));
  packet.header.version = wire::kFdVersion;
  packet.header.type = static_cast<uint16_t>(type);
  packet.header.length = sizeof(packet);
  return packet;
}

// Sends one packet, with `fd` if it is one.
bool SendPacket(int socket, const void* packet, size_t bytes, int fd) {
  iovec part{const_cast<void*>(packet), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &fd, sizeof(int));
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

struct Received {
  std::string bytes;
  UniqueFd fd;

  template <typename Packet>
  const Packet* As(wire::FdPacketType type) const {
    const auto* packet = reinterpret_cast<const Packet*>(bytes.data());
    return bytes.size() == sizeof(Packet) && packet->header.type == static_cast<uint16_t>(type)
               ? packet
               : nullptr;
  }
};

Received ReceivePacket(int socket) {
  Received received;
  received.bytes.resize(wire::kFdMaxPacket);
  iovec part{received.bytes.data(), received.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  received.bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    received.fd.reset(fd);
  }
  return received;
}

UniqueFd ConnectFdSocket(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const timeval limit{10, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    socket.reset();
  }
  return socket;
}

std::string Le(const std::vector<int32_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t)};
}

void FillView(uint64_t region_id, uint32_t plane, v1::View& view) {
  constexpr uint64_t kRow = RawWorker::kElems * 4, kHead = RawWorker::kCapacity * kRow;
  view.set_region_id(region_id);
  view.set_offset(plane * RawWorker::kPlaneBytes);
  view.set_block_stride(RawWorker::kPlaneBytes);
  view.set_head_stride(kHead);
  view.set_slot_stride(kRow);
  view.set_elem_stride(4);
  view.set_num_blocks(1);
  view.set_block_slots(RawWorker::kCapacity);
  view.set_heads(RawWorker::kHeads);
  view.set_row_elems(RawWorker::kElems);
  view.set_dtype(v1::DTYPE_F32);
}

}  // namespace

v1::ErrorDetail DetailOf(const grpc::Status& status) {
  v1::RpcStatus details;
  v1::ErrorDetail detail;
  if (details.ParseFromString(status.error_details()) && details.details_size() == 1) {
    details.details(0).UnpackTo(&detail);
  }
  return detail;
}

std::string ReasonOf(const grpc::Status& status) {
  if (status.ok()) return "ok";
  const v1::ErrorDetail detail = DetailOf(status);
  if (detail.reason() == v1::ERROR_REASON_UNSPECIFIED) {
    return "code " + std::to_string(status.error_code()) + ": " + status.error_message();
  }
  return std::string(ReasonName(static_cast<ErrorReason>(detail.reason())));
}

std::shared_ptr<grpc::Channel> Connect(const std::string& socket_path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection per channel
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  return grpc::CreateCustomChannel("unix:" + socket_path, grpc::InsecureChannelCredentials(),
                                   arguments);
}

std::string RandomKey() {
  static std::random_device random;
  std::string key(16, '\0');
  for (char& byte : key) byte = static_cast<char>(random());
  return key;
}

grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const grpc::ByteBuffer sent(&slice, 1);
  const auto call = stub.PrepareUnaryCall(&context, method, sent, &queue);
  call->StartCall();
  grpc::ByteBuffer got;
  grpc::Status status;
  call->Finish(&got, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (status.ok() && got.Dump(&slices).ok()) {
    response->clear();
    for (const grpc::Slice& part : slices) {
      response->append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  return status;
}

std::string HealthOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  // HealthCheckRequest{service = 1}, HealthCheckResponse{status = 1}
  std::string request, response;
  if (!service.empty()) request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const grpc::Status status = CallRaw(channel, "/grpc.health.v1.Health/Check", request, &response);
  if (!status.ok()) return std::to_string(status.error_code());
  if (response == std::string("\x08\x01", 2)) return "SERVING";
  if (response == std::string("\x08\x02", 2)) return "NOT_SERVING";
  return "something else";
}

RawWorker::RawWorker(const std::string& socket_path)
    : socket_path_(socket_path),
      channel_(Connect(socket_path)),
      sessions_(v1::SessionService::NewStub(channel_)) {}

RawWorker::~RawWorker() {
  stream_context_.TryCancel();
  if (stream_ != nullptr) FinishStream();
  if (memory_ != nullptr) munmap(memory_, kRegionBytes);
}

bool RawWorker::Attach() {
  stream_ = sessions_->Attach(&stream_context_);
  v1::AttachRequest request;
  request.mutable_hello()->set_min_api_revision(1);
  request.mutable_hello()->set_max_api_revision(1);
  request.mutable_hello()->set_client("raw-worker/1");
  if (!stream_->Write(request)) return false;
  const std::optional<v1::AttachResponse> response = Read();
  if (!response.has_value() || !response->has_welcome()) return false;
  welcome_ = response->welcome();
  return true;
}

std::optional<v1::AttachResponse> RawWorker::Read() {
  v1::AttachResponse response;
  return stream_->Read(&response) ? std::optional(response) : std::nullopt;
}

grpc::Status RawWorker::FinishStream() {
  v1::AttachResponse ignored;
  while (stream_->Read(&ignored)) {
  }
  const grpc::Status status = stream_->Finish();
  stream_.reset();
  return status;
}

grpc::Status RawWorker::Goodbye() {
  v1::AttachRequest request;
  request.mutable_goodbye();
  stream_->Write(request);
  return FinishStream();
}

std::string RawWorker::BindWith(const std::string& token) {
  const std::string directory = socket_path_.substr(0, socket_path_.rfind('/') + 1);
  const std::string name =
      welcome_.fd_socket_name().empty() ? "kvtriage-fd.sock" : welcome_.fd_socket_name();
  fd_socket_ = ConnectFdSocket(directory + name);
  if (!fd_socket_.valid()) return "closed";
  auto hello = NewPacket<wire::FdHello>(wire::FdPacketType::kHello);
  std::memcpy(hello.token, token.data(), std::min(token.size(), sizeof(hello.token)));
  SendPacket(fd_socket_.get(), &hello, sizeof(hello), -1);
  Received received = ReceivePacket(fd_socket_.get());
  if (received.As<wire::FdBound>(wire::FdPacketType::kBound) != nullptr) {
    ledger_ = std::move(received.fd);
    return "ok";
  }
  const auto* refused = received.As<wire::FdRefused>(wire::FdPacketType::kRefused);
  return refused != nullptr ? std::string(ReasonName(static_cast<ErrorReason>(refused->reason)))
                            : "closed";
}

uint64_t RawWorker::Offer(const UniqueFd& fd) {
  auto offer = NewPacket<wire::FdOffer>(wire::FdPacketType::kOffer);
  offer.tag = 1;
  offer.count = 1;
  offer.kind[0] = static_cast<uint32_t>(wire::FdKind::kMemfd);
  SendPacket(fd_socket_.get(), &offer, sizeof(offer), fd.get());
  const Received received = ReceivePacket(fd_socket_.get());
  const auto* tickets = received.As<wire::FdTickets>(wire::FdPacketType::kTickets);
  return tickets != nullptr ? tickets->ticket[0] : 0;
}

v1::RegisterRegionsRequest RawWorker::RegisterRequest(const v1::RegionSpec& region) const {
  v1::RegisterRegionsRequest request;
  request.mutable_header()->set_idempotency_key(RandomKey());
  *request.add_regions() = region;
  request.mutable_regions(0)->set_size(kRegionBytes);
  request.mutable_regions(0)->set_access(v1::ACCESS_READ_WRITE);
  v1::CacheSpec& cache = *request.add_caches()->mutable_spec();
  cache.set_num_layers(kLayers);
  for (uint32_t i = 0; i < kLayers; ++i) {
    v1::LayerSpec& layer = *cache.add_layers();
    layer.set_layer_index(i);
    layer.set_kind(v1::LAYER_KIND_FULL);
    layer.set_q_heads(kQueryHeads);
    layer.set_kv_heads(kHeads);
    FillView(1, 2 * i, *layer.mutable_k());
    FillView(1, 2 * i + 1, *layer.mutable_v());
    layer.set_v_elems(kElems);
  }
  return request;
}

grpc::Status RawWorker::Lend() {
  memfd_ = MakeLentMemfd(kRegionBytes);
  memory_ = static_cast<char*>(
      mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_.get(), 0));
  std::memcpy(memory_, Content().data(), kRegionBytes);
  v1::RegionSpec region;
  region.mutable_host()->set_ticket(Offer(memfd_));
  return LendIn(region);
}

std::vector<float> RawWorker::Content() {
  std::vector<float> values(kRegionBytes / sizeof(float));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  return values;
}

grpc::Status RawWorker::LendIn(const v1::RegionSpec& region) {
  v1::RegisterRegionsResponse response;
  const grpc::Status status = v1::MemoryService::NewStub(channel_)->RegisterRegions(
      Context().get(), RegisterRequest(region), &response);
  if (status.ok()) {
    region_id_ = response.region_ids(0);
    cache_id_ = response.cache_ids(0);
  }
  return status;
}

bool RawWorker::RegionIsPinned() const {
  v1::ListRegionsResponse listing;
  v1::MemoryService::NewStub(channel_)->ListRegions(Context().get(), {}, &listing);
  return listing.regions_size() == 1 && listing.regions(0).pins() > 0;
}

std::unique_ptr<grpc::ClientContext> RawWorker::Context(int64_t deadline_ms) const {
  auto context = std::make_unique<grpc::ClientContext>();
  if (deadline_ms > 0) {
    context->set_deadline(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(deadline_ms));
  }
  if (!welcome_.session_token().empty()) {
    context->AddMetadata("kvtriage-session-bin", welcome_.session_token());
  }
  return context;
}

v1::CompressRequest RawWorker::RecencyRequest(uint64_t id, uint32_t rows, uint32_t kept) const {
  v1::CompressRequest request;
  request.mutable_header()->set_idempotency_key(RandomKey());
  request.set_cache_id(cache_id_);
  v1::SequenceSpec& sequence = *request.add_sequences();
  sequence.set_sequence_id(id);
  sequence.set_logical_len(rows);
  sequence.set_physical_len(rows);
  sequence.mutable_table()->set_inline_le(Le({0}));
  sequence.set_sharing(v1::SHARING_ALL_PRIVATE);
  request.mutable_policy()->set_name("streaming");
  request.mutable_policy()->mutable_parts()->mutable_budget()->set_kept_tokens(kept);
  request.mutable_inputs()->mutable_keys_only();
  request.mutable_act()->mutable_select_only();
  request.mutable_output()->set_format(v1::KEPT_FORMAT_INDICES);
  request.mutable_output()->set_lengths(v1::LENGTH_RULE_ANY);
  return request;
}

v1::CompressRequest RawWorker::AttentionRequest(uint64_t id, uint32_t rows, uint32_t kept) const {
  v1::CompressRequest request = RecencyRequest(id, rows, kept);
  request.mutable_policy()->set_name("snapkv");
  v1::PolicyParts& parts = *request.mutable_policy()->mutable_parts();
  parts.mutable_window()->set_last(kWindow);
  parts.mutable_protect()->set_recent(kWindow);
  request.mutable_sequences(0)->set_rows_count(kWindow);
  v1::ScoreInputs::QueryWindow& query = *request.mutable_inputs()->mutable_query();
  query.set_stage(v1::QUERY_STAGE_AFTER_ROPE);
  request.mutable_inputs()->set_softmax_scale(0.25);
  v1::Tensor& q = *query.mutable_q();
  q.set_region_id(region_id_);
  q.set_offset(kCacheBytes);
  q.set_dtype(v1::DTYPE_F32);
  q.set_layers(kLayers);
  q.set_rows(kWindow);
  q.set_heads(kQueryHeads);
  q.set_elems(kElems);
  q.set_elem_stride(4);
  q.set_head_stride(kElems * 4);
  q.set_row_stride(kQueryHeads * kElems * 4);
  q.set_layer_stride(kWindow * kQueryHeads * kElems * 4);
  request.mutable_measure()->set_retained_mass(true);
  request.mutable_measure()->set_output_error(true);
  request.mutable_measure()->set_oracle_recall(true);
  return request;
}

v1::SelectRecomputeRequest RawWorker::RecomputeRequest(uint32_t rows) const {
  v1::SelectRecomputeRequest request;
  request.mutable_header()->set_idempotency_key(RandomKey());
  uint32_t layer = 0;
  for (v1::RowSource* source : {request.mutable_fresh(), request.mutable_cached()}) {
    v1::RowSource::PagedRows& paged = *source->mutable_paged();
    paged.set_cache_id(cache_id_);
    paged.set_layer(layer++);
    paged.set_values(true);
    paged.mutable_table()->set_inline_le(Le({0}));
  }
  request.set_rows(rows);
  request.set_metric(v1::DIVERGENCE_METRIC_V_RELATIVE);
  request.set_ratio(0.25);
  request.mutable_positions()->set_first_position(0);
  return request;
}

grpc::Status RawWorker::Compress(const v1::CompressRequest& request,
                                 v1::CompressResponse* response) {
  return v1::TriageService::NewStub(channel_)->Compress(Context().get(), request, response);
}

}  // namespace kvtriage
