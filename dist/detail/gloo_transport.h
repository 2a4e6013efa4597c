// Messages by Gloo's TCP transport. Gloo's headers are seen by gloo_transport.cpp alone.
#pragma once

#include "dist/detail/control.h"
#include "dist/detail/transport.h"

#include <memory>
#include <string>

namespace weft::dist::detail {

// Connects every two ranks, which learn of each other's addresses through `control`. Called by all.
std::unique_ptr<Transport> make_gloo_transport(Control& control, const std::string& own_address,
                                               double timeout_seconds);

}  // namespace weft::dist::detail
