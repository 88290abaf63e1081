#include "kube/api.h"

#include <gtest/gtest.h>

namespace muster::kube {
namespace {

absl::Status StatusOf(int status, std::string body = "") {
  return ToStatus({status, std::move(body), std::nullopt});
}

TEST(ToStatus, MapsEveryHttpStatusThatCallersTellApart) {
  EXPECT_TRUE(StatusOf(200).ok());
  EXPECT_TRUE(StatusOf(201).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(400)));
  EXPECT_TRUE(absl::IsUnauthenticated(StatusOf(401)));
  EXPECT_TRUE(absl::IsPermissionDenied(StatusOf(403)));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(404)));
  EXPECT_TRUE(absl::IsAborted(StatusOf(409, R"({"kind":"Status","reason":"Conflict"})")));
  EXPECT_TRUE(absl::IsAlreadyExists(StatusOf(409, R"({"reason":"AlreadyExists"})")));
  EXPECT_TRUE(absl::IsOutOfRange(StatusOf(410)));
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(413)));
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(422)));
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(429)));
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(500)));
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(504)));
  EXPECT_TRUE(absl::IsUnknown(StatusOf(302)));
  EXPECT_TRUE(absl::IsUnknown(StatusOf(0)));
}

TEST(ToStatus, CarriesTheServersMessageOrTheBodysStart) {
  EXPECT_EQ(StatusOf(404, R"({"kind":"Status","message":"pods \"p\" not found"})").message(),
            "HTTP 404: pods \"p\" not found");
  EXPECT_EQ(StatusOf(502, "Bad Gateway\n").message(), "HTTP 502: Bad Gateway");
  EXPECT_EQ(StatusOf(500).message(), "HTTP 500");
  EXPECT_EQ(StatusOf(500, R"({"message":7})").message(), "HTTP 500: {\"message\":7}");
  EXPECT_LT(StatusOf(500, std::string(100000, 'x')).message().size(), 300u);
}

}  // namespace
}  // namespace muster::kube
