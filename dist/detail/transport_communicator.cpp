#include "dist/detail/transport_communicator.h"

#include "dist/detail/hosts.h"
#include "dist/detail/transport_exchange.h"
#include "dist/detail/verdict_text.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace weft::dist::detail {

TransportCommunicator::TransportCommunicator(std::shared_ptr<Network> network, uint64_t number,
                                             int rank, std::vector<int> ranks, std::string name,
                                             std::shared_ptr<Recorder> recorder,
                                             CommunicatorOptions options)
    : CommunicatorBase(rank, static_cast<int>(ranks.size()), std::move(name), std::move(recorder),
                       options),
      network_(std::move(network)),
      number_(number),
      ranks_(std::move(ranks)),
      seen_(ranks_.size()) {
  for (size_t slot = 0; slot < 2; ++slot) {
    sent_[slot].resize(kMessage);
    received_[slot].resize(ranks_.size());
    for (Message& message : received_[slot])
      message.resize(ranks_.size() > 1 ? kMessage : 0);
  }
  post_receives(0);
}

TransportCommunicator::~TransportCommunicator() {
  close();
  // Messages that are still being sent are waited for: others may need them to complete.
  const double start = clock_seconds();
  for (std::vector<Flight>& flights : sends_) {
    for (Flight& flight : flights) {
      bool lost = false;
      while (!lost && !try_wait(flight, lost) && clock_seconds() - start < 1) {
      }
    }
  }
  network_->control().leave(number_);
}

Ref<Storage> TransportCommunicator::allocate(int64_t bytes) {
  return hosts_ ? hosts_->inside->allocate(bytes) : CommunicatorBase::allocate(bytes);
}

TransportCommunicator::Flight TransportCommunicator::send(int peer, Channel channel,
                                                          const std::byte* data, int64_t bytes) {
  const int to = ranks_[static_cast<size_t>(peer)];
  return {network_->transport().send(to, tag(channel), data, static_cast<size_t>(bytes)), peer,
          bytes};
}

TransportCommunicator::Flight TransportCommunicator::recv(int peer, Channel channel,
                                                          std::byte* data, int64_t most) {
  const int from = ranks_[static_cast<size_t>(peer)];
  return {network_->transport().recv(from, tag(channel), data, static_cast<size_t>(most)), peer,
          most};
}

bool TransportCommunicator::try_wait(Flight& flight, bool& lost) {
  if (flight.done || !flight.transfer) return true;
  try {
    flight.done = network_->transport().wait(*flight.transfer);
  } catch (const TransportError&) {
    // Why the connection is lost will be heard in a moment.
    lost = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return flight.done;
}

void TransportCommunicator::await(const Present& present, std::span<Flight> flights) {
  for (size_t i = 0; i < flights.size(); ++i) {
    AwakeTime awake;
    std::optional<double> gone_since;
    bool lost = false;
    while (!try_wait(flights[i], lost))
      look_around(present, flights.subspan(i), awake.look(), gone_since, lost);
  }
}

void TransportCommunicator::look_around(const Present& present, std::span<Flight> waiting,
                                        double waited, std::optional<double>& gone_since,
                                        bool lost) {
  constexpr double kNews = 5;  // until it is known why a connection is lost
  // What a rank has sent before it left may still lie in its host's buffers. That it has left comes
  // by another connection, and sooner: a slow one must have the time to bring the rest.
  constexpr double kOnTheWay = 1;
  constexpr double kSlowBytesPerSecond = 1e6;
  Control& control = network_->control();
  if (const auto verdict = control.verdict(number_)) {
    // Contracts that are on their way are taken, so that none is left in the connections that
    // other communicators use.
    if (verdict->contract_error && present.meeting && !lost && waited < 1) return;
    raise(*verdict);
  }
  bool gone = false;
  bool died = false;
  int64_t bytes = 0;  // from or to those that have gone
  for (const Flight& flight : waiting) {
    if (flight.done) continue;
    const std::string fate = control.fate(ranks_[static_cast<size_t>(flight.peer)], number_);
    if (fate.empty()) continue;
    gone = true;
    died = died || fate != kLeft;
    bytes += flight.bytes;
  }
  if (gone && !gone_since) gone_since = waited;
  const double on_the_way = kOnTheWay + static_cast<double>(bytes) / kSlowBytesPerSecond;
  const bool hopeless = died || (gone && waited - *gone_since > on_the_way);
  if (!hopeless && waited < options().timeout_seconds && !(lost && waited > kNews)) return;
  std::vector<int> missing;
  for (Flight& flight : waiting) {
    bool broken = false;
    if (!try_wait(flight, broken) &&
        std::find(missing.begin(), missing.end(), flight.peer) == missing.end()) {
      missing.push_back(flight.peer);
    }
  }
  if (!missing.empty()) report_missing(present, missing, waited, lost);
}

void TransportCommunicator::report_missing(const Present& present, const std::vector<int>& missing,
                                           double waited, bool lost) {
  std::vector<std::string> gone;
  std::vector<std::string> late;
  for (const int r : missing) {
    const std::string fate = network_->control().fate(ranks_[static_cast<size_t>(r)], number_);
    if (!fate.empty()) gone.push_back(story(r, present, fate, waited));
  }
  if (gone.empty()) {
    if (waited < options().timeout_seconds && !lost) return;
    // Ranks that do not answer come first: others may be late because they wait for those.
    std::vector<std::string> waiting;
    for (const int r : missing) {
      bool silent = false;
      std::string text = story(r, present, lost ? "has lost its connection" : "", waited, &silent);
      (silent ? late : waiting).push_back(std::move(text));
    }
    late.insert(late.end(), waiting.begin(), waiting.end());
  }
  fail({missing_text(op_name(present.call), size(),
                     describe(present.contract, present.sequence, name()),
                     gone.empty() ? late : gone),
        false});
}

std::string TransportCommunicator::story(int peer, const Present& present, const std::string& fate,
                                         double waited, bool* silent) {
  Absence absence{name_of(peer), fate, waited, {}};
  if (fate.empty()) {
    const auto answer = network_->control().ask(ranks_[static_cast<size_t>(peer)], 0.5);
    if (answer) {
      absence.seen = answer->first;
      absence.ago = answer->second;
      absence.same =
          absence.seen.communicator == number_ && absence.seen.sequence == present.sequence;
      return story_of(absence);
    }
    absence.silent = true;
    if (silent) *silent = true;
  }
  const Seen& seen = seen_[static_cast<size_t>(peer)];
  if (seen.any) {
    absence.seen.state = Whereabouts::State::after;
    absence.seen.call = describe(seen.contract, seen.sequence, name());
  }
  return story_of(absence);
}

std::string TransportCommunicator::name_of(int peer) const {
  return name_of_rank(peer, ranks_[static_cast<size_t>(peer)]);
}

void TransportCommunicator::fail(const Verdict& verdict) {
  Control& control = network_->control();
  control.propose(number_, verdict);
  // Rank 0 may be the one that does not answer.
  const auto common = control.await_verdict(number_, 3);
  raise(common ? *common : verdict);
}

void TransportCommunicator::raise(const Verdict& verdict) {
  network_->remember(verdict);
  if (verdict.contract_error) throw ContractError(verdict.text);
  throw CommunicationError(verdict.text);
}

void TransportCommunicator::abort(const std::string& reason) {
  Control& control = network_->control();
  // A rank that fails because another communicator has failed passes on what happened there.
  const Verdict first = network_->remembered();
  const Verdict own{
      gave_up_text(name(), size(), name_of(rank()), control.whereabouts().read(), reason), false};
  control.propose(number_, first.text.empty() ? own : first);
  if (hosts_) {
    hosts_->inside->abort(reason);
    hosts_->across->abort(reason);
  }
  if (first.text.empty()) (void)control.await_verdict(number_, 1);
}

void TransportCommunicator::post_receives(uint64_t call) {
  const size_t slot = call % 2;
  receives_[slot].clear();
  for (int i = 1; i < size(); ++i) {
    const int peer = (rank() + i) % size();
    receives_[slot].push_back(
        recv(peer, Channel::meeting, received_[slot][static_cast<size_t>(peer)].data(), kMessage));
  }
}

void TransportCommunicator::meet(Present& present, size_t bytes) {
  const size_t slot = calls_ % 2;
  present.meeting = true;
  sends_[slot].clear();
  post_receives(++calls_);  // before anything is sent, so that the others hear of it with that
  for (int i = 1; i < size(); ++i) {
    sends_[slot].push_back(send((rank() + i) % size(), Channel::meeting, sent_[slot].data(),
                                static_cast<int64_t>(bytes)));
  }
  await(present, receives_[slot]);
  std::vector<const Contract*> contracts;
  for (int r = 0; r < size(); ++r) {
    const auto& message = r == rank() ? sent_[slot] : received_[slot][static_cast<size_t>(r)];
    const auto* envelope = reinterpret_cast<const Envelope*>(message.data());
    contracts.push_back(&envelope->contract);
    seen_[static_cast<size_t>(r)] = {true, envelope->contract, envelope->sequence};
  }
  const std::string text =
      mismatch_text(op_name(present.call), contracts, ranks_, present.sequence, name());
  if (!text.empty()) fail({text, true});
  present.meeting = false;
}

void TransportCommunicator::execute(const Call& call, int64_t sequence, Waiting) {
  Present present{call, contract_of(call), sequence};
  Whereabouts& own = network_->control().whereabouts();
  if (!part_of_another_) own.enter(present.contract, sequence, name(), number_);
  if (const auto verdict = network_->control().verdict(number_)) raise(*verdict);
  if (call.collective == Collective::send || call.collective == Collective::recv) {
    exchange_pair(present);
  } else {
    Exchange(*this, present).run();
  }
  if (!part_of_another_) own.leave();
}

// send and recv: both ends send their envelope, the sender's with the data where they are few.
void TransportCommunicator::exchange_pair(Present& present) {
  constexpr int64_t kStep = int64_t{4} << 20;
  const Call& call = present.call;
  const bool sends = call.collective == Collective::send;
  const int peer = call.root;
  const Elements& values = sends ? call.in : call.out;
  const int64_t bytes = values.bytes();
  const bool inside = bytes <= static_cast<int64_t>(kMessage - sizeof(Envelope));
  const Envelope own{present.contract, present.sequence, 0, 0, inside ? 1 : 0};
  Message sent(sizeof own + (sends && inside ? static_cast<size_t>(bytes) : 0));
  Message received(kMessage);
  std::memcpy(sent.data(), &own, sizeof own);
  if (sent.size() > sizeof own)
    std::memcpy(sent.data() + sizeof own, values.data, sent.size() - sizeof own);
  {
    std::array<Flight, 2> flights = {
        recv(peer, sends ? Channel::receiver : Channel::sender, received.data(), kMessage),
        send(peer, sends ? Channel::sender : Channel::receiver, sent.data(),
             static_cast<int64_t>(sent.size()))};
    present.meeting = true;
    await(present, flights);
    present.meeting = false;
  }
  Envelope theirs;
  std::memcpy(&theirs, received.data(), sizeof theirs);
  const std::string text = sends ? pair_mismatch_text(own.contract, rank(), theirs.contract, peer,
                                                      ranks_, present.sequence, name())
                                 : pair_mismatch_text(theirs.contract, peer, own.contract, rank(),
                                                      ranks_, present.sequence, name());
  if (!text.empty()) fail({text, true});
  if (bytes == 0) return;
  if (inside) {
    if (!sends)
      std::memcpy(values.data, received.data() + sizeof theirs, static_cast<size_t>(bytes));
    return;
  }
  // Two chunks are under way at a time.
  std::vector<Flight> flights;
  for (int64_t begin = 0; begin < bytes; begin += kStep) {
    const int64_t length = std::min(kStep, bytes - begin);
    flights.push_back(sends ? send(peer, Channel::data, values.data + begin, length)
                            : recv(peer, Channel::data, values.data + begin, length));
    if (flights.size() > 1) {
      await(present, std::span(flights).first(1));
      flights.erase(flights.begin());
    }
  }
  await(present, flights);
}

uint64_t TransportCommunicator::prepare_group(const std::vector<int>&) {
  return network_->new_number();
}

std::unique_ptr<Communicator> TransportCommunicator::join_group(const std::vector<int>& members,
                                                                int index, const std::string& name,
                                                                uint64_t prepared) {
  std::vector<int> ranks;
  for (const int member : members)
    ranks.push_back(ranks_[static_cast<size_t>(member)]);
  return std::make_unique<TransportCommunicator>(network_, prepared, index, std::move(ranks), name,
                                                 shared_recorder(), options());
}

}  // namespace weft::dist::detail
