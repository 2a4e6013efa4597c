// Any text either is a sound manifest or throws DamagedCheckpoint; nothing else may happen. What is
// sound has a text that is read as the same.
#include "dist/manifest.h"

#include <cstdint>
#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    weft::dist::parse_manifest(text, "fuzz");
  } catch (const weft::dist::DamagedCheckpoint&) {
  }
  try {
    const weft::dist::Manifest manifest = weft::dist::parse_manifest_body(text, "fuzz");
    const weft::dist::Manifest again =
        weft::dist::parse_manifest(weft::dist::manifest_text(manifest), "fuzz");
    if (again.digest() != manifest.digest() || again.bytes() != manifest.bytes()) std::abort();
  } catch (const weft::dist::DamagedCheckpoint&) {
  }
  return 0;
}
