#include "core/device.h"

#include "core/error.h"

#include <charconv>

namespace weft {

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.index);
}

Device device_from_name(std::string_view name) {
  if (name == "cpu") return cpu;
  if (name == "cuda") return {DeviceKind::cuda, 0};
  constexpr std::string_view prefix = "cuda:";
  if (name.starts_with(prefix)) {
    const std::string_view digits = name.substr(prefix.size());
    int8_t index = -1;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (code == std::errc() && end == digits.data() + digits.size() && index >= 0) {
      return {DeviceKind::cuda, index};
    }
  }
  throw_error("device", {"expected cpu, cuda or cuda:N, got '", name, "'"});
}

}  // namespace weft
