// Where a tensor's bytes lie: "cpu" or "cuda:N".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

enum class DeviceKind : uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int8_t index = 0;

  bool operator==(const Device&) const = default;
  bool is_cpu() const { return kind == DeviceKind::cpu; }
};

inline constexpr Device cpu{};

std::string to_string(Device device);
// "cpu", "cuda", "cuda:1"; throws on anything else.
Device device_from_name(std::string_view name);

}  // namespace weft
