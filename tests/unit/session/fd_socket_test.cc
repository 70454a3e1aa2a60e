#include "service/session/fd_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <set>

#include "kernels/core/error.h"
#include "proto/wire/ledger_format.h"
#include "service/observe/fault_point.h"
#include "tests/support/lent_memfd.h"
#include "tests/support/process_tables.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"
#include "tests/unit/session/fd_client.h"
#include "tests/unit/session/session_house.h"

namespace kvtriage {
namespace {

using std::chrono::steady_clock;

class OnFdSocket : public testing::Test {
 protected:
  explicit OnFdSocket(FdSocketLimits limits = Quick(), PeerRule rule = PeerRule::OwnProcess()) {
    SessionLimits sessions;
    sessions.attach_per_second = 10'000;
    house_.emplace(sessions);
    UnixListenerOptions options;
    options.path = dir_.File("fd.sock");
    options.type = SOCK_SEQPACKET;
    socket_.emplace(UnixListener::Bind(options).value(), SessionHouse::kEpoch, std::move(rule),
                    limits, house_->doorkeeper, *house_->table, house_->mapper,
                    [this](FdSocketEvent event, const PeerProcess&) {
                      events_.Add(std::string(FdSocketEventName(event)));
                    });
    descriptors_ = CountDescriptors();
  }
  ~OnFdSocket() override {
    socket_.reset();
    house_.reset();
  }
  static FdSocketLimits Quick() {
    FdSocketLimits limits;
    limits.sweep_ms = 5;
    return limits;
  }

  FdClient Connect() { return FdClient(dir_.File("fd.sock")); }
  std::shared_ptr<Session> Attach() { return house_->Attach().value(); }
  bool Told(const char* event, size_t times = 1) {
    return WaitUntil([&] { return events_.Count(event) >= times; });
  }
  // No connection, no descriptor that was not there before.
  void ExpectNothingLeft(size_t kept = 0) {
    EXPECT_TRUE(WaitUntil([&] { return CountDescriptors() == descriptors_ + kept; }))
        << CountDescriptors() << " descriptors, " << descriptors_ + kept << " expected";
  }
  ErrorReason Refusal(FdClient& client, uint64_t tag, uint32_t index) {
    const auto refused = client.ReceiveAs<wire::FdRefused>(wire::FdPacketType::kRefused);
    if (!refused) return ErrorReason::kUnspecified;
    EXPECT_EQ(refused->tag, tag);
    EXPECT_EQ(refused->index, index);
    return static_cast<ErrorReason>(refused->reason);
  }

  const TempDir dir_;
  Events events_;
  std::optional<SessionHouse> house_;
  std::optional<FdSocket> socket_;
  size_t descriptors_ = 0;
};

TEST_F(OnFdSocket, HelloBindsAndHandsOverTheLedger) {
  const auto session = Attach();
  FdClient client = Connect();
  ASSERT_TRUE(client.Send(MakeHello(session->token())));
  FdMessage message = client.Receive();
  ASSERT_EQ(message.bytes.size(), sizeof(wire::FdBound));
  ASSERT_EQ(message.fds.size(), 1u);
  wire::FdBound bound;
  std::memcpy(&bound, message.bytes.data(), sizeof(bound));
  EXPECT_EQ(bound.header.type, 2);
  EXPECT_EQ(bound.epoch, SessionHouse::kEpoch);
  EXPECT_EQ(bound.ledger_bytes, 1u << 20);
  EXPECT_EQ(bound.ledger_slots, 4u);
  EXPECT_TRUE(session->bound());

  const int ledger = message.fds[0].get();
  EXPECT_EQ(::mmap(nullptr, bound.ledger_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ledger, 0),
            MAP_FAILED);
  void* view = ::mmap(nullptr, bound.ledger_bytes, PROT_READ, MAP_SHARED, ledger, 0);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_EQ(static_cast<wire::LedgerHeader*>(view)->session_id, session->id());
  EXPECT_EQ(static_cast<wire::LedgerHeader*>(view)->epoch, SessionHouse::kEpoch);
  ::munmap(view, bound.ledger_bytes);
}

TEST_F(OnFdSocket, OfferedMemoryCanBeRegisteredByItsTickets) {
  const auto session = Attach();
  FdClient client = Connect();
  ASSERT_TRUE(client.SayHello(session->token()).valid());
  const UniqueFd a = MakeLentMemfd(8192, 1), b = MakeLentMemfd(4096, 2);
  const std::vector<uint64_t> tickets = client.Offer({a.get(), b.get()});
  ASSERT_EQ(tickets.size(), 2u);
  RegisterSpec spec;
  spec.regions.push_back({tickets[1], 0, 4096, true, 0, 0, ""});
  spec.regions.push_back({tickets[0], 4096, 4096, true, 0, 0, ""});
  const auto ids = house_->Register(*session, spec);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(session->memory().Pin(ids->region_ids[0])->data()[0], std::byte{2});
  EXPECT_EQ(session->memory().Pin(ids->region_ids[1])->data()[0], std::byte{1});
  // Another session cannot use them, and nobody twice.
  const std::vector<uint64_t> more = client.Offer({a.get()});
  ASSERT_EQ(more.size(), 1u);
  const auto thief = Attach();
  spec.regions.resize(1);
  spec.regions[0].ticket = more[0];
  EXPECT_FALSE(house_->Register(*thief, spec).ok());
  EXPECT_TRUE(house_->Register(*session, spec).ok());
  EXPECT_FALSE(house_->Register(*session, spec).ok());
}

TEST_F(OnFdSocket, ClosingTheConnectionLaterMeansNothing) {
  const auto session = Attach();
  const UniqueFd fd = MakeLentMemfd(4096);
  uint64_t ticket = 0;
  {
    FdClient client = Connect();
    ASSERT_TRUE(client.SayHello(session->token()).valid());
    ticket = client.Offer({fd.get()}).at(0);
  }
  EXPECT_TRUE(WaitUntil([&] { return socket_->connections() == 0; }));
  EXPECT_FALSE(session->ended());
  RegisterSpec spec;
  spec.regions.push_back({ticket, 0, 4096, true, 0, 0, ""});
  EXPECT_TRUE(house_->Register(*session, spec).ok());
  FdClient again = Connect();
  EXPECT_TRUE(again.SayHello(session->token()).valid()) << "the same process gets its ledger again";
}

TEST_F(OnFdSocket, WrongDescriptorsAreNamedAndNoneIsKept) {
  const auto session = Attach();
  FdClient client = Connect();
  const UniqueFd ledger = client.SayHello(session->token());
  const UniqueFd good = MakeLentMemfd(4096), unsealed = MakeLentMemfd(4096, 0, 0);
  const UniqueFd half = MakeLentMemfd(4096, 0, F_SEAL_SHRINK | F_SEAL_GROW),
                 empty = MakeLentMemfd(0);
  const UniqueFd zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd directory(::open("/", O_RDONLY | O_CLOEXEC));
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd pipe_read(ends[0]), pipe_write(ends[1]);
  descriptors_ = CountDescriptors();

  const auto offer = [&](std::vector<int> fds) {
    EXPECT_TRUE(client.Send(MakeOffer(static_cast<uint32_t>(fds.size()), 5), fds));
  };
  offer({good.get(), unsealed.get()});
  EXPECT_EQ(Refusal(client, 5, 1), ErrorReason::kRegionNotSealed);
  offer({half.get(), good.get()});
  EXPECT_EQ(Refusal(client, 5, 0), ErrorReason::kRegionNotSealed);
  for (const int wrong :
       {empty.get(), zero.get(), directory.get(), pipe_read.get(), pipe_write.get(), client.fd()}) {
    offer({good.get(), good.get(), wrong});
    EXPECT_EQ(Refusal(client, 5, 2), ErrorReason::kFdWrongType);
  }
  ExpectNothingLeft();
  for (int i = 0; i < 32; ++i)
    ASSERT_EQ(client.Offer({good.get()}).size(), 1u) << "nothing waits yet";
  offer({good.get()});
  EXPECT_EQ(Refusal(client, 5, 0), ErrorReason::kQuotaBytes);
  ExpectNothingLeft(32);
}

TEST_F(OnFdSocket, KindsThatAreNotServed) {
  const auto session = Attach();
  FdClient client = Connect();
  ASSERT_TRUE(client.SayHello(session->token()).valid());
  const UniqueFd good = MakeLentMemfd(4096);
  for (const auto& [kind, reason] :
       {std::pair{2u, ErrorReason::kUnsupported}, std::pair{0u, ErrorReason::kEnumUnspecified},
        std::pair{3u, ErrorReason::kEnumUnspecified},
        std::pair{~0u, ErrorReason::kEnumUnspecified}}) {
    auto offer = MakeOffer(2, 9);
    offer.kind[1] = kind;
    ASSERT_TRUE(client.Send(offer, {good.get(), good.get()}));
    EXPECT_EQ(Refusal(client, 9, 1), reason);
  }
  EXPECT_EQ(client.Offer({good.get()}).size(), 1u);
}

// Whatever is malformed costs the connection, and every descriptor that came is closed.
TEST_F(OnFdSocket, MalformedPacketsCloseEverything) {
  const auto session = Attach();
  const UniqueFd good = MakeLentMemfd(4096);
  descriptors_ = CountDescriptors();
  const std::vector<int> eight(8, good.get()), nine(9, good.get()), hundred(100, good.get());
  const std::vector<std::byte> oversized(wire::kFdMaxPacket + 1), noise(40, std::byte{0x5A}),
      one(1);
  struct Case {
    const char* what;
    bool after_hello;
    std::function<bool(FdClient&)> send;
  };
  auto short_offer = MakeOffer(1);
  short_offer.header.length = 60;
  auto reserved = MakeOffer(1);
  reserved.zero = 1;
  wire::FdTickets tickets{MakeFdHeader<wire::FdTickets>(wire::FdPacketType::kTickets), 0, 1, 0, {}};
  const std::vector<Case> cases = {
      {"noise", false, [&](FdClient& c) { return c.SendRaw(noise); }},
      {"noise with descriptors", false, [&](FdClient& c) { return c.SendRaw(noise, eight); }},
      {"one byte", false, [&](FdClient& c) { return c.SendRaw(one, eight); }},
      {"oversized", false, [&](FdClient& c) { return c.SendRaw(oversized, eight); }},
      {"hello with a descriptor", false,
       [&](FdClient& c) { return c.Send(MakeHello(session->token()), {good.get()}); }},
      {"offer before hello", false,
       [&](FdClient& c) { return c.Send(MakeOffer(1), {good.get()}); }},
      {"nine descriptors", true, [&](FdClient& c) { return c.Send(MakeOffer(8), nine); }},
      {"a hundred descriptors", true, [&](FdClient& c) { return c.Send(MakeOffer(8), hundred); }},
      {"fewer than said", true, [&](FdClient& c) { return c.Send(MakeOffer(2), {good.get()}); }},
      {"more than said", true, [&](FdClient& c) { return c.Send(MakeOffer(2), eight); }},
      {"none", true, [&](FdClient& c) { return c.Send(MakeOffer(1)); }},
      {"count 0", true, [&](FdClient& c) { return c.Send(MakeOffer(0)); }},
      {"wrong length", true, [&](FdClient& c) { return c.Send(short_offer, {good.get()}); }},
      {"reserved field", true, [&](FdClient& c) { return c.Send(reserved, {good.get()}); }},
      {"a server's packet", true, [&](FdClient& c) { return c.Send(tickets); }},
      {"oversized later", true, [&](FdClient& c) { return c.SendRaw(oversized, eight); }},
  };
  size_t told = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    {
      FdClient client = Connect();
      ASSERT_TRUE(!c.after_hello || client.SayHello(session->token()).valid());
      ASSERT_TRUE(c.send(client));
      EXPECT_TRUE(client.ServerClosed());
      EXPECT_TRUE(Told("malformed", ++told)) << "one line each";
    }
    ExpectNothingLeft(session->bound() ? 2 : 0);  // its ledger and its pidfd
    EXPECT_FALSE(session->ended());
  }
  EXPECT_EQ(events_.Count("malformed"), cases.size());
}

TEST_F(OnFdSocket, AnEmptyPacketIsAGoodbye) {
  const auto session = Attach();
  FdClient client = Connect();
  const UniqueFd good = MakeLentMemfd(4096);
  ASSERT_TRUE(client.SayHello(session->token()).valid());
  ASSERT_TRUE(client.SendRaw({}, {good.get()}));
  EXPECT_TRUE(client.ServerClosed());
  EXPECT_TRUE(WaitUntil([&] { return socket_->connections() == 0; }));
}

TEST_F(OnFdSocket, ABadTokenIsRefusedAndClosed) {
  const auto session = Attach();
  SessionToken bad = session->token();
  bad[20] ^= 1;
  FdClient client = Connect();
  ASSERT_TRUE(client.Send(MakeHello(bad)));
  EXPECT_EQ(Refusal(client, 0, 0), ErrorReason::kSessionUnknown);
  EXPECT_TRUE(client.ServerClosed());
  EXPECT_TRUE(Told("bad_token"));
  EXPECT_FALSE(session->bound());
}

TEST_F(OnFdSocket, AnEndedSessionTakesNothingAndItsConnectionGoes) {
  const auto session = Attach();
  FdClient client = Connect();
  const UniqueFd ledger = client.SayHello(session->token());
  ASSERT_TRUE(ledger.valid());
  house_->table->End(session, EndCause::kLease);
  const UniqueFd good = MakeLentMemfd(4096);
  if (client.Send(MakeOffer(1, 3), {good.get()})) {  // else the connection has gone already
    const FdMessage answer = client.Receive();
    if (answer.result == Received::kPacket) {
      wire::FdRefused refused;
      ASSERT_EQ(answer.bytes.size(), sizeof(refused));
      std::memcpy(&refused, answer.bytes.data(), sizeof(refused));
      EXPECT_EQ(refused.reason, static_cast<uint32_t>(ErrorReason::kSessionUnknown));
      EXPECT_TRUE(client.ServerClosed());
    }
  }
  EXPECT_TRUE(WaitUntil([&] { return socket_->connections() == 0; }));
}

TEST_F(OnFdSocket, AClientThatNeverReadsLosesItsConnection) {
  const auto session = Attach();
  FdClient client = Connect();
  ASSERT_TRUE(client.SayHello(session->token()).valid());
  int sent = 0;
  EXPECT_TRUE(WaitUntil([&] {
    sent += client.Send(MakeHello(session->token()));
    return socket_->connections() == 0;
  }));
  EXPECT_GT(sent, 1);
  EXPECT_FALSE(session->ended());
}

TEST_F(OnFdSocket, DestructionClosesAllConnections) {
  FdClient client = Connect();
  ASSERT_TRUE(client.connected());
  EXPECT_TRUE(WaitUntil([&] { return socket_->connections() == 1; }));
  socket_.reset();
  EXPECT_TRUE(client.ServerClosed());
  EXPECT_FALSE(Connect().connected());
}

class Refusing : public OnFdSocket {
 protected:
  Refusing() : OnFdSocket(Quick(), PeerRule{{54321}, {54321}}) {}
};
TEST_F(Refusing, PeersThatAreNotListedGetNoByte) {
  FdClient client = Connect();
  EXPECT_TRUE(client.ServerClosed());
  EXPECT_TRUE(Told("peer_refused"));
  EXPECT_EQ(socket_->connections(), 0u);
}

class Impatient : public OnFdSocket {
 protected:
  static FdSocketLimits Limits() {
    FdSocketLimits limits = Quick();
    limits.hello_ms = 30;
    limits.bad_tokens = 20;
    limits.bad_token_window_ms = 300;
    return limits;
  }
  Impatient() : OnFdSocket(Limits()) {}
};

TEST_F(Impatient, HelloMustComeInTime) {
  const auto start = steady_clock::now();
  FdClient silent = Connect();
  EXPECT_TRUE(silent.ServerClosed());
  EXPECT_GE(steady_clock::now() - start, std::chrono::milliseconds(30));
  EXPECT_TRUE(Told("hello_late"));
  const auto session = Attach();
  FdClient client = Connect();
  ASSERT_TRUE(client.SayHello(session->token()).valid());
  EXPECT_EQ(client.Receive(100).result, Received::kNothing) << "whoever said it may be silent";
}

TEST_F(Impatient, WhoGuessesTokensIsNotHeardForAWhile) {
  const auto session = Attach();
  FdClient bound = Connect();
  ASSERT_TRUE(bound.SayHello(session->token()).valid());
  for (int i = 0; i < 20; ++i) {
    FdClient client = Connect();
    ASSERT_TRUE(client.Send(MakeHello({})));
    ASSERT_EQ(Refusal(client, 0, 0), ErrorReason::kSessionUnknown) << i;
  }
  FdClient blocked = Connect();
  EXPECT_TRUE(blocked.ServerClosed()) << "closed unread";
  EXPECT_TRUE(Told("uid_blocked"));
  const UniqueFd good = MakeLentMemfd(4096);
  EXPECT_EQ(bound.Offer({good.get()}).size(), 1u) << "whoever is bound is heard";
  const auto other = Attach();
  EXPECT_TRUE(WaitUntil([&] { return Connect().SayHello(other->token()).valid(); }));
  EXPECT_EQ(events_.Count("bad_token"), 20u);
}

class Flooded : public OnFdSocket {
 protected:
  static FdSocketLimits Limits() {
    FdSocketLimits limits = Quick();
    limits.max_connections = 8;
    return limits;
  }
  Flooded() : OnFdSocket(Limits()) {}
};

TEST_F(Flooded, SilentConnectionsMakeRoomForAWorker) {
  std::vector<FdClient> silent;
  for (int i = 0; i < 500; ++i) {
    silent.push_back(Connect());
    ASSERT_TRUE(silent.back().connected());
    ASSERT_LE(socket_->connections(), 8u);
  }
  const auto session = Attach();
  const auto start = steady_clock::now();
  FdClient client = Connect();
  EXPECT_TRUE(client.SayHello(session->token()).valid());
  const std::chrono::duration<double, std::milli> took = steady_clock::now() - start;
  RecordProperty("connect_ms", std::to_string(took.count()));
  EXPECT_LT(took.count(), 1000.0);
  silent.clear();
  EXPECT_TRUE(WaitUntil([&] { return socket_->connections() == 1; }));
}

TEST_F(Flooded, BoundConnectionsAreNotDisplaced) {
  std::vector<std::shared_ptr<Session>> sessions;
  std::vector<FdClient> clients;
  for (int i = 0; i < 8; ++i) {
    sessions.push_back(Attach());
    clients.push_back(Connect());
    ASSERT_TRUE(clients.back().SayHello(sessions.back()->token()).valid());
  }
  FdClient ninth = Connect();
  EXPECT_TRUE(ninth.ServerClosed());
  EXPECT_TRUE(Told("connection_limit"));
  const UniqueFd good = MakeLentMemfd(4096);
  for (FdClient& client : clients) EXPECT_EQ(client.Offer({good.get()}).size(), 1u);
}

TEST_F(OnFdSocket, ExpiredTicketsAreClosedWithoutACall) {
  SessionLimits limits;
  limits.memory.ticket_life_ms = 20;
  SessionHouse house(limits);
  UnixListenerOptions options;
  options.path = dir_.File("short.sock");
  options.type = SOCK_SEQPACKET;
  const FdSocket socket(UnixListener::Bind(options).value(), 1, PeerRule::OwnProcess(), Quick(),
                        house.doorkeeper, *house.table, house.mapper, {});
  const auto session = house.Attach().value();
  FdClient client(options.path);
  const UniqueFd ledger = client.SayHello(session->token());
  const UniqueFd good = MakeLentMemfd(4096);
  descriptors_ = CountDescriptors();
  ASSERT_EQ(client.Offer({good.get(), good.get()}).size(), 2u);
  ExpectNothingLeft();
}

#ifdef KVTRIAGE_FAULT_POINTS
TEST_F(OnFdSocket, PassesItsFaultPoints) {
  ASSERT_TRUE(SetFaults("").ok());
  const auto session = Attach();
  FdClient client = Connect();
  ASSERT_TRUE(client.SayHello(session->token()).valid());
  const UniqueFd good = MakeLentMemfd(4096);
  ASSERT_EQ(client.Offer({good.get()}).size(), 1u);
  EXPECT_EQ(FaultPointPassings("fd.after_receive"), 2u);
  EXPECT_EQ(FaultPointPassings("fd.after_hello"), 1u);
  EXPECT_EQ(FaultPointPassings("fd.after_ledger_sent"), 1u);
  EXPECT_EQ(FaultPointPassings("fd.before_tickets"), 1u);
}
#endif

}  // namespace
}  // namespace kvtriage
