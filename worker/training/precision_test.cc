#include "worker/training/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace muster::worker {
namespace {

using testing::HasSubstr;

TEST(Precision, NamesAreReadAndWrittenAndOthersRefused) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp8}) {
    EXPECT_EQ(*ParsePrecision(PrecisionName(precision)), precision);
  }
  for (const auto reduction : {GradientReduction::kFp32, GradientReduction::kBf16}) {
    EXPECT_EQ(*ParseGradientReduction(GradientReductionName(reduction)), reduction);
  }
  EXPECT_THAT(std::string(ParsePrecision("fp16").status().message()),
              HasSubstr("precision=fp16 is none of bf16 and fp8"));
  EXPECT_THAT(std::string(ParseGradientReduction("fp8").status().message()),
              HasSubstr("gradient-reduction=fp8 is none of fp32 and bf16"));
}

TEST(Precision, Fp8IsRefusedBelowComputeCapability89) {
  for (const auto& [major, minor, fits] :
       {std::tuple(7, 5, false), std::tuple(8, 0, false), std::tuple(8, 6, false),
        std::tuple(8, 9, true), std::tuple(9, 0, true), std::tuple(10, 0, true)}) {
    SCOPED_TRACE(major * 10 + minor);
    EXPECT_TRUE(CheckComputeCapability(Precision::kBf16, "A100", major, minor).ok());
    const absl::Status status = CheckComputeCapability(Precision::kFp8, "A100", major, minor);
    EXPECT_EQ(status.ok(), fits);
    if (!fits) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("A100 has"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("Set precision to bf16"));
    }
  }
}

}  // namespace
}  // namespace muster::worker
