// Turns a functor into a BlockKernel: it is applied to one packet of each input after another.
#pragma once

#include "ops/detail/functors.h"
#include "ops/detail/loop.h"

#include <cstring>
#include <utility>

namespace weft::detail {

using functors::kLanes;
using functors::load_packet;
using functors::Packet;

template <class F, class T, size_t... I>
void packet_kernel_of(int64_t count, const void* const* in, void* out, const void* functor,
                      std::index_sequence<I...>) {
  const F f = *static_cast<const F*>(functor);
  T* to = static_cast<T*>(out);
  for (int64_t at = 0; at < count; at += kLanes<T>) {
    const Packet<T> result = f(load_packet<T>(static_cast<const T*>(in[I]) + at)...);
    std::memcpy(to + at, &result, sizeof result);
  }
}

// The BlockKernel of functor F, called with `Arity` packets of T.
template <class F, class T, int Arity>
void packet_kernel(int64_t count, const void* const* in, void* out, const void* functor) {
  packet_kernel_of<F, T>(count, in, out, functor, std::make_index_sequence<Arity>());
}

}  // namespace weft::detail
