#include "worker/rendezvous/job_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using testing::HasSubstr;
using Side = JobSecret::Side;

constexpr char kText[] = "0123456789abcdef";

TEST(JobSecret, ProvesItselfToWhoKnowsItAndInNoOtherPlace) {
  const JobSecret secret = *JobSecret::Create(kText);
  const std::string proof = secret.Proof(Side::kMember, "aa", "bb");
  EXPECT_TRUE(secret.Proves(proof, Side::kMember, "aa", "bb"));
  EXPECT_FALSE(secret.Proves(proof, Side::kStore, "aa", "bb")) << "sent back to its sender";
  EXPECT_FALSE(secret.Proves(proof, Side::kMember, "aa", "cc")) << "heard on another connection";
  EXPECT_FALSE(secret.Proves(proof, Side::kMember, "bb", "aa"));
  EXPECT_FALSE(secret.Proves("", Side::kMember, "aa", "bb"));
  const JobSecret other = *JobSecret::Create("0123456789abcdeF");
  EXPECT_FALSE(other.Proves(proof, Side::kMember, "aa", "bb"));
}

TEST(JobSecret, IsTheSameWithTheLineEndOfItsFile) {
  EXPECT_EQ(JobSecret::Create(std::string(kText) + "\n")->Proof(Side::kStore, "a", "b"),
            JobSecret::Create(kText)->Proof(Side::kStore, "a", "b"));
}

TEST(JobSecret, OneThatCouldBeGuessedIsRefused) {
  const auto secret = JobSecret::Create("swordfish\n");
  EXPECT_THAT(secret.status().message(), HasSubstr("has 9 bytes; it takes at least 16"));
  EXPECT_FALSE(JobSecret::Create("").ok());
  EXPECT_FALSE(JobSecret().is_set());
}

TEST(JobSecret, NoNonceComesTwice) {
  EXPECT_NE(NewNonce(), NewNonce());
  EXPECT_TRUE(IsNonce(NewNonce()));
  EXPECT_FALSE(IsNonce(""));
  EXPECT_FALSE(IsNonce(NewNonce().substr(1) + "\n"));
}

}  // namespace
}  // namespace muster::worker
