#include "worker/checkpoint/checksum.h"

#include <array>
#include <cstring>

namespace muster::worker {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected
using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: what byte b does to the checksum k bytes later.
constexpr Tables MakeTables() {
  Tables tables = {};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? crc >> 1 ^ kPolynomial : crc >> 1;
    }
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t crc = tables[k - 1][b];
      tables[k][b] = crc >> 8 ^ tables[0][crc & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t block = 0;
    std::memcpy(&block, bytes.data() + i, sizeof(block));
    block ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) {
      crc ^= kTables[7 - k][block >> (8 * k) & 255];
    }
  }
  for (; i < bytes.size(); ++i) {
    crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<uint32_t>(bytes[i])) & 255];
  }
  return ~crc;
}

}  // namespace muster::worker
