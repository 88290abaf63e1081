#include "worker/diagnose/efa_error.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "worker/diagnose/text.h"

namespace muster::worker {
namespace {

std::string PluginLine(int number) {
  return Concat(
      "[2026-01-01 12:08:32] train-0:194:710 [0] int "
      "cm_req_handle_error_entry(nccl_net_ofi_context_t*,"
      " fid_cq*, fi_cq_err_entry*, uint16_t):46 NCCL WARN NET/OFI Request 0x7f45 completed with "
      "error."
      " RC: 103. Error: ",
      number,
      " (words (and more) My EFA addr: fi_addr_efa://[fe80::c55:2eff:fe44:db5]:0:1421 My host id: "
      "i-07792e0f955a9673b Peer EFA addr: fi_addr_efa://[fe80::454:14ff:fedd:d5b3]:0:8259 Peer "
      "host "
      "id: N/A). Completed length: 0");
}

TEST(EfaError, EveryRowIsReadFromThePluginsLine) {
  for (const EfaError& error : EfaErrors()) {
    const auto request = ReadFailedRequest(PluginLine(error.number));
    if (error.number == 0) {
      EXPECT_FALSE(request);
      continue;
    }
    ASSERT_TRUE(request) << error.number;
    EXPECT_EQ(request->error, &error);
  }
}

// {when nothing is known of the peer, when it is alive, when it is silent}
using Names = std::array<std::string_view, 3>;

TEST(EfaError, WhatEachNumberMeansDependsOnThePeer) {
  const std::map<int, Names> expected = {
      {1, {"requests-flushed", "requests-flushed", "requests-flushed"}},
      {2, {"efa-device-fault", "efa-device-fault", "efa-device-fault"}},
      {9, {"peer-lost", "connection-closed", "peer-lost"}},
      {10, {"peer-busy", "peer-busy", "peer-lost"}},
      {13, {"peer-lost", "peer-busy", "peer-lost"}},
      {15, {"peer-unreachable", "peer-unreachable", "peer-lost"}},
      {4105, {"fabric-memory", "fabric-memory", "fabric-memory"}},
      {4122, {"shared-memory-small", "shared-memory-small", "shared-memory-small"}},
      {4124, {"peer-lost", "peer-busy", "peer-lost"}},
      {4126, {"handshake-failed", "security-group-egress", "peer-lost"}},
      {77777, {"fabric-unknown", "fabric-unknown", "fabric-unknown"}},
  };
  for (const auto& [number, names] : expected) {
    const std::string line = PluginLine(number);
    const auto request = ReadFailedRequest(line);
    ASSERT_TRUE(request) << number;
    const auto name = [&](PeerState peer) {
      return CauseOf(CauseOfEfaError(request->number, peer)).name;
    };
    EXPECT_EQ((Names{name(PeerState::kUnknown), name(PeerState::kAlive), name(PeerState::kSilent)}),
              names)
        << number;
  }
}

TEST(EfaError, BothEndsAreNamed) {
  const std::string line = PluginLine(4126);
  const auto request = ReadFailedRequest(line);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->my_address, "fi_addr_efa://[fe80::c55:2eff:fe44:db5]:0:1421");
  EXPECT_EQ(request->peer_address, "fi_addr_efa://[fe80::454:14ff:fedd:d5b3]:0:8259");
  EXPECT_EQ(request->my_instance, "i-07792e0f955a9673b");
  EXPECT_EQ(request->peer_instance, "");
}

TEST(EfaError, LibfabricsOwnLines) {
  const auto number = [](std::string_view line) {
    const auto request = ReadFailedRequest(line);
    return request ? request->number : -1;
  };
  EXPECT_EQ(
      number("libfabric:451707:1708520807::efa:cq:efa_rdm_txe_handle_error():737<warn> err: 5, "
             "message: Invalid address My EFA addr: fi_addr_efa://[fe80::13]:0:1072 (7)"),
      7);
  EXPECT_EQ(number("libfabric:1:1708520807::efa:eq:efa_base_ep_write_eq_error():612<warn> Writing "
                   "error to EQ: err: Software caused connection abort (103) prov_errno: "
                   "Unresponsive receiver (4124)"),
            4124);
  EXPECT_EQ(number("EFA internal error: (4105) Out of memory"), 4105);
  EXPECT_EQ(
      number("NCCL WARN NET/OFI Request 0x1 completed with error. RC: 21. Error: unknown error"),
      4096);
}

TEST(EfaError, WordsCountBeforeANumberThatVersionsCountDifferently) {
  const auto number = [](std::string_view words, int said) {
    const auto request = ReadFailedRequest(
        Concat("libfabric:7:1708520807::efa:cq:efa_rdm_txe_handle_error():771<warn> err: 113, "
               "message: Unresponsive receiver (",
               words, ") My EFA addr: fi_addr_efa://[fe80::13]:0:1072 (", said, ")"));
    return request ? request->number : -1;
  };
  EXPECT_EQ(number("connection previously acknowledged by receiver", 4106), 4124);
  EXPECT_EQ(number("reachable by EFA device but handshake failed", 4107), 4126);
  EXPECT_EQ(number("words that nobody knows", 13), 13);
}

TEST(EfaError, WhatTheProviderWritesBeforeItAborts) {
  const auto number = [](std::string_view line) {
    const auto request = ReadFailedRequest(line);
    return request ? request->number : -1;
  };
  EXPECT_EQ(number("err: Input/output error (5) prov_errno: Unknown error -12 (-12) "
                   "prov/efa/src/rxr/rxr.h:1343"),
            4096);
  EXPECT_EQ(number("err: Input/output error (5) prov_errno: Unresponsive receiver (13) "
                   "prov/efa/src/rxr/rxr.h:1343"),
            13);
  EXPECT_EQ(number("err: Input/output error (5) prov_errno: x (-12) prov/verbs/src/a.c:13"), -1);
}

TEST(EfaError, OtherLinesAreNone) {
  EXPECT_FALSE(ReadFailedRequest("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)"));
  EXPECT_FALSE(
      ReadFailedRequest("libfabric:7:1708520807::core:core:fi_getinfo_():1392<warn> (22)"));
  EXPECT_FALSE(ReadFailedRequest("EFA internal error: ("));
  EXPECT_FALSE(ReadFailedRequest("NET/OFI Request 0x7f completed with error. RC: 103."));
}

}  // namespace
}  // namespace muster::worker
