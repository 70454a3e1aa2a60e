#include "service/rpc/scope_table.h"

#include <map>
#include <string>

#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "kvtriage/v1/admin.pb.h"
#include "kvtriage/v1/blend.pb.h"
#include "kvtriage/v1/memory.pb.h"
#include "kvtriage/v1/session.pb.h"
#include "kvtriage/v1/triage.pb.h"
#include "service/memory/mapper.h"
#include "tests/support/reason_of.h"

namespace kvtriage {
namespace {

std::map<std::string, Scope> Rows() {
  std::map<std::string, Scope> rows;
  for (const MethodRow& row : ScopeTable()) rows[std::string(row.full_name)] = row.scope;
  return rows;
}

// A method without a row would be served without a guard.
TEST(ScopeTable, EveryMethodOfEveryServiceHasARow) {
  const google::protobuf::FileDescriptor* files[] = {
      v1::ProbeMemoryRequest::descriptor()->file(),
      v1::SelectRecomputeRequest::descriptor()->file(),
      v1::RegisterRegionsRequest::descriptor()->file(),
      v1::GetServerInfoRequest::descriptor()->file(),
      v1::CompressRequest::descriptor()->file(),
      v1::View::descriptor()->file()};
  const auto rows = Rows();
  size_t methods = 0;
  for (const auto* file : files) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        ++methods;
        EXPECT_TRUE(rows.contains(file->service(s)->method(m)->full_name()))
            << file->service(s)->method(m)->full_name();
      }
    }
  }
  EXPECT_EQ(methods, rows.size()) << "rows for methods that do not exist";
}

TEST(ScopeTable, RowsStandInTheOrderOfTheMethods) {
  for (size_t i = 0; i < ScopeTable().size(); ++i) {
    const MethodRow& row = ScopeTable()[i];
    EXPECT_EQ(static_cast<size_t>(row.method), i);
    EXPECT_TRUE(row.full_name.ends_with("." + std::string(RpcMethodName(row.method))))
        << row.full_name;
  }
}

TEST(ScopeTable, OnlyTheFirstStepsNeedNoSession) {
  for (const auto& [name, scope] : Rows()) {
    const bool first = name.ends_with("SessionService.Attach") || name.ends_with(".GetServerInfo");
    EXPECT_EQ(scope == Scope::kNone, first) << name;
  }
}

// An allow and a deny for each row.
TEST(ScopeTable, GateLetsInWhomTheRowNames) {
  Doorkeeper doorkeeper;
  Mapper mapper;
  SessionTable sessions(1, SessionLimits{}, doorkeeper, mapper, nullptr, nullptr);
  const auto session = sessions.Attach(ClientHello{"test/1", 0, 0}, nullptr, nullptr);
  ASSERT_TRUE(session.ok()) << session.status();
  const std::string token((*session)->token().begin(), (*session)->token().end());
  std::string wrong = token;
  wrong.back() = static_cast<char>(wrong.back() ^ 1);

  for (const MethodRow& row : ScopeTable()) {
    const auto gate = [&](std::optional<std::string_view> given) {
      return ReasonOf(PassGate(sessions, row.method, given).status());
    };
    if (row.scope == Scope::kNone) {
      EXPECT_EQ(gate(std::nullopt), "ok") << row.full_name;
      EXPECT_EQ(gate(wrong), "ok") << row.full_name;
      continue;
    }
    EXPECT_EQ(gate(std::nullopt), "session_unknown") << row.full_name;
    EXPECT_EQ(gate(""), "session_unknown") << row.full_name;
    EXPECT_EQ(gate(wrong), "session_unknown") << row.full_name;
    EXPECT_EQ(gate(token.substr(1)), "session_unknown") << row.full_name;
    EXPECT_EQ(gate(token), "session_not_bound") << row.full_name;
  }
  ASSERT_TRUE(sessions.Bind(token, PeerProcess{}, UniqueFd()).ok());
  for (const MethodRow& row : ScopeTable()) {
    const auto passed = PassGate(sessions, row.method, token);
    ASSERT_TRUE(passed.ok()) << row.full_name;
    if (row.scope == Scope::kBound) {
      EXPECT_EQ((*passed)->id(), (*session)->id());
    }
  }
  sessions.End(*session, EndCause::kLease);
  for (const MethodRow& row : ScopeTable()) {
    if (row.scope == Scope::kNone) continue;
    EXPECT_EQ(ReasonOf(PassGate(sessions, row.method, token).status()), "session_unknown")
        << row.full_name << ": a token dies with its session";
  }
}

}  // namespace
}  // namespace kvtriage
