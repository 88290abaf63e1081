#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster::worker {

// CRC-32C (Castagnoli) of `bytes`, going on from `before`, the checksum of what precedes them.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace muster::worker
