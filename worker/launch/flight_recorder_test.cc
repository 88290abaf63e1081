#include "worker/launch/flight_recorder.h"

#include <gtest/gtest.h>
#include <stdio.h>

namespace muster::worker {
namespace {

// As PyTorch's pickler writes it: a map with its type's tag, lists of numbers by a function.
std::string Dump(int collectives, const std::string& last) {
  const std::string program =
      "import pickle,sys,pickletools\n"
      "entries=[{'frames':[],'record_id':i,'pg_id':0,'process_group':('0','default_pg'),"
      "'collective_seq_id':i+1,'p2p_seq_id':0,'op_id':i+1,'profiling_name':'nccl:broadcast',"
      "'time_created_ns':1732480000000000000+i,'duration_ms':0.5,'input_sizes':[[3,4]],"
      "'state':'completed','retired':True} for i in range(" +
      std::to_string(collectives) + ")]\nentries[-1]['profiling_name']='" + last +
      "'\nsys.stdout.buffer.write(pickle.dumps({'version':'2.10','entries':entries,"
      "'pg_config':{'0':{'name':'0','desc':'default_pg','ranks':'[0, 1]'}}},protocol=2))\n";
  FILE* python = popen(("python3 -c \"" + program + "\"").c_str(), "r");
  EXPECT_NE(python, nullptr);
  std::string text;
  for (int byte = fgetc(python); byte != EOF; byte = fgetc(python)) {
    text += static_cast<char>(byte);
  }
  EXPECT_EQ(pclose(python), 0);
  return text;
}

TEST(FlightRecorder, TheLastCollectiveOfEachGroupIsRead) {
  const auto recording = ReadRecording(Dump(41, "nccl:all_reduce"));
  ASSERT_TRUE(recording.has_value());
  ASSERT_EQ(recording->groups.size(), 1U);
  EXPECT_EQ(recording->groups.at("0").enqueued, 41);
  EXPECT_EQ(recording->groups.at("0").last, "nccl:all_reduce");
}

TEST(FlightRecorder, TheRankThatHasEnqueuedFewerIsBehind) {
  const std::map<int, Recording> recordings = {{0, *ReadRecording(Dump(42, "nccl:all_reduce"))},
                                               {1, *ReadRecording(Dump(41, "nccl:broadcast"))},
                                               {2, *ReadRecording(Dump(42, "nccl:all_reduce"))}};
  const Standstill told = WhoIsBehind(recordings);
  EXPECT_EQ(told.rank, 1);
  EXPECT_EQ(told.detail,
            "rank 1 has enqueued 41 collectives of its group when others had enqueued 42, the last "
            "a nccl:all_reduce (PyTorch's flight recorder)");
  EXPECT_FALSE(WhoIsBehind({{0, recordings.at(0)}, {2, recordings.at(2)}}).rank.has_value());
  EXPECT_FALSE(WhoIsBehind(std::map<int, Recording>()).rank.has_value());
}

TEST(FlightRecorder, WhatPyTorchsPicklerAddsIsPassedOver) {
  // restore_type_tag({"version": "1.1"}, "Dict[str, Any]"), and a list of numbers by build_intlist.
  const std::string tagged = std::string("\x80\x02", 2) +
                             "ctorch.jit._pickle\nrestore_type_tag\n}q" + std::string(1, '\0') +
                             "(X" + std::string("\x07\0\0\0", 4) + "versionX" +
                             std::string("\x03\0\0\0", 4) + "1.1X" + std::string("\x05\0\0\0", 4) +
                             "sizesctorch.jit._pickle\nbuild_intlist\n](K\x03K\x04" + "e\x85Ru" +
                             "X" + std::string("\x0e\0\0\0", 4) + "Dict[str, Any]\x86R.";
  EXPECT_TRUE(ReadRecording(tagged).has_value());
}

TEST(FlightRecorder, HalfOfADumpIsNone) {
  const std::string whole = Dump(3, "nccl:all_reduce");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ReadRecording(whole.substr(0, size)).has_value()) << size;
  }
}

TEST(FlightRecorder, WhatAPodSaysOfItsRecorderStays) {
  const FlightRecorders recorders;
  EXPECT_TRUE(recorders.Variables({{"TORCH_NCCL_TRACE_BUFFER_SIZE", "10"}}).empty());
  EXPECT_TRUE(recorders.Variables({}).contains("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"));
  EXPECT_TRUE(recorders.Ask(absl::Seconds(5)).empty()) << "nobody listens";
}

}  // namespace
}  // namespace muster::worker
