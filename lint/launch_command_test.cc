#include "lint/launch_command.h"

#include <gtest/gtest.h>

#include "lint/text.h"

namespace muster::lint {
namespace {

void ReadWords(const yaml::YamlFile& file, Container* container) {
  EXPECT_FALSE(file.error);
  for (const char* field : {"command", "args"}) {
    for (const yaml::YamlValue& word : file.documents.at(0).Get(field).Items()) {
      container->words.push_back(word);
    }
  }
}

// What torchrun is given, "LINE nnodes=A:B@LINE nproc=N@LINE timeout=N", of the commands in a
// container whose YAML this is.
std::vector<std::string> Found(const std::string& yaml) {
  const yaml::YamlFile file = yaml::ParseYaml(yaml);
  Container container;
  ReadWords(file, &container);
  std::vector<std::string> texts;
  for (const TorchrunCall& call : FindTorchrun(container)) {
    std::string& text = texts.emplace_back(Concat(call.line));
    const auto number = [](const std::optional<int64_t>& value) {
      return value ? Concat(*value) : std::string("?");
    };
    if (call.nodes_line > 0) {
      Append(&text, " nnodes=", number(call.min_nodes), ":", number(call.max_nodes), "@",
             call.nodes_line);
    }
    if (call.processes_line > 0) {
      Append(&text, " nproc=", number(call.processes), "@", call.processes_line);
    }
    if (call.rendezvous_seconds) Append(&text, " timeout=", *call.rendezvous_seconds);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(LaunchCommand, OptionsWordByWord) {
  EXPECT_EQ(Found("command: [torchrun, --nnodes=2, --nproc_per_node, '8', train.py]"),
            Texts{"1 nnodes=2:2@1 nproc=8@1"});
  EXPECT_EQ(Found("command:\n- torchrun\n- --nnodes\n- \"4\"\n- train.py\n"),
            Texts{"2 nnodes=4:4@3"});
  EXPECT_EQ(Found("command: [python, -m, torch.distributed.run]\nargs: [--nproc-per-node=2, a.py]"),
            Texts{"1 nproc=2@2"});
  EXPECT_EQ(Found("command: [/opt/conda/bin/torchrun, --standalone, --nproc_per_node=4, a.py]"),
            Texts{"1 nproc=4@1"});
}

TEST(LaunchCommand, ScriptsLineByLine) {
  EXPECT_EQ(Found("command: [/bin/bash, -c]\n"
                  "args:\n"
                  "  - |\n"
                  "    cd /workspace && echo torchrun\n"
                  "    # torchrun --nnodes 9 a.py\n"
                  "    torchrun --nnodes 4 \\\n"
                  "      --nproc_per_node 1 t5.py --nproc_per_node 7\n"),
            Texts{"6 nnodes=4:4@6 nproc=1@7"});
  EXPECT_EQ(Found("args: ['set -e; torchrun --nnodes=\"2\" a.py && torchrun --nnodes=3 b.py']"),
            (Texts{"1 nnodes=2:2@1", "1 nnodes=3:3@1"}));
}

TEST(LaunchCommand, WhatIsNoNumber) {
  EXPECT_EQ(Found("args: [torchrun --nnodes=$NNODES --nproc_per_node=auto a.py]"),
            Texts{"1 nnodes=?:?@1 nproc=?@1"});
  EXPECT_EQ(Found("command: [torchrun, --nnodes=2:4, --rdzv_conf=last_call=5&timeout=900, a.py]"),
            Texts{"1 nnodes=2:4@1"});
  EXPECT_EQ(Found("command: [torchrun, '--rdzv-conf=read_timeout=60,timeout=900', a.py]"),
            Texts{"1 timeout=900"});
}

TEST(LaunchCommand, AccelerateAndDeepspeed) {
  EXPECT_EQ(Found("args: [accelerate launch --num_machines 2 --num_processes=16 a.py]"),
            Texts{"1 nnodes=2:2@1 nproc=8@1"});
  EXPECT_EQ(Found("args: [accelerate launch --num_machines 2 a.py]"),
            Texts{"1 nnodes=2:2@1 nproc=?@1"});
  EXPECT_EQ(Found("args: [deepspeed --num_gpus 4 --num_nodes=2 a.py]"),
            Texts{"1 nnodes=2:2@1 nproc=4@1"});
  EXPECT_EQ(Found("args: [pip install deepspeed --upgrade]"), Texts{});
}

TEST(LaunchCommand, Mpirun) {
  const auto found = [](const std::string& yaml) {
    const yaml::YamlFile file = yaml::ParseYaml(yaml);
    Container container;
    ReadWords(file, &container);
    std::string text;
    for (const MpirunCall& call : FindMpirun(container)) {
      Append(&text, call.processes.value, "@", call.processes.line, " ", call.per_node.value, " ",
             call.host_slots.value, ";");
    }
    return text;
  };
  EXPECT_EQ(found("command: [mpirun, -np, '16', --npernode, '8', /opt/all_reduce_perf, -n, '20']"),
            "16@1 8 0;");
  EXPECT_EQ(found("command: [bash, -c]\nargs:\n- |\n  sleep 5\n  /usr/bin/mpirun -H a:8,b:8 \\\n"
                  "    --allow-run-as-root /opt/x -n 20\n"),
            "0@0 0 16;");
  EXPECT_EQ(found("args: ['mpirun -np $N -H a,b --map-by ppr:4:node python a.py']"), "0@0 4 2;");
  EXPECT_EQ(found("args: [python a.py]"), "");
}

TEST(LaunchCommand, OtherCommands) {
  EXPECT_EQ(Found("command: [python, train.py, --nnodes=2]"), Texts{});
  EXPECT_EQ(Found("args: [pip install torchrun]"), Texts{});
  EXPECT_EQ(Found("args: [{a: b}, [torchrun, --nnodes=2]]"), Texts{});
}

}  // namespace
}  // namespace muster::lint
