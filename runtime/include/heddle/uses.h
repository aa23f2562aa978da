#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "heddle/event.h"

namespace heddle {

/// Which work of which streams uses a block of a GPU's memory. Safe from many threads, but who
/// writes memory from two at once gets either's bytes.
class Uses {
 public:
  /// For memory that was allocated in the order of `stream`.
  explicit Uses(Stream stream) : stream_(stream) {}

  Stream stream() const { return stream_; }

  /// Makes `stream` wait until it may read, or write.
  void order_read(Device& device, Stream stream) const;
  void order_write(Device& device, Stream stream) const;

  /// What somebody else has given the memory's own stream comes before all uses.
  void note_ready(std::shared_ptr<Event> event);

  /// The work up to `event` reads, or writes.
  void note_read(const std::shared_ptr<Event>& event);
  void note_write(const std::shared_ptr<Event>& event);

  /// The end of the last write, here or by who gave the memory, or null: what reads are behind.
  std::shared_ptr<Event> written() const;

  /// Somebody else got the address, and uses it on streams that are not known here.
  void hand_out();
  bool handed_out() const;

  /// The ends of all uses that no other use has waited for.
  std::vector<std::shared_ptr<Event>> all() const;

 private:
  std::vector<std::shared_ptr<Event>> reads_that_are_done() const;

  const Stream stream_;
  mutable std::mutex mutex_;  // of all below
  std::shared_ptr<Event> ready_;
  std::shared_ptr<Event> written_;
  std::vector<std::shared_ptr<Event>> read_;  // since then, one for each stream
  bool handed_out_ = false;
};

}  // namespace heddle
