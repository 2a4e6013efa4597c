// Ranks as processes of any number of hosts that meet over TCP.
#pragma once

#include "dist/communicator.h"

#include <memory>
#include <string>

namespace weft::dist {

struct TcpOptions {
  std::string job = {};      // the same on all ranks; ranks of another job are refused
  std::string address = {};  // of rank 0: a host's name or number
  int port = 0;              // where rank 0 listens, on `address`
  int rank = 0;
  int size = 1;
  // This host's address for the data. Empty: the one from which rank 0 is reached.
  std::string own_address = {};
  // How many ranks this host has, and the number of this one among them. Where all hosts have as
  // many, and ranks are numbered host by host, they share memory, and each carries a part of what
  // goes to other hosts. 0: all ranks talk over TCP.
  int local_rank = 0;
  int local_size = 0;
  // Data travel by the Gloo library in place of sockets of our own. The same on all ranks.
  bool by_gloo = false;
};

// Joins; returns when all ranks have come, or throws CommunicationError after the timeout, or as
// soon as one has died. Ranks connect to rank 0 at address:port (which tells them when one of them
// dies, and what the verdict is), and to each other at ports that the system chooses. The
// connections are neither encrypted nor authenticated: this is for a network of one's own.
//
// The bits of a sum are those of every other backend. The last communicator of a job, when it goes,
// waits a while for the other ranks'; rank 0's until all have left or the timeout is over. With
// Gloo, a process without a handler for SIGPIPE gets one that does nothing.
std::unique_ptr<Communicator> join_tcp(const TcpOptions& job, CommunicatorOptions options = {});

// A port of `address`, one of this host's, that is free at the moment: for ranks that are started
// here.
int free_port(const std::string& address);

}  // namespace weft::dist
