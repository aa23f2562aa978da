#include "heddle/mapped_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "heddle/checksum.h"
#include "heddle/error.h"

namespace heddle {
namespace {

// Stays in the second-level cache between the copy from the page cache and the checksum.
constexpr size_t kChunk = 256 * 1024;

// To copy a chunk takes up to twice as long as to sum it: more threads would wait for their turn.
constexpr size_t kMostReaders = 3;

// Less is summed before a second thread has started.
constexpr size_t kBytesPerReader = 16 * kChunk;

constexpr std::align_val_t kAlignment{64};

[[noreturn]] void fail(const std::string& path) {
  throw Error(ArtifactReason::kNotFound, path + ": cannot be read: " + std::strerror(errno));
}

/// The XXH64 of a part of a file, which is one long chain: threads read chunks side by side, and
/// each adds its own in its turn.
class SharedSum {
 public:
  SharedSum(int descriptor, size_t offset, size_t size)
      : descriptor_(descriptor), offset_(offset), size_(size) {}

  uint64_t value() {
    cpu_set_t cores;
    const bool known = ::sched_getaffinity(0, sizeof(cores), &cores) == 0;
    const size_t most = std::min<size_t>(known ? CPU_COUNT(&cores) : 1, kMostReaders);
    // Linux may start a thread on the core of the one that starts it, and leave it there.
    CPU_CLR(::sched_getcpu(), &cores);
    std::vector<std::thread> helpers;
    try {
      for (size_t i = 1; i < std::min(most, size_ / kBytesPerReader); ++i) {
        helpers.emplace_back(&SharedSum::work, this);
        ::pthread_setaffinity_np(helpers.back().native_handle(), sizeof(cores), &cores);
      }
    } catch (const std::system_error&) {
      // The system has no thread to spare: those that there are read it all.
    }
    work();
    for (std::thread& helper : helpers) helper.join();
    if (missing_) {
      throw Error(ArtifactReason::kTruncated, "cannot be read at byte " + std::to_string(end_));
    }
    return sum_.value();
  }

 private:
  void work() {
    std::vector<uint8_t> chunk(kChunk);
    for (;;) {
      const size_t number = next_.fetch_add(1, std::memory_order_relaxed);
      const size_t begin = number * kChunk;
      if (begin >= size_) return;
      const size_t wanted = std::min(kChunk, size_ - begin);
      const size_t count = read(chunk.data(), wanted, offset_ + begin);
      while (turn_.load(std::memory_order_acquire) != number) std::this_thread::yield();
      if (!missing_) {
        sum_.update(chunk.data(), count);
        end_ = offset_ + begin + count;
        missing_ = count < wanted;
      }
      turn_.store(number + 1, std::memory_order_release);
    }
  }

  /// Reads up to `size` bytes; fewer where the file ends or cannot be read.
  size_t read(uint8_t* target, size_t size, size_t offset) const {
    size_t done = 0;
    while (done < size) {
      ssize_t count =
          ::pread(descriptor_, target + done, size - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<size_t>(count);
    }
    return done;
  }

  const int descriptor_;
  const size_t offset_, size_;
  std::atomic<size_t> next_{0};  // the chunk that is read next
  std::atomic<size_t> turn_{0};  // the chunk that is added next; who has it owns what is below
  Checksum sum_;
  size_t end_ = 0;
  bool missing_ = false;
};

}  // namespace

std::unique_ptr<MappedFile> MappedFile::open(const std::string& path) {
  // A pipe would keep us waiting for a writer; for files the flag means nothing.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(path);
  // From here on the object closes the file, also where a check below throws.
  std::unique_ptr<MappedFile> file(new MappedFile(nullptr, 0, descriptor));
  struct stat status;
  if (::fstat(descriptor, &status) != 0) fail(path);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ArtifactReason::kNotFound, path + ": wanted a regular file");
  }
  if (status.st_size > 0) {
    size_t size = static_cast<size_t>(status.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) fail(path);
    file->data_ = static_cast<const uint8_t*>(data);
    file->size_ = size;
  }
  return file;
}

std::unique_ptr<MappedFile> MappedFile::copy(const void* data, size_t size) {
  auto* copy = static_cast<uint8_t*>(::operator new(size, kAlignment));
  std::unique_ptr<MappedFile> file(new MappedFile(copy, size, -1));
  if (size > 0) std::memcpy(copy, data, size);
  return file;
}

MappedFile::MappedFile(const uint8_t* data, size_t size, int descriptor)
    : data_(data), size_(size), descriptor_(descriptor) {}

MappedFile::~MappedFile() {
  if (descriptor_ < 0) {
    ::operator delete(const_cast<uint8_t*>(data_), kAlignment);
    return;
  }
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
  ::close(descriptor_);
}

uint64_t MappedFile::checksum(size_t offset, size_t size) const {
  if (descriptor_ < 0 || size <= kChunk) return heddle::checksum(data_ + offset, size);
  // Reading leaves the pages in the page cache alone; touching the mapping would make them ours.
  return SharedSum(descriptor_, offset, size).value();
}

void MappedFile::forget_pages() const {
  if (descriptor_ >= 0 && data_ != nullptr) {
    ::madvise(const_cast<uint8_t*>(data_), size_, MADV_DONTNEED);
  }
}

}  // namespace heddle
