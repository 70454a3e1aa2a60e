// The client's end of the fd socket against a peer that plays the service, well and badly.
#include "client/cpp/fd_socket_client.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "client/cpp/endpoint.h"
#include "client/cpp/ledger_mapping.h"
#include "client/cpp/local_error.h"
#include "client/cpp/server_life.h"
#include "gtest/gtest.h"
#include "proto/wire/fd_packet.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"

namespace kvtriage::client {
namespace {

const std::string kToken(wire::kTokenBytes, 't');

template <typename Packet>
Packet Make(wire::FdPacketType type) {
  Packet packet{};
  std::memcpy(packet.header.magic, wire::kFdMagic, 4);
  packet.header.version = wire::kFdVersion;
  packet.header.type = static_cast<uint16_t>(type);
  packet.header.length = sizeof(packet);
  return packet;
}

void SendPacket(int socket, const void* packet, size_t bytes, int fds) {
  iovec data{const_cast<void*>(packet), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  const OwnedFd fd(memfd_create("ledger", MFD_CLOEXEC));
  if (fds > 0) {
    const std::array<int, 8> same = {fd.get(), fd.get(), fd.get(), fd.get(),
                                     fd.get(), fd.get(), fd.get(), fd.get()};
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(static_cast<size_t>(fds) * sizeof(int));
    cmsghdr* const c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(static_cast<size_t>(fds) * sizeof(int));
    std::memcpy(CMSG_DATA(c), same.data(), static_cast<size_t>(fds) * sizeof(int));
  }
  sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Listens at a private path; `serve` gets each accepted socket and each packet's bytes.
class FakeService {
 public:
  using Serve = std::function<void(int socket, const std::string& packet)>;

  explicit FakeService(Serve serve, int type = SOCK_SEQPACKET)
      : listener_(::socket(AF_UNIX, type, 0)) {
    std::string directory = (std::filesystem::temp_directory_path() / "kvt-fd-XXXXXX").string();
    directory_ = mkdtemp(directory.data());
    path_ = directory_ + "/s.sock";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    thread_ = std::thread([this, serve = std::move(serve)] { Run(serve); });
  }
  ~FakeService() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    std::filesystem::remove_all(directory_);
  }
  const std::string& path() const { return path_; }
  const std::string& directory() const { return directory_; }

 private:
  void Run(const Serve& serve) {
    while (true) {
      const OwnedFd socket(accept(listener_.get(), nullptr, nullptr));
      if (!socket.valid()) return;
      char bytes[512];
      ssize_t got = 0;
      while ((got = recv(socket.get(), bytes, sizeof(bytes), 0)) > 0) {
        serve(socket.get(), std::string(bytes, static_cast<size_t>(got)));
      }
    }
  }

  OwnedFd listener_;
  std::string directory_, path_;
  std::thread thread_;
};

absl::StatusOr<BoundLedger> HelloTo(const FakeService& service, uint64_t timeout_ms = 2000) {
  auto client = FdSocketClient::Connect(service.path(), std::nullopt, timeout_ms);
  if (!client.ok()) return client.status();
  return client->Hello(kToken);
}

TEST(FdSocketClient, HelloGivesTheLedger) {
  const FakeService service([](int socket, const std::string& packet) {
    wire::FdHello hello;
    ASSERT_EQ(packet.size(), sizeof(hello));
    std::memcpy(&hello, packet.data(), sizeof(hello));
    EXPECT_EQ(std::string(reinterpret_cast<char*>(hello.token), sizeof(hello.token)), kToken);
    auto bound = Make<wire::FdBound>(wire::FdPacketType::kBound);
    bound.epoch = 5;
    bound.ledger_bytes = 4096;
    bound.ledger_slots = 4;
    SendPacket(socket, &bound, sizeof(bound), 1);
  });
  const auto ledger = HelloTo(service);
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  EXPECT_EQ(ledger->epoch, 5u);
  EXPECT_EQ(ledger->slots, 4u);
  EXPECT_TRUE(ledger->fd.valid());
}

TEST(FdSocketClient, ARefusalCarriesItsReason) {
  const FakeService service([](int socket, const std::string&) {
    auto refused = Make<wire::FdRefused>(wire::FdPacketType::kRefused);
    refused.reason = 70;  // SESSION_UNKNOWN
    SendPacket(socket, &refused, sizeof(refused), 0);
  });
  const absl::Status status = HelloTo(service).status();
  EXPECT_TRUE(HasReason(status, "session_unknown")) << status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
}

TEST(FdSocketClient, NineDescriptorsGoInTwoPackets) {
  std::vector<uint32_t> counts;
  uint64_t next = 100;
  std::vector<uint64_t> tickets;
  {
    const FakeService service([&](int socket, const std::string& packet) {
      wire::FdOffer offer;
      std::memcpy(&offer, packet.data(), sizeof(offer));
      counts.push_back(offer.count);
      auto answer = Make<wire::FdTickets>(wire::FdPacketType::kTickets);
      answer.tag = offer.tag;
      answer.count = offer.count;
      for (uint32_t i = 0; i < offer.count; ++i) answer.ticket[i] = next++;
      SendPacket(socket, &answer, sizeof(answer), 0);
    });
    auto client = FdSocketClient::Connect(service.path(), std::nullopt, 2000);
    ASSERT_TRUE(client.ok());
    const OwnedFd fd(memfd_create("lent", MFD_CLOEXEC));
    const std::vector<int> fds(9, fd.get());
    const auto offered = client->Offer(fds);
    ASSERT_TRUE(offered.ok()) << offered.status();
    tickets = *offered;
  }
  EXPECT_EQ(counts, (std::vector<uint32_t>{8, 1}));
  EXPECT_EQ(tickets.size(), 9u);
  EXPECT_EQ(tickets.back(), 108u);
}

TEST(FdSocketClient, MalformedAnswersAreErrorsAndLeakNothing) {
  struct Bad {
    const char* what;
    std::function<void(int)> send;
  };
  const Bad bad[] = {
      {"BOUND without a ledger",
       [](int s) {
         auto p = Make<wire::FdBound>(wire::FdPacketType::kBound);
         SendPacket(s, &p, sizeof(p), 0);
       }},
      {"BOUND with two",
       [](int s) {
         auto p = Make<wire::FdBound>(wire::FdPacketType::kBound);
         SendPacket(s, &p, sizeof(p), 2);
       }},
      {"wrong length",
       [](int s) {
         auto p = Make<wire::FdBound>(wire::FdPacketType::kBound);
         p.header.length = 31;
         SendPacket(s, &p, sizeof(p), 1);
       }},
      {"wrong magic",
       [](int s) {
         auto p = Make<wire::FdBound>(wire::FdPacketType::kBound);
         p.header.magic[0] = 'X';
         SendPacket(s, &p, sizeof(p), 1);
       }},
      {"unknown type",
       [](int s) {
         auto p = Make<wire::FdBound>(static_cast<wire::FdPacketType>(9));
         SendPacket(s, &p, sizeof(p), 1);
       }},
      {"three bytes", [](int s) { SendPacket(s, "KVF", 3, 0); }},
      {"nothing, closed", [](int s) { shutdown(s, SHUT_RDWR); }},
      {"nothing at all", [](int) {}},
  };
  const auto open_fds = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  for (const Bad& each : bad) {
    const auto before = open_fds();
    {
      const FakeService service([&](int socket, const std::string&) { each.send(socket); });
      EXPECT_FALSE(HelloTo(service, 200).ok()) << each.what;
    }
    EXPECT_EQ(open_fds(), before) << each.what;
  }
}

TEST(FdSocketClient, AMissingSocketSaysSo) {
  const auto missing = FdSocketClient::Connect("/nonexistent/kvt.sock", std::nullopt, 100);
  EXPECT_EQ(GetErrorDetails(missing.status())->reason, "fd_socket_missing");
  const auto too_long = FdSocketClient::Connect("/" + std::string(200, 'a'), std::nullopt, 100);
  EXPECT_EQ(too_long.status().code(), absl::StatusCode::kInvalidArgument);
}

// A process that listens at `path` as `uid` until it is killed.
class ListeningChild {
 public:
  ListeningChild(const std::string& path, uid_t uid) : pid_(fork()) {
    if (pid_ != 0) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (uid != geteuid() && setuid(uid) != 0) _exit(1);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    listen(listener, 8);
    pause();
    _exit(0);
  }
  ~ListeningChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

absl::StatusOr<FdSocketClient> ConnectWhenListening(const std::string& path,
                                                    std::optional<uid_t> trusted) {
  absl::StatusOr<FdSocketClient> client = absl::UnavailableError("");
  WaitUntil([&] {
    client = FdSocketClient::Connect(path, trusted, 100);
    return client.ok() || GetErrorDetails(client.status())->reason != "fd_socket_missing";
  });
  return client;
}

TEST(FdSocketClient, TrustsRootItselfAndTheConfiguredUidOnly) {
  if (geteuid() != 0) GTEST_SKIP() << "needs another uid to play the service";
  constexpr uid_t kStranger = 65534;
  const TempDir directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0777), 0);
  const ListeningChild stranger(directory.File("s.sock"), kStranger);
  const auto refused = ConnectWhenListening(directory.File("s.sock"), std::nullopt);
  EXPECT_EQ(GetErrorDetails(refused.status())->reason, "server_untrusted") << refused.status();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  const auto configured = ConnectWhenListening(directory.File("s.sock"), kStranger);
  EXPECT_TRUE(configured.ok()) << configured.status();
}

TEST(LedgerMapping, WantsASealedFileOfTheAnnouncedSize) {
  const OwnedFd fd(memfd_create("ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 4096), 0);
  EXPECT_FALSE(LedgerMapping::Map(fd.get(), 4096).ok());  // could shrink under a read
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_FALSE(LedgerMapping::Map(fd.get(), 8192).ok());
  EXPECT_FALSE(LedgerMapping::Map(fd.get(), 0).ok());
  const auto mapping = LedgerMapping::Map(fd.get(), 4096);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_EQ(mapping->memory().size(), 4096u);
}

TEST(ServerLife, SeesTheDeathOfAnotherProcess) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
  // A pair's peer is ourselves: alive.
  const ServerLife ours(sockets[0]);
  EXPECT_FALSE(ours.Gone());
  close(sockets[0]);
  close(sockets[1]);

  const TempDir directory;
  const ListeningChild child(directory.File("s.sock"), geteuid());
  const auto client = ConnectWhenListening(directory.File("s.sock"), std::nullopt);
  ASSERT_TRUE(client.ok()) << client.status();
  const ServerLife life(client->socket());
  EXPECT_FALSE(life.Gone());
  EXPECT_EQ(client->server().pid, child.pid());
  kill(child.pid(), SIGKILL);
  EXPECT_TRUE(life.WaitGone(5000));
}

TEST(Endpoint, TakesPathsAndUnixUris) {
  EXPECT_EQ(SocketPath("/a/b.sock"), "/a/b.sock");
  EXPECT_EQ(SocketPath("unix:/a/b.sock"), "/a/b.sock");
  EXPECT_EQ(SocketPath("unix:///a/b.sock"), "/a/b.sock");
  EXPECT_EQ(*SiblingPath("/a/b.sock", "c.sock"), "/a/c.sock");
  EXPECT_EQ(*SiblingPath("b.sock", "c.sock"), "c.sock");
  EXPECT_FALSE(SiblingPath("/a/b.sock", "../c.sock").ok());
  EXPECT_FALSE(SiblingPath("/a/b.sock", "").ok());
}

TEST(Endpoint, SaysWhyNobodyAnswers) {
  const FakeService service([](int, const std::string&) {}, SOCK_STREAM);
  EXPECT_TRUE(CheckListening(service.path()).ok());
  const absl::Status missing = CheckListening(service.directory() + "/none.sock");
  EXPECT_EQ(GetErrorDetails(missing)->reason, "socket_missing");
}

// https://github.com/godaddy/asherah/pull/145 https://github.com/istio/istio/issues/38428
// https://github.com/banksean/sand/issues/79: the error of a socket that is not ours to open says
// "permission denied" and the path.
TEST(Endpoint, ASocketOfOthersIsDeniedByName) {
  const FakeService service([](int, const std::string&) {}, SOCK_STREAM);
  ASSERT_EQ(chmod(service.directory().c_str(), 0755), 0);
  ASSERT_EQ(chmod(service.path().c_str(), 0660), 0);
  if (geteuid() != 0) {
    ASSERT_EQ(chmod(service.path().c_str(), 0), 0);
  }
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);
    const absl::Status status = CheckListening(service.path());
    const std::string text(status.message());
    const bool right = status.code() == absl::StatusCode::kPermissionDenied &&
                       GetErrorDetails(status)->reason == "socket_denied" &&
                       text.find("ermission denied") != std::string::npos &&
                       text.find(service.path()) != std::string::npos;
    _exit(right ? 0 : 1);
  }
  int state = 0;
  waitpid(child, &state, 0);
  EXPECT_EQ(WEXITSTATUS(state), 0);
}

}  // namespace
}  // namespace kvtriage::client
