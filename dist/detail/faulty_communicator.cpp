#include "dist/detail/faulty_communicator.h"

namespace weft::dist::detail {
namespace {

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(Communicator& inner, FaultPoint& point) : inner_(inner), point_(point) {}
  FaultyCommunicator(std::unique_ptr<Communicator> owned, FaultPoint& point)
      : owned_(std::move(owned)), inner_(*owned_), point_(point) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const char* backend() const override { return inner_.backend(); }
  const std::string& name() const override { return inner_.name(); }
  Recorder& recorder() override { return inner_.recorder(); }
  Ref<Storage> allocate(int64_t bytes) override { return inner_.allocate(bytes); }
  void run(const Call& call) override {
    strike();
    inner_.run(call);
  }
  Handle start(const Call& call) override {
    strike();
    return inner_.start(call);
  }
  void wait_all() override { inner_.wait_all(); }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& label) override {
    auto group = inner_.split(color, key, label);
    if (!group) return nullptr;
    return std::make_unique<FaultyCommunicator>(std::move(group), point_);
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  void strike() { point_.faults.at("communication", point_.step.load(std::memory_order_relaxed)); }

  std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  FaultPoint& point_;
};

}  // namespace

std::unique_ptr<Communicator> with_faults(Communicator& inner, FaultPoint& point) {
  return std::make_unique<FaultyCommunicator>(inner, point);
}

}  // namespace weft::dist::detail
