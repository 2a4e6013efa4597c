// What the backends across hosts need of a network library: tagged messages between ranks.
#pragma once

#include "core/error.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft::dist::detail {

// The connection to a rank is lost.
class TransportError : public Error {
 public:
  using Error::Error;
};

// One object a process; ranks are those of the job. Thread safe.
class Transport {
 public:
  // A message under way. Destroying it gives it up: its memory is not touched from then on.
  class Transfer {
   public:
    virtual ~Transfer() = default;
  };

  virtual ~Transport() = default;
  virtual const char* backend() const = 0;

  // Both return at once. Messages from one rank to another with one tag arrive in order; a message
  // may be shorter than the `most` bytes of its receiver, never longer, nor of 0 bytes. The memory
  // stays as it is until the transfer is complete. A lost connection shows when it is waited for.
  // What is sent before its receiver is there goes on when this rank, after that, waits for
  // something that is not there yet.
  virtual std::unique_ptr<Transfer> send(int to, uint64_t tag, const std::byte* data,
                                         size_t bytes) = 0;
  virtual std::unique_ptr<Transfer> recv(int from, uint64_t tag, std::byte* data, size_t most) = 0;

  // Waits until a transfer is complete; true also when it had been already. False after a nudge:
  // the caller looks around and waits again. Throws TransportError.
  virtual bool wait(Transfer& transfer) = 0;
  // Makes all that wait return, now or at their next wait. From any thread.
  virtual void nudge() = 0;
};

}  // namespace weft::dist::detail
