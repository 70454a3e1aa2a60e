#include "service/session/peer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "service/session/peer_acceptor.h"
#include "tests/support/process_tables.h"
#include "tests/support/temp_dir.h"
#include "tests/support/wait_until.h"
#include "tests/unit/session/fd_client.h"

namespace kvtriage {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
  UniqueFd a, b;
};

TEST(Peer, CredentialsAreThoseOfTheOtherProcess) {
  const Pair pair;
  const std::optional<PeerCredentials> peer = ReadPeer(pair.a.get());
  ASSERT_TRUE(peer);
  EXPECT_EQ(peer->process.uid, ::geteuid());
  EXPECT_EQ(peer->process.gid, ::getegid());
  EXPECT_EQ(peer->process.pid, ::getpid());
  EXPECT_EQ(peer->groups.size(), static_cast<size_t>(::getgroups(0, nullptr)));
  EXPECT_FALSE(ReadPeer(-1));
}

TEST(Peer, RulesListUidsAndGroups) {
  const PeerRule rule{{1000}, {50, 60}};
  EXPECT_TRUE(rule.Allows({{1000, 1, 1}, {}}));
  EXPECT_TRUE(rule.Allows({{1, 50, 1}, {}}));
  EXPECT_TRUE(rule.Allows({{1, 1, 1}, {2, 60}}));
  EXPECT_FALSE(rule.Allows({{1, 1, 1}, {2, 3}}));
  EXPECT_FALSE(rule.Allows({{0, 0, 1}, {}}));
  EXPECT_FALSE(PeerRule{}.Allows({{0, 0, 1}, {0}}));
}

TEST(Peer, OwnRuleLetsUsAndRootInButNotTheRootGroup) {
  const PeerRule rule = PeerRule::OwnProcess();
  EXPECT_TRUE(rule.Allows({{::geteuid(), 12345, 1}, {}}));
  EXPECT_TRUE(rule.Allows({{0, 12345, 1}, {}}));
  EXPECT_FALSE(rule.Allows({{54321, 0, 1}, {0}}));
  EXPECT_EQ(rule.Allows({{54321, ::getegid(), 1}, {}}), ::getegid() != 0);
}

TEST(Peer, PidfdIsOfTheLivePeer) {
  const Pair pair;
  const PeerPidfd pidfd = OpenPeerPidfd(pair.a.get(), ReadPeer(pair.a.get())->process);
  EXPECT_FALSE(pidfd.gone);
  ASSERT_TRUE(pidfd.fd.valid());
  pollfd entry{pidfd.fd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0) << "we are alive";
  const PeerPidfd again = OpenPeerPidfd(pair.b.get(), ReadPeer(pair.b.get())->process);
  EXPECT_EQ(ProcessNumber(pidfd.fd.get()), ProcessNumber(again.fd.get()));
  EXPECT_EQ(ProcessNumber(-1), 0u);
  EXPECT_EQ(ProcessNumber(pair.a.get()), 0u) << "not a pidfd";
}

UnixListener Listen(const std::string& path) {
  UnixListenerOptions options;
  options.path = path;
  return UnixListener::Bind(options).value();
}

TEST(PeerAcceptor, LetsInWhomTheRuleAllows) {
  const TempDir dir;
  Doorkeeper doorkeeper;
  std::promise<PeerProcess> accepted;
  UniqueFd served;
  const PeerAcceptor acceptor(Listen(dir.File("a")), PeerRule::OwnProcess(), doorkeeper,
                              {[&](UniqueFd socket, const PeerProcess& peer) {
                                 served = std::move(socket);
                                 accepted.set_value(peer);
                               },
                               {}});
  const UniqueFd client = ConnectTo(dir.File("a"), SOCK_STREAM);
  ASSERT_TRUE(client.valid());
  EXPECT_EQ(accepted.get_future().get().pid, ::getpid());
  EXPECT_EQ(::fcntl(served.get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  EXPECT_EQ(::fcntl(served.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ASSERT_EQ(::write(served.get(), "hi", 2), 2);
  char answer[2];
  EXPECT_EQ(::read(client.get(), answer, 2), 2);
}

TEST(PeerAcceptor, ClosesOthersWithoutAByte) {
  const TempDir dir;
  Doorkeeper doorkeeper;
  std::promise<PeerProcess> refused;
  const PeerAcceptor acceptor(Listen(dir.File("a")), PeerRule{{54321}, {54321}}, doorkeeper,
                              {[](UniqueFd, const PeerProcess&) { FAIL() << "let in"; },
                               [&](const PeerProcess& peer) { refused.set_value(peer); }});
  const UniqueFd client = ConnectTo(dir.File("a"), SOCK_STREAM);
  char answer;
  EXPECT_EQ(::read(client.get(), &answer, 1), 0);
  EXPECT_EQ(refused.get_future().get().uid, ::geteuid());
}

TEST(PeerAcceptor, StopsWithItsDestruction) {
  const TempDir dir;
  Doorkeeper doorkeeper;
  std::atomic<int> accepted{0};
  {
    const PeerAcceptor acceptor(Listen(dir.File("a")), PeerRule::OwnProcess(), doorkeeper,
                                {[&](UniqueFd, const PeerProcess&) { ++accepted; }, {}});
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(ConnectTo(dir.File("a"), SOCK_STREAM).valid());
    EXPECT_TRUE(WaitUntil([&] { return accepted == 40; }));
  }
  EXPECT_FALSE(ConnectTo(dir.File("a"), SOCK_STREAM).valid());
}

}  // namespace
}  // namespace kvtriage
