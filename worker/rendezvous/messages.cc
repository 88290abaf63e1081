#include "worker/rendezvous/messages.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/communicator/communicator.h"

namespace muster::worker {
namespace {

using nlohmann::json;

constexpr size_t kLengthSize = 4;

json ToJson(const Member& member) {
  return {{"rank", member.rank},
          {"world_size", member.world_size},
          {"host", member.host},
          {"pid", member.pid},
          {"address", member.endpoint.host},
          {"port", member.endpoint.port},
          {"gpu_uuids", member.gpu_uuids},
          {"versions", member.versions},
          // Any bytes; JSON strings hold UTF-8 only.
          {"blob", json::binary_t::container_type(member.blob.begin(), member.blob.end())}};
}

Member ToMember(const json& value) {
  Member member = {.rank = value.at("rank"),
                   .world_size = value.at("world_size"),
                   .host = value.at("host"),
                   .pid = value.at("pid"),
                   .endpoint = {.host = value.at("address"), .port = value.at("port")},
                   .gpu_uuids = value.at("gpu_uuids"),
                   .versions = value.at("versions"),
                   .blob = {}};
  for (const uint8_t byte : value.at("blob").get<std::vector<uint8_t>>()) {
    member.blob.push_back(static_cast<char>(byte));
  }
  return member;
}

void AddStatus(json& value, const absl::Status& status) {
  if (status.ok()) return;
  value["code"] = status.code();
  value["message"] = std::string(status.message());
  value["ranks"] = RanksAtFault(status);
}

absl::Status StatusOf(const json& value) {
  if (!value.contains("code")) return absl::OkStatus();
  return WithRanksAtFault(absl::Status(value.at("code").get<absl::StatusCode>(),
                                       value.at("message").get<std::string>()),
                          value.at("ranks"));
}

std::string Text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// `convert` of the parsed text; what isn't as it should be throws inside.
template <typename Message, typename Convert>
absl::StatusOr<Message> Decode(absl::string_view text, Convert convert) {
  try {
    return convert(json::parse(text.begin(), text.end()));
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not the rendezvous' protocol: ", error.what()));
  }
}

}  // namespace

std::string Encode(const MemberMessage& message) {
  json value = {{"type", message.type}};
  if (message.type == MemberMessage::Type::kJoin) {
    value["member"] = ToJson(message.member);
    value["generation"] = message.generation;
    value["incarnation"] = message.incarnation;
    AddStatus(value, message.cause);
    if (!message.nonce.empty()) value["nonce"] = message.nonce;
  }
  if (message.type == MemberMessage::Type::kProve) value["proof"] = message.proof;
  if (message.type == MemberMessage::Type::kBeat) value["position"] = message.position;
  return Text(value);
}

std::string Encode(const StoreMessage& message) {
  json members = json::array();
  for (const Member& member : message.round.members) members.push_back(ToJson(member));
  json value = {{"type", message.type}};
  if (message.type == StoreMessage::Type::kWaiting) value["ranks"] = message.ranks;
  if (message.type == StoreMessage::Type::kRound) {
    value["generation"] = message.round.generation;
    value["token"] = message.round.token;
    value["members"] = members;
  }
  if (message.type == StoreMessage::Type::kChallenge) {
    value["nonce"] = message.nonce;
    value["proof"] = message.proof;
  }
  AddStatus(value, message.status);
  return Text(value);
}

absl::StatusOr<MemberMessage> DecodeMemberMessage(absl::string_view text) {
  return Decode<MemberMessage>(text, [](const json& value) {
    MemberMessage message;
    message.type = value.at("type");
    if (message.type == MemberMessage::Type::kJoin) {
      message.member = ToMember(value.at("member"));
      message.generation = value.at("generation");
      message.incarnation = value.at("incarnation");
      message.cause = StatusOf(value);
    }
    message.position = value.value("position", "");
    message.nonce = value.value("nonce", "");
    message.proof = value.value("proof", "");
    return message;
  });
}

absl::StatusOr<StoreMessage> DecodeStoreMessage(absl::string_view text) {
  return Decode<StoreMessage>(text, [](const json& value) {
    StoreMessage message;
    message.type = value.at("type");
    message.ranks = value.value("ranks", std::vector<int>());
    if (message.type == StoreMessage::Type::kRound) {
      message.round.generation = value.at("generation");
      message.round.token = value.at("token");
      for (const json& member : value.at("members")) {
        message.round.members.push_back(ToMember(member));
      }
    }
    message.status = StatusOf(value);
    message.nonce = value.value("nonce", "");
    message.proof = value.value("proof", "");
    return message;
  });
}

absl::Status FrameStream::Send(absl::string_view frame) {
  if (!broken_.ok()) return broken_;
  if (outgoing_.size() > kLargestFrame) {
    return broken_ = absl::UnavailableError("the other end doesn't read");
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    outgoing_.push_back(static_cast<char>(frame.size() >> shift & 0xff));
  }
  absl::StrAppend(&outgoing_, frame);
  return Flush();
}

absl::Status FrameStream::Flush() {
  while (broken_.ok() && !outgoing_.empty()) {
    const absl::StatusOr<size_t> sent =
        SendSome(socket_, std::as_bytes(std::span(std::as_const(outgoing_))));
    if (!sent.ok()) return broken_ = sent.status();
    if (*sent == 0) break;
    outgoing_.erase(0, *sent);
  }
  return broken_;
}

absl::StatusOr<std::vector<std::string>> FrameStream::Receive() {
  std::array<std::byte, 16384> buffer;
  while (incoming_.size() <= largest_ + kLengthSize) {
    const absl::StatusOr<size_t> received = ReceiveSome(socket_, buffer);
    if (!received.ok()) broken_ = received.status();
    if (!received.ok() || *received == 0) break;
    incoming_.append(reinterpret_cast<const char*>(buffer.data()), *received);
  }
  std::vector<std::string> frames;
  while (incoming_.size() >= kLengthSize) {
    size_t size = 0;
    for (size_t i = 0; i < kLengthSize; ++i) {
      size = size << 8 | static_cast<unsigned char>(incoming_[i]);
    }
    if (size > largest_) {
      broken_ = absl::UnavailableError("it doesn't speak the rendezvous' protocol");
      break;
    }
    if (incoming_.size() < kLengthSize + size) break;
    frames.push_back(incoming_.substr(kLengthSize, size));
    incoming_.erase(0, kLengthSize + size);
  }
  if (frames.empty() && !broken_.ok()) return broken_;
  return frames;
}

}  // namespace muster::worker
