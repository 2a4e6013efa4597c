// Messages over TCP by sockets of our own: a connection between every two ranks.
//
// Data go straight from the sender's memory to the receiver's. A receiver announces its memory, a
// sender sends what has been announced, so nothing arrives for which there is no place, and one
// communicator never waits behind another's data. Whoever waits for a message moves all of them: no
// thread stands between a rank and the system, and none has to be woken.
#pragma once

#include "dist/detail/control.h"
#include "dist/detail/transport.h"

#include <memory>
#include <string>

namespace weft::dist::detail {

// Connects every two ranks, which learn of each other's addresses through `control`. Called by all.
std::unique_ptr<Transport> make_tcp_transport(Control& control, const std::string& own_address,
                                              double timeout_seconds);

}  // namespace weft::dist::detail
