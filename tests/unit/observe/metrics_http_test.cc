// https://github.com/jupp0r/prometheus-cpp/issues/603
// https://github.com/open-telemetry/opentelemetry-cpp/pull/1986
// https://github.com/jupp0r/prometheus-cpp/issues/565
#include "service/observe/metrics_http.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/memory/unique_fd.h"

namespace kvtriage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kPage[] = "some_metric 1\n";
std::string Page() { return kPage; }

// The whole answer to `request` of the server at `address`.
std::string Ask(const std::string& address, const std::string& request) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return "";
  const UniqueFd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  std::string answer;
  if (!connected || write(socket.get(), request.data(), request.size()) < 0) return answer;
  char bytes[4096];
  for (ssize_t got; (got = read(socket.get(), bytes, sizeof(bytes))) > 0;) {
    answer.append(bytes, static_cast<size_t>(got));
  }
  return answer;
}

std::string Get(const std::string& address, const std::string& path) {
  return Ask(address, "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
}

TEST(MetricsHttp, PortZeroIsAnswerableAtThePortItNames) {
  const auto http = MetricsHttp::Start("127.0.0.1:0", &Page);
  ASSERT_TRUE(http.ok()) << http.status();
  EXPECT_THAT((*http)->address(), StartsWith("127.0.0.1:"));
  EXPECT_THAT((*http)->address(), Not(HasSubstr(":0")));
  const std::string answer = Get((*http)->address(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_TRUE(answer.ends_with(kPage)) << answer;
}

TEST(MetricsHttp, ServesIpv6) {
  const auto http = MetricsHttp::Start("[::1]:0", &Page);
  if (!http.ok()) GTEST_SKIP() << "no IPv6 on this machine: " << http.status();
  EXPECT_THAT((*http)->address(), StartsWith("[::1]:"));
  EXPECT_TRUE(Get((*http)->address(), "/metrics").ends_with(kPage));
}

TEST(MetricsHttp, OnlyMetricsAndOnlyReads) {
  const auto http = MetricsHttp::Start("127.0.0.1:0", &Page);
  ASSERT_TRUE(http.ok()) << http.status();
  const std::string& address = (*http)->address();
  EXPECT_THAT(Get(address, "/"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get(address, "/metrics/../etc/passwd"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(address, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  const std::string head = Ask(address, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(head, Not(HasSubstr(kPage)));
}

TEST(MetricsHttp, TakenPortNamesTheAddress) {
  const auto first = MetricsHttp::Start("127.0.0.1:0", &Page);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = MetricsHttp::Start((*first)->address(), &Page);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr((*first)->address()));
  EXPECT_TRUE(Get((*first)->address(), "/metrics").ends_with(kPage)) << "the first is untouched";
}

TEST(MetricsHttp, BadAddressesAreRefused) {
  for (const std::string address :
       {"127.0.0.1:99999", "300.1.1.1:0", "no-such-host.invalid:0", "127.0.0.1", "here",
        "127.0.0.1:0,127.0.0.1:0", "127.0.0.1:0s"}) {
    const auto http = MetricsHttp::Start(address, &Page);
    ASSERT_FALSE(http.ok()) << address << " became " << (*http)->address();
    EXPECT_THAT(std::string(http.status().message()), HasSubstr(address));
  }
}

TEST(MetricsHttp, StallingClientDoesNotKeepItFromStopping) {
  auto http = MetricsHttp::Start("127.0.0.1:0", &Page);
  ASSERT_TRUE(http.ok()) << http.status();
  const std::string& address = (*http)->address();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  const UniqueFd stalled(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(stalled.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  ASSERT_EQ(send(stalled.get(), "GET ", 4, 0), 4);
  const auto begin = std::chrono::steady_clock::now();
  http->reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
}

TEST(MetricsHttp, AnswersOddRequests) {
  const auto answer = [](const std::string& head) { return HttpAnswer(head, &Page).substr(0, 12); };
  EXPECT_EQ(answer("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(answer("GET /metrics?name=x HTTP/1.0\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(answer("GET /metricsx HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(answer("PRI * HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(answer("DELETE /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
  for (const std::string head :
       {"", "\r\n\r\n", "GET", "GET /metrics", " ", "GET  HTTP/1.1", "\1\2"}) {
    EXPECT_EQ(answer(head), "HTTP/1.1 400") << head;
  }
  EXPECT_EQ(answer(std::string(100'000, 'x')), "HTTP/1.1 400");
}

TEST(MetricsHttp, ServesManyScrapesOneAfterTheOther) {
  const auto http = MetricsHttp::Start("127.0.0.1:0", &Page);
  ASSERT_TRUE(http.ok()) << http.status();
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(Get((*http)->address(), "/metrics").ends_with(kPage)) << "scrape " << i;
  }
}

}  // namespace
}  // namespace kvtriage
