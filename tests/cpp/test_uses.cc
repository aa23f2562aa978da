#include <utility>

#include "heddle/memory.h"
#include "heddle/uses.h"
#include "support.h"

namespace heddle {
namespace {

/// A point that is reached when the test says so, and knows who was made to wait for it.
class Point final : public Event {
 public:
  explicit Point(uint64_t stream) : stream_(Stream::of(nullptr, stream)) {}

  const Device* device() const override { return test::cpu().get(); }
  Stream stream() const override { return stream_; }
  bool reached() override { return done; }
  void synchronize() override { done = true; }
  void order(Device&, Stream later) override { waiting.push_back(later.id); }
  void hold(std::shared_ptr<void>) override {}

  bool done = false;
  std::vector<uint64_t> waiting;

 private:
  Stream stream_;
};

std::shared_ptr<Point> point(uint64_t stream) { return std::make_shared<Point>(stream); }

const Stream kLater = Stream::of(nullptr, 9);

TEST_CASE("uses: a read waits for the write, a write for the reads too") {
  Uses uses({});
  auto written = point(1), first = point(1), second = point(2);
  uses.note_write(written);
  uses.note_read(first);
  uses.note_read(second);
  uses.order_read(*test::cpu(), kLater);
  CHECK(written->waiting == std::vector<uint64_t>{9});
  CHECK(first->waiting.empty());
  uses.order_write(*test::cpu(), kLater);
  CHECK(written->waiting.size() == 2);
  CHECK(first->waiting == std::vector<uint64_t>{9});
  CHECK(second->waiting == std::vector<uint64_t>{9});
}

TEST_CASE("uses: only the last read of a stream counts, and none that a write was behind") {
  Uses uses({});
  auto early = point(1), late = point(1), written = point(2);
  uses.note_read(early);
  uses.note_read(late);
  CHECK(uses.all() == std::vector<std::shared_ptr<Event>>{late});
  CHECK(early.use_count() == 1);
  uses.note_write(written);
  CHECK(uses.all() == std::vector<std::shared_ptr<Event>>{written});
  CHECK(uses.written() == written);
}

TEST_CASE("uses: reads of many streams are forgotten once they are done") {
  Uses uses({});
  for (uint64_t stream = 1; stream <= 100; ++stream) {
    auto read = point(stream);
    read->done = stream != 50;
    uses.note_read(read);
  }
  CHECK(uses.all().size() <= 9);
  uint64_t unfinished = 0;
  for (const auto& event : uses.all()) unfinished += event->stream().id == 50;
  CHECK(unfinished == 1);
}

TEST_CASE("uses: an event is asked without a lock, and may fail") {
  class Asking final : public Event {
   public:
    Asking(Uses* uses, uint64_t stream) : uses_(uses), stream_(Stream::of(nullptr, stream)) {}
    const Device* device() const override { return test::cpu().get(); }
    Stream stream() const override { return stream_; }
    bool reached() override {
      uses_->written();  // as what it holds may do when it goes
      throw Error(ErrorKind::kDevice, "lost");
    }
    void synchronize() override {}
    void order(Device&, Stream) override {}
    void hold(std::shared_ptr<void>) override {}

   private:
    Uses* uses_;
    Stream stream_;
  };
  Uses uses({});
  for (uint64_t stream = 1; stream <= 8; ++stream) {
    uses.note_read(std::make_shared<Asking>(&uses, stream));
  }
  test::caught([&] { uses.note_read(point(9)); });
  for (const auto& event : uses.all()) CHECK(event != nullptr);
  CHECK(uses.all().size() == 8);
}

TEST_CASE("uses: what comes from others is waited for, and never ends") {
  Uses uses({});
  auto ready = point(3);
  uses.note_ready(ready);
  uses.order_read(*test::cpu(), kLater);
  uses.order_write(*test::cpu(), kLater);
  CHECK(ready->waiting.size() == 2);
  CHECK(uses.written() == ready);
  CHECK(uses.all().empty());
}

TEST_CASE("memory: kinds, their sum and its peak") {
  MemoryCounters counters;
  counters.add(MemoryKind::kWeights, 100);
  counters.add(MemoryKind::kOutputs, 50);
  counters.remove(MemoryKind::kOutputs, 50);
  counters.add(MemoryKind::kArenas, 20);
  CHECK(counters.live() == 120);
  CHECK(counters.peak() == 150);
  CHECK(counters.live(MemoryKind::kWeights) == 100);
  CHECK(counters.live(MemoryKind::kOutputs) == 0);
}

TEST_CASE("memory: a CPU counts all but small blocks, until they go") {
  const MemoryCounters& counters = test::cpu()->memory();
  const size_t before = counters.live(MemoryKind::kBuffers);
  {
    Buffer small = Buffer::allocate(test::cpu(), DType::kUInt8, {4095});
    CHECK(counters.live(MemoryKind::kBuffers) == before);
    Buffer large = Buffer::allocate(test::cpu(), DType::kUInt8, {4096});
    CHECK(counters.live(MemoryKind::kBuffers) == before + 4096);
    large.copy_to(test::cpu()).synchronize();
  }
  CHECK(counters.live(MemoryKind::kBuffers) == before);
}

TEST_CASE("device: a CPU has no streams") {
  const Error error = test::caught([] { test::cpu()->stream(nullptr); });
  CHECK(error.kind() == ErrorKind::kInput);
  CHECK(std::string(error.what()) == "stream: wanted none, as cpu:0 has no streams, got one");
}

}  // namespace
}  // namespace heddle
