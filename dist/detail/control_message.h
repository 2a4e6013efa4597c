// What ranks tell each other on Control's connections.
#pragma once

#include <cstdint>

namespace weft::dist::detail {

enum ControlMessage : uint8_t {
  // ---- while joining ----
  hello = 1,  // to rank 0: who the sender is
  refused,    // why there will be no job
  welcome,    // from rank 0: who all are
  piece,      // of an exchange, to rank 0
  pieces,     // from rank 0: everyone's
  // ---- afterwards, between rank 0 and the others ----
  gone = 16,  // rank, fate: of a rank that has left or died
  leaving,    // the sender has left the job
  left,       // rank, communicator
  proposed,   // communicator, contract error, text
  decided,    // the same
  question,   // to whom, from whom
  answer,     // to whom, from whom, whereabouts
};

}  // namespace weft::dist::detail
