// What clients were built on stays: no message, field, enumerator or call goes, or gets another
// number, name, type or place. proto/muster/v1/wire_format.txt records all there are; what is new
// is added to it, and a line of it is only taken out with a new version of the package.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "muster/v1/admission.pb.h"

namespace muster {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

constexpr const char* kRecord = "proto/muster/v1/wire_format.txt";

std::string TypeOf(const FieldDescriptor& field) {
  std::string type = field.type_name();
  if (field.message_type() != nullptr) type = field.message_type()->full_name();
  if (field.enum_type() != nullptr) type = field.enum_type()->full_name();
  return (field.is_repeated() ? "repeated " : "") + type;
}

void Add(const EnumDescriptor& type, std::set<std::string>* lines) {
  for (int i = 0; i < type.value_count(); ++i) {
    lines->insert(type.full_name() + "." + type.value(i)->name() + " = " +
                  std::to_string(type.value(i)->number()));
  }
}

void Add(const Descriptor& type, std::set<std::string>* lines) {
  if (type.options().map_entry()) return;
  lines->insert("message " + type.full_name());
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    lines->insert(field.full_name() + " = " + std::to_string(field.number()) + " " + TypeOf(field) +
                  " (" + field.json_name() + ")");
  }
  for (int i = 0; i < type.nested_type_count(); ++i) Add(*type.nested_type(i), lines);
  for (int i = 0; i < type.enum_type_count(); ++i) Add(*type.enum_type(i), lines);
}

void Add(const ServiceDescriptor& service, std::set<std::string>* lines) {
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& call = *service.method(i);
    lines->insert("rpc " + call.full_name() + "(" + (call.client_streaming() ? "stream " : "") +
                  call.input_type()->full_name() + ") returns (" +
                  (call.server_streaming() ? "stream " : "") + call.output_type()->full_name() +
                  ")");
  }
}

std::set<std::string> WireFormat() {
  std::set<std::string> lines;
  for (const FileDescriptor* file :
       {v1::Gang::descriptor()->file(),
        google::protobuf::GetEnumDescriptor<v1::GangState>()->file()}) {
    for (int i = 0; i < file->message_type_count(); ++i) Add(*file->message_type(i), &lines);
    for (int i = 0; i < file->enum_type_count(); ++i) Add(*file->enum_type(i), &lines);
    for (int i = 0; i < file->service_count(); ++i) Add(*file->service(i), &lines);
  }
  return lines;
}

std::set<std::string> Recorded() {
  std::ifstream file(kRecord);
  EXPECT_TRUE(file.good()) << kRecord;
  std::set<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  return lines;
}

std::string Joined(const std::set<std::string>& lines, const std::set<std::string>& but) {
  std::vector<std::string> left;
  std::ranges::set_difference(lines, but, std::back_inserter(left));
  std::string text;
  for (const std::string& line : left) text += line + "\n";
  return text;
}

TEST(WireFormat, KeepsWhatClientsWereBuiltOn) {
  const std::string gone = Joined(Recorded(), WireFormat());
  EXPECT_TRUE(gone.empty()) << "breaks clients: keep these as they were, and add beside them:\n"
                            << gone;
}

TEST(WireFormat, IsRecordedWhole) {
  const std::string added = Joined(WireFormat(), Recorded());
  EXPECT_TRUE(added.empty()) << "add to " << kRecord << ":\n" << added;
}

}  // namespace
}  // namespace muster
