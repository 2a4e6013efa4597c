#include "dist/detail/checkpoint_pieces.h"

#include <algorithm>
#include <unordered_map>

namespace weft::dist::detail {
namespace {

// Borders between holders stand on multiples of so many elements.
constexpr int64_t kBorder = 16;

}  // namespace

std::vector<int> order_of(const Shape& shape, const Strides& strides) {
  std::vector<int> order;
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (shape[dim] == 0) return {};
    if (shape[dim] > 1) order.push_back(dim);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return strides[a] > strides[b]; });
  if (std::is_sorted(order.begin(), order.end())) return {};
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (shape[dim] == 1) order.push_back(dim);
  }
  return order;
}

Strides strides_of(const Shape& shape, const std::vector<int>& order) {
  Strides strides = contiguous_strides(shape);
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride *= shape[order[i]];
  }
  return strides;
}

Piece piece_of(std::string name, const Tensor& tensor, int holder, int holders) {
  WEFT_CHECK(tensor.is_dense(), "checkpoint", "expected tensors without gaps in memory, got ", name,
             " of shape ", tensor.shape(), " and strides ", tensor.strides());
  return {std::move(name),
          tensor.dtype(),
          tensor.shape(),
          order_of(tensor.shape(), tensor.strides()),
          0,
          tensor.numel(),
          tensor.raw(),
          tensor,
          holder,
          holders};
}

std::vector<Piece> model_pieces(const CheckpointParts& parts) {
  std::vector<Piece> pieces;
  for (Parallel::Held& held : parts.parallel.held()) {
    pieces.push_back({"model." + held.name, held.values.dtype(), held.shape,
                      order_of(held.shape, held.strides), held.begin, held.values.numel(),
                      held.values.numel() > 0 ? held.values.raw() : nullptr, held.values,
                      held.holder, held.holders});
  }
  const Communicator& comm = parts.parallel.communicator();
  for (const auto& [name, buffer] : parts.model.named_buffers())
    pieces.push_back(piece_of("model." + name, buffer, comm.rank(), comm.size()));
  for (const auto& [name, tensor] : parts.tensors)
    pieces.push_back(piece_of("tensors." + name, tensor, comm.rank(), comm.size()));
  return pieces;
}

std::vector<SteppedPart> stepped_parts(const CheckpointParts& parts) {
  std::unordered_map<std::string, Parallel::Held> held;
  for (Parallel::Held& each : parts.parallel.held())
    held.emplace(each.name, each);
  const optim::Parameters parameters = parts.parallel.parameters();
  std::vector<SteppedPart> stepped;
  for (const auto& [name, tensor] : parameters.list()) {
    const Parallel::Held& whole = held.at(name);
    Piece place;
    place.name = name;
    place.dtype = tensor.dtype();
    place.shape = whole.shape;
    place.order = order_of(whole.shape, whole.strides);
    place.begin = parameters.sharding()->place(tensor).begin;
    place.count = tensor.numel();
    place.holder = parts.parallel.replica();
    place.holders = parts.parallel.replicas();
    stepped.push_back({tensor, std::move(place)});
  }
  return stepped;
}

std::vector<Piece> ema_pieces(const CheckpointParts& parts) {
  std::vector<Piece> pieces;
  if (!parts.ema) return pieces;
  const std::vector<NamedTensor> averages = parts.ema->averages();
  const std::vector<SteppedPart> stepped = stepped_parts(parts);
  WEFT_CHECK(averages.size() == stepped.size(), "checkpoint",
             "expected averages of parallel.parameters(), ", stepped.size(), " of them, got ",
             averages.size());
  for (size_t i = 0; i < averages.size(); ++i) {
    Piece piece = stepped[i].parameter;
    const Tensor& average = averages[i].tensor;
    WEFT_CHECK(averages[i].name == piece.name && average.numel() == piece.count, "checkpoint",
               "expected an average of ", piece.count, " elements of ", piece.name, ", got ",
               average.numel(), " of ", averages[i].name);
    if (piece.count == 0) continue;
    piece.name = "ema." + piece.name;
    piece.dtype = average.dtype();
    piece.data = average.raw();
    piece.memory = average;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Piece> optimizer_pieces(const CheckpointParts& parts) {
  std::vector<Piece> pieces;
  if (!parts.optimizer) return pieces;
  std::unordered_map<std::string, Piece> places;
  for (SteppedPart& stepped : stepped_parts(parts))
    places.emplace(stepped.parameter.name, std::move(stepped.parameter));
  const Communicator& comm = parts.parallel.communicator();
  for (const auto& [key, tensor] : parts.optimizer->state_dict()) {
    const size_t dot = key.find('.');
    if (dot == std::string::npos) {
      pieces.push_back(piece_of("optimizer." + key, tensor, comm.rank(), comm.size()));
      continue;
    }
    const std::string parameter = key.substr(dot + 1);
    const auto found = places.find(parameter);
    WEFT_CHECK(found != places.end(), "checkpoint",
               "expected an optimizer of parallel.parameters(), got one that steps ", parameter);
    const Piece& place = found->second;
    if (place.count == 0) continue;
    if (key.substr(0, dot) == "step") {
      if (tensor.item_int() > 0 && place.begin == 0)
        pieces.push_back(piece_of("optimizer." + key, tensor, place.holder, place.holders));
      continue;
    }
    Piece piece = place;
    piece.name = "optimizer." + key;
    piece.dtype = tensor.dtype();
    piece.data = tensor.raw();
    piece.memory = tensor;
    WEFT_CHECK(tensor.numel() == place.count, "checkpoint", "expected ", place.count,
               " elements of ", key, ", got ", tensor.numel());
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Piece> own_pieces(const std::vector<Piece>& held) {
  // Those that the same ranks hold are divided together. On all of these ranks they come in the
  // same order.
  struct Group {
    int holders;
    int64_t bytes = 0;
    int64_t before = 0;  // bytes of the pieces so far
  };
  std::vector<Group> groups;
  const auto group_of = [&](const Piece& piece) -> Group& {
    for (Group& group : groups) {
      if (group.holders == piece.holders) return group;
    }
    return groups.emplace_back(Group{piece.holders});
  };
  for (const Piece& piece : held)
    group_of(piece).bytes += piece.bytes();

  std::vector<Piece> own;
  for (const Piece& piece : held) {
    Group& group = group_of(piece);
    const int64_t width = size_of(piece.dtype);
    // The piece's element at which holder `index` begins.
    const auto border = [&](int64_t index) {
      if (index == 0) return int64_t{0};
      if (index == group.holders) return piece.count;
      const int64_t bytes =
          group.bytes / group.holders * index + group.bytes % group.holders * index / group.holders;
      const int64_t element = std::clamp<int64_t>((bytes - group.before) / width, 0, piece.count);
      return element == piece.count ? element : element / kBorder * kBorder;
    };
    const int64_t begin = border(piece.holder);
    const int64_t end = border(piece.holder + 1);
    group.before += piece.bytes();
    if (end <= begin && !(piece.shape.numel() == 0 && piece.holder == 0)) continue;
    Piece& part = own.emplace_back(piece);
    part.begin += begin;
    part.count = end - begin;
    if (part.data) part.data += begin * width;
  }
  return own;
}

}  // namespace weft::dist::detail
