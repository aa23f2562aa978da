#include "heddle/uses.h"

#include <algorithm>
#include <utility>

namespace heddle {
namespace {

// From so many reads on, those that are done are forgotten.
constexpr size_t kReads = 8;

bool same_stream(const Event& a, const Event& b) {
  return a.device() == b.device() && a.stream().id == b.stream().id;
}

}  // namespace

void Uses::order_read(Device& device, Stream stream) const {
  if (auto event = written()) event->order(device, stream);
}

void Uses::order_write(Device& device, Stream stream) const {
  std::vector<std::shared_ptr<Event>> before = all();  // reads are behind what comes from others
  if (before.empty()) return order_read(device, stream);
  for (const std::shared_ptr<Event>& event : before) event->order(device, stream);
}

void Uses::note_ready(std::shared_ptr<Event> event) {
  std::lock_guard lock(mutex_);
  ready_ = std::move(event);
}

// Asked for and dropped without the lock, as all events are: they may hold what takes another one.
std::vector<std::shared_ptr<Event>> Uses::reads_that_are_done() const {
  std::vector<std::shared_ptr<Event>> reads;
  {
    std::lock_guard lock(mutex_);
    if (read_.size() < kReads) return {};
    reads = read_;
  }
  auto runs = [](const std::shared_ptr<Event>& read) { return !read->reached(); };
  reads.erase(std::remove_if(reads.begin(), reads.end(), runs), reads.end());
  return reads;
}

void Uses::note_read(const std::shared_ptr<Event>& event) {
  const std::vector<std::shared_ptr<Event>> done = reads_that_are_done();
  std::shared_ptr<Event> before;
  std::lock_guard lock(mutex_);
  for (std::shared_ptr<Event>& read : read_) {
    if (!same_stream(*read, *event)) continue;
    before = std::exchange(read, event);
    return;
  }
  for (const std::shared_ptr<Event>& read : done) {
    read_.erase(std::remove(read_.begin(), read_.end(), read), read_.end());
  }
  read_.push_back(event);
}

void Uses::note_write(const std::shared_ptr<Event>& event) {
  std::shared_ptr<Event> before = event;
  std::vector<std::shared_ptr<Event>> reads;
  std::lock_guard lock(mutex_);
  before.swap(written_);
  reads.swap(read_);
}

void Uses::hand_out() {
  std::lock_guard lock(mutex_);
  handed_out_ = true;
}

bool Uses::handed_out() const {
  std::lock_guard lock(mutex_);
  return handed_out_;
}

std::shared_ptr<Event> Uses::written() const {
  std::lock_guard lock(mutex_);
  return written_ != nullptr ? written_ : ready_;
}

std::vector<std::shared_ptr<Event>> Uses::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Event>> events = read_;
  if (written_ != nullptr) events.push_back(written_);
  return events;
}

}  // namespace heddle
